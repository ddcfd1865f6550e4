"""Any process of a job and of its Hadoop is killed or stopped at random: the job ends right, and nothing ran twice."""

from __future__ import annotations

import contextlib
import random
import time

import psutil
import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hosts.training import Training
from tests.yarn.runner import Yarn, make_whole

pytestmark = [pytest.mark.timeout(1200), pytest.mark.nightly]

ROUNDS = 12
OF_THE_JOB = ("program", "agent", "coordinator")
DAEMONS = ("nodemanager1", "nodemanager2", "resourcemanager", "namenode", "datanode")
STOPPED_S = (1.0, 15.0)
MASTER = """
[master]
memory = "256m"
attempts = 30
validity = "1m"
"""


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        node_managers=2,
        node_memory_mib=6144,
        node_expiry_ms=60_000,
        properties={"yarn.resourcemanager.am.max-attempts": "30"},
    )


def test_a_job_ends_right_whatever_is_killed_or_stopped_whenever(
    yarn: Yarn, chance: random.Random
) -> None:
    training = Training(yarn, more=MASTER)
    told: list[str] = []
    for _ in range(ROUNDS):
        for _ in range(chance.choice((1, 2))):
            what = chance.choice(OF_THE_JOB + DAEMONS)
            stop_s = chance.choice((0.0, 0.0, chance.uniform(*STOPPED_S)))
            told.append(f"{what} stopped for {stop_s:.1f} s" if stop_s else f"{what} killed")
            process = victim(training, what, chance)
            with contextlib.suppress(psutil.NoSuchProcess):
                if stop_s:
                    process.suspend()
                    time.sleep(stop_s)
                    process.resume()
                else:
                    process.kill()
                    process.wait(60)
        make_whole(yarn.cluster)
        training.goes_on(f"it trains after: {'; '.join(told)}")
    training.finish()


def victim(training: Training, what: str, chance: random.Random) -> psutil.Process:
    cluster = training.job.cluster
    if what in DAEMONS:
        return psutil.Process(cluster.pid(what) or make_whole(cluster) or cluster.pid(what))
    if what == "coordinator":
        return training.job.master()
    rank = chance.randrange(training.workers)
    training.job.running()
    if what == "agent":
        return training.job.agent(f"worker:{rank}")
    return psutil.Process(training.job.task(f"worker:{rank}").pids[0])
