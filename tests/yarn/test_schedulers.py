"""Jobs where the cluster itself chooses their queues: the Fair Scheduler, and mappings of the capacity scheduler."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import base_folder, list_jobs
from tests.cli.howdah import Run, howdah, start
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import DAEMON_S, Yarn, until, with_defaults

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]

DOUBTS = ("may not run", "put the job into", "does not heed")
GANG = """
{head}
command = "{command}"
source = ""
[roles.worker]
instances = {n}
memory = "{memory}m"
"""


@pytest.fixture(scope="module", params=[False, True], ids=["capacity", "fair"])
def yarn_cluster(request: pytest.FixtureRequest, hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        fair=request.param,
        queue_mappings=True,
        node_managers=2,
        node_memory_mib=6144,
    )


@pytest.fixture
def fair(yarn_cluster: Cluster) -> bool:
    return yarn_cluster.site.options.fair


@pytest.fixture
def capacity(fair: bool) -> None:
    if fair:
        pytest.skip("of the capacity scheduler only")


def run(
    yarn: Yarn,
    head: str = "",
    *,
    n: int = 2,
    memory: int = 3584,
    code: int = 0,
    user: str = "",
) -> Run:
    """Run a gang by the command line to its end. The usual one is larger than a node."""
    path = yarn.folder / "job.toml"
    text = GANG.format(head=head, n=n, memory=memory, command="true")
    path.write_text(with_defaults(text))
    env = {**os.environ, **({"HADOOP_USER_NAME": user} if user else {})}
    ran = start("run", str(path), "--backend", "yarn", env=env)
    ended = ran.end(DAEMON_S)
    assert ended == code, f"exit code {ended}: {ran.text}\n{ran.told}"
    return ran


def application(yarn: Yarn) -> dict[str, Any]:
    """The newest one, as YARN has it."""
    return max(yarn.cluster.applications(), key=lambda each: each["id"])


def wait_gone(yarn: Yarn) -> None:
    """Nothing is left of the newest job on the cluster; here is why."""
    job = list_jobs(base_folder())[0]
    final = job.final()
    assert final is not None
    assert final.outcome == "failed"
    assert "did not take the job" in final.reason
    url = job.meta().url
    assert url is not None
    assert not Hdfs(url, conf_dir=str(yarn.cluster.conf_dir)).exists(url)
    until(lambda: yarn.cluster.containers() == [], "no container is left")


def test_a_gang_runs_in_the_queue_that_the_cluster_makes_for_it(yarn: Yarn, fair: bool) -> None:
    user = yarn.cluster.site.user
    told = run(yarn, "" if fair else 'name = "to-made"').told
    assert not any(each in told for each in DOUBTS), told
    queue = f"root.users.{user}" if fair else "root.made.new"
    assert application(yarn)["queue"] == queue
    assert json.loads(howdah("status", "--json").text)["queue"] == queue


def test_who_asks_for_another_queue_is_told_where_the_job_is(yarn: Yarn, fair: bool) -> None:
    """Its gang is larger than the queue that is asked for may be, and is not in that."""
    head = 'queue = "nowhere"' if fair else 'name = "to-default"\nqueue = "small"'
    told = run(yarn, head).told
    asked = "nowhere" if fair else "small"
    got = f"root.users.{yarn.cluster.site.user}" if fair else "root.default"
    assert f"the cluster has put the job into '{got}', not into '{asked}'" in told, told
    assert "may not run" not in told


def test_a_gang_runs_in_a_queue_that_is_named_by_its_path(yarn: Yarn, fair: bool) -> None:
    told = run(yarn, f'queue = "{"pair.a" if fair else "root.pair.a"}"', memory=256).told
    assert not any(each in told for each in DOUBTS), told


def test_a_gang_that_is_too_large_for_the_queue_it_is_put_into_is_refused(
    yarn: Yarn, fair: bool
) -> None:
    told = run(yarn, 'queue = "pair.a"' if fair else 'name = "to-small"', code=3).told
    queue = "root.pair.a" if fair else "small"
    whose = f"'{queue}' and those it is in" if fair else f"'{queue}'"
    assert f"can never run the job in the queue '{queue}', which YARN has put it into" in told, told
    assert f"the queue {whose} may have at most 1." in told, told
    assert application(yarn)["state"] == "KILLED"
    wait_gone(yarn)


def test_a_queue_that_yarn_refuses_is_refused_with_its_reason(yarn: Yarn, fair: bool) -> None:
    if fair:
        yarn.cluster.hdfs("/user/ada", "MKDIRS")
        yarn.cluster.hdfs("/user/ada", "SETOWNER", owner="ada")
        told = run(yarn, 'queue = "closed"', memory=256, code=3, user="ada").told
        assert "YARN refuses the job" in told
        assert "ada may not submit to 'closed' (aclSubmitApps); use root." in told, told
        assert "root.default" in told
    else:
        told = run(yarn, 'queue = "nowhere"', memory=256, code=3).told
        assert "YARN did not take the job" in told
        assert "there is no queue 'nowhere'; there is: default" in told
    wait_gone(yarn)


@pytest.mark.usefixtures("capacity")
def test_a_stopped_queue_is_refused_and_so_is_a_job_that_is_put_into_it(yarn: Yarn) -> None:
    yarn.cluster.configure_queues({"root.small": {"state": "STOPPED"}})
    try:
        assert "'small' takes no jobs, it is stopped" in run(yarn, 'queue = "small"', code=3).told
        assert "root.small is STOPPED" in run(yarn, 'name = "to-small"', code=3).told
    finally:
        yarn.cluster.configure_queues({"root.small": {"state": "RUNNING"}})


@pytest.fixture
def full(yarn: Yarn, fair: bool) -> Iterator[str]:
    """How to come into ``small``, which has a job that leaves no room for another master."""
    head = 'queue = "small"' if fair else 'name = "to-small"'
    text = GANG.format(head=head, n=2, memory=448, command="sleep 600")
    taken = yarn.submit(
        text.replace("[roles.worker]", "[roles.worker]\nplacement = { spread = true }")
    )
    assert {task.node for task in taken.running()} == {"127.0.0.11", "127.0.0.12"}
    yield head
    taken.handle.stop(firm=True)
    taken.wait()


def test_a_job_in_a_full_queue_says_so(yarn: Yarn, full: str, fair: bool) -> None:
    path = yarn.folder / "job.toml"
    path.write_text(with_defaults(GANG.format(head=full, n=1, memory=256, command="true")))
    waits = start("run", str(path), "--backend", "yarn")
    try:
        queue = "root.small" if fair else "small"
        line = waits.until_line("waiting: ")
        assert f"the queue '{queue}' is full" in line
    finally:
        waits.signal(signal.SIGINT)
        waits.end()
        howdah("stop", "--now", list_jobs(base_folder())[0].job_id)


def test_containers_that_a_full_queue_does_not_give_are_explained(yarn: Yarn, fair: bool) -> None:
    head = 'queue = "small"' if fair else 'name = "to-small"'
    first = yarn.submit(GANG.format(head=head, n=1, memory=512, command="sleep 600"))
    first.running()
    second = yarn.submit(GANG.format(head=head, n=1, memory=512, command="true"))
    queue = "root.small" if fair else "small"
    why = f"the queue '{queue}' is full"
    second.until(lambda view: why in view.pending_reason, "it says why it waits")
    first.handle.stop(firm=True)
    assert second.wait().outcome == "succeeded"


def test_doctor_names_the_queues_and_finds_no_fault_with_them(yarn: Yarn, fair: bool) -> None:
    lines = [line for line in howdah("doctor", "--backend", "yarn").out if "queues" in line]
    assert len(lines) == 1, lines
    assert ("root.pair.a" if fair else " a") in lines[0]
