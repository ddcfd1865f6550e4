"""Two NameNodes and two ResourceManagers: at every phase of a job the other one serves from now on.

All tests share one cluster of the module's own. Each leaves it as it came to be, so that which of two
serves when the next one submits is left open.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from howdah.wire.status import JobView
from tests.cli.howdah import howdah, job_file, start
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, YarnJob, make_whole, until
from tests.yarn.test_cluster_faults import whole_story

pytestmark = [pytest.mark.timeout(600), pytest.mark.nightly]

SOON_S = 120.0
AWAY_BYTES = 1500
"""What a program prints in three seconds: longer than any single call's own tries."""
SAVED = '[checkpoint]\nsettle = "100ms"'


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        name_nodes=2,
        resource_managers=2,
        node_managers=2,
        node_memory_mib=6144,
    )


@pytest.fixture
def yarn(yarn: Yarn) -> Iterator[Yarn]:
    yield yarn
    make_whole(yarn.cluster)


def fail_over(cluster: Cluster) -> None:
    """Let the other NameNode and the other ResourceManager serve."""
    cluster.fail_over_hdfs()
    cluster.fail_over()


def attempts(job: YarnJob) -> list[object]:
    """The masters that YARN has begun for it."""
    return job.cluster.rm(f"apps/{job.application_id}/appattempts")["appAttempts"]["appAttempt"]


def finish(yarn: Yarn, job: YarnJob, generation: int = 1) -> JobView:
    """Let it reach its goal: nothing was restarted or lost, and its end is on HDFS and with YARN."""
    yarn.stop(job)
    return ended(job, generation)


def ended(job: YarnJob, generation: int = 1) -> JobView:
    final = job.wait(SOON_S)
    assert (final.outcome, final.generation) == ("succeeded", generation), final.reason
    assert final.restarts == generation - 1
    assert final.unsaved == ()
    whole_story(job)
    assert job.until_application("FINISHED", SOON_S)["finalStatus"] == "SUCCEEDED"
    assert final.checkpoint is not None
    assert "from step 0" in job.read("logs/worker-0/1.log").decode()
    log = job.read(f"logs/worker-0/{generation}.log").decode()
    saved = job.read(f"checkpoints/{final.checkpoint}/step.txt").decode()
    assert log.rstrip().endswith(f"trained to step {saved}")
    return final


def test_a_job_goes_on_whenever_another_pair_serves(yarn: Yarn) -> None:
    """While it is submitted, before its coordinator registers, while it trains, while its coordinator is replaced and
    while it ends."""
    jobs: list[YarnJob] = []
    submitting = threading.Thread(target=lambda: jobs.append(yarn.steps(SAVED, instances=1)))
    submitting.start()
    fail_over(yarn.cluster)
    submitting.join(SOON_S)
    (job,) = jobs
    fail_over(yarn.cluster)
    job.saves_on()
    fail_over(yarn.cluster)
    job.saves_on()
    job.kill_master()
    # Told to a ResourceManager that has just lost its post, the death is learnt of by expiry alone.
    until(lambda: len(attempts(job)) == 2, "YARN begins another master")
    fail_over(yarn.cluster)
    job.until(lambda v: v.incarnation == 2, "a new coordinator", SOON_S)
    job.saves_on()
    yarn.stop(job)
    fail_over(yarn.cluster)
    assert ended(job).incarnation == 2


def test_while_a_job_waits_for_room(yarn: Yarn) -> None:
    # Of two nodes with 6 GiB.
    holder = yarn.steps(SAVED, memory="5g")
    holder.running()
    waits = yarn.steps(SAVED, instances=1, memory="5g")
    waits.until(lambda v: v.incarnation == 1 and v.tasks, "it waits")
    fail_over(yarn.cluster)
    holder.saves_on()
    finish(yarn, holder)
    assert finish(yarn, waits).incarnation == 1


def test_both_name_nodes_are_away_for_a_while(yarn: Yarn) -> None:
    job = yarn.steps(SAVED, instances=1)
    job.saves_on()
    os.kill(job.task("worker:0").pids[0], signal.SIGKILL)
    job.until(lambda v: v.tasks[0].attempt == 2 and v.tasks[0].log_size, "it begins again", SOON_S)
    job.saves_on()
    for name in ("namenode", "namenode2"):
        yarn.cluster.kill(name)
    printed = job.task("worker:0").log_size or 0
    job.until(lambda v: (v.tasks[0].log_size or 0) > printed + AWAY_BYTES, "it trains", SOON_S)
    logs = howdah("logs", job.job_id, "--no-prefix")
    assert logs.out[0].startswith("from step ")
    assert logs.out[0] != "from step 0"
    assert len(logs.text) > printed + AWAY_BYTES
    assert "Left out: worker:0 attempt 1" in logs.told
    told = howdah("logs", job.job_id, "--attempt", "2", "--tail", "1").told
    assert not told or "did not come in time" in told
    make_whole(yarn.cluster)
    assert "from step 0" in howdah("logs", job.job_id, "--attempt", "1").text
    job.saves_on()
    assert finish(yarn, job, generation=2).incarnation == 1


def test_a_submission_without_any_name_node_is_given_up_once_and_leaves_nothing(
    yarn: Yarn, tmp_path: Path
) -> None:
    for name in ("namenode", "namenode2"):
        yarn.cluster.kill(name)
    run = howdah("run", "--backend", "yarn", str(job_file(tmp_path, "pass")), code=3)
    assert "The job was not submitted" in run.told
    assert "no active NameNode" in run.told
    make_whole(yarn.cluster)
    states = {each["state"] for each in yarn.cluster.applications()}
    assert states <= {"FINISHED", "FAILED", "KILLED"}


def test_both_resource_managers_are_away_for_a_while(yarn: Yarn) -> None:
    job = yarn.steps(SAVED, instances=1)
    job.saves_on()
    for name in ("resourcemanager1", "resourcemanager2"):
        yarn.cluster.kill(name)
    # The command asks the ResourceManagers for a while; then HDFS, which knows where the coordinator is.
    logs = start("logs", job.job_id)
    assert logs.end(SOON_S) == 0, logs.told
    assert "from step 0" in logs.text
    make_whole(yarn.cluster)
    job.saves_on()
    assert finish(yarn, job).incarnation == 1
