"""What of a job lives through faults of the cluster: daemons that restart, nodes that are gone.

All tests share one cluster of the module's own, which is whole again after each of them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from howdah.backends.yarn.client.site import YarnSite
from howdah.storage import journal
from howdah.storage.copies import replica
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import base_folder, list_jobs
from tests.cli.howdah import start
from tests.hadoop.cluster import Cluster
from tests.hadoop.leftovers import processes
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, YarnJob, make_whole, until
from tests.yarn.test_client import LONG, SMALL

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.nightly,
]

SOON_S = 120.0
"""A node is given up after twenty seconds, a master after fifteen; the rest is for a busy machine."""


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(node_managers=3, node_memory_mib=6144, node_expiry_ms=20_000)


@pytest.fixture
def yarn(yarn: Yarn) -> Iterator[Yarn]:
    yield yarn
    make_whole(yarn.cluster)


class Follower:
    """A client that waits for the job and prints the log of one task meanwhile."""

    def __init__(self, job: YarnJob, task: str) -> None:
        self._job = job
        self._task = task
        self.lines: list[str] = []
        self.outcome: str | None = None
        self._threads = [threading.Thread(target=work) for work in (self._follow, self._wait)]
        for thread in self._threads:
            thread.start()

    def _follow(self) -> None:
        for line in self._job.handle.logs(self._task):
            self.lines.append(line.text)

    def _wait(self) -> None:
        self.outcome = self._job.handle.wait(300.0).outcome

    def goes_on(self) -> None:
        """Wait for lines that were printed from now on."""
        seen = len(self.lines)
        until(lambda: len(self.lines) > seen + 10, "the client's log goes on", SOON_S)

    def end(self) -> None:
        """The job's end has reached it, and every line was told once and in order."""
        for thread in self._threads:
            thread.join(SOON_S)
        assert not any(thread.is_alive() for thread in self._threads)
        assert self.outcome == "succeeded"
        told = [int(line.split()[1]) for line in self.lines if line.startswith("step")]
        assert told == list(range(1, len(told) + 1))


def entries(job: YarnJob) -> list[journal.Entry]:
    """The journal as it is on HDFS."""
    hdfs = Hdfs(job.url, conf_dir=str(job.cluster.conf_dir))
    replica.bring_journal(job.url, job.directory.path, hdfs=hdfs)
    return list(journal.read(job.directory.path))


def page_port(job: YarnJob) -> int:
    """Port of the job's page, as the ResourceManager knows it."""
    address = YarnSite(job.directory).coordinator()
    return address.http_port if address is not None else 0


def end_well(yarn: Yarn, job: YarnJob) -> None:
    """Let it end: nothing was restarted, nothing charged, and its story is whole on HDFS."""
    yarn.stop(job)
    final = job.wait(SOON_S)
    assert (final.outcome, final.restarts) == ("succeeded", 0), final.reason
    assert all(task.attempt == 1 for task in final.tasks)
    whole_story(job)


def whole_story(job: YarnJob) -> None:
    numbers = [entry.seq for entry in entries(job)]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert job.read("final.json")
    job.until_application("FINISHED")


def on_node(job: YarnJob, host: str) -> list[psutil.Process]:
    """Processes of a job's containers on a node, its master's too."""
    found = []
    application = job.application_id.removeprefix("application_")
    for process in processes(job.cluster):
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            if env.get("NM_HOST") == host and application in env.get("CONTAINER_ID", ""):
                found.append(process)
    return found


def node_of(process: psutil.Process) -> str:
    return process.environ()["NM_HOST"]


def take_away(job: YarnJob, host: str) -> None:
    """The node is gone with all that ran there, as when its power fails."""
    cluster = job.cluster
    numbers = range(1, cluster.site.options.node_managers + 1)
    number = next(n for n in numbers if cluster.site.node_host(n) == host)
    cluster.kill(f"nodemanager{number}")
    while left := on_node(job, host):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, 5)


def test_a_job_whose_masters_node_is_lost_goes_on_under_another_master(yarn: Yarn) -> None:
    # It takes a whole node, so the master is on another one.
    job = yarn.steps(instances=1, memory="6g")
    job.running()
    before = job.births()
    host = node_of(job.master())
    assert host != job.task("worker:0").node
    follower = Follower(job, "worker:0")
    gone = time.time()
    take_away(job, host)
    view = job.until(lambda v: v if v.incarnation == 2 else None, "a new coordinator", SOON_S)
    taken_over = time.time()
    assert node_of(job.master()) != host
    job.running()
    assert job.births() == before
    assert view.restarts == 0
    follower.goes_on()
    times = [float(line.split()[-1]) for line in follower.lines if line.startswith("step")]
    # A master is given up after fifteen seconds: what is more than a hundred steps' work.
    assert sum(gone < at < taken_over for at in times) > 20
    end_well(yarn, job)
    follower.end()


def test_a_restart_of_the_resource_manager_is_not_noticed(yarn: Yarn) -> None:
    """Master, programs, page and client are as they were; and a master that dies afterwards is replaced."""
    job = yarn.steps()
    job.running()
    before, master = job.births(), job.master().pid
    port = until(lambda: page_port(job), "the page is there")
    follower = Follower(job, "worker:1")
    job.cluster.restart("resourcemanager")
    job.cluster.wait_ready()
    job.until_application("RUNNING", SOON_S)
    until(lambda: page_port(job) == port, "the ResourceManager knows the page again", SOON_S)
    follower.goes_on()
    assert job.births() == before
    assert job.master().pid == master
    # The containers it has recovered have no token any more: it is the nodes that tell it of them.
    job.kill_master()
    job.until(lambda v: v.incarnation == 2, "a new coordinator", SOON_S)
    job.running()
    assert job.births() == before
    end_well(yarn, job)
    follower.end()


def test_a_restart_of_node_managers_under_running_containers_is_not_noticed(yarn: Yarn) -> None:
    job = yarn.steps()
    job.running()
    before, master = job.births(), job.master().pid
    for number in range(1, 4):
        job.cluster.restart(f"nodemanager{number}")
        job.cluster.wait_ready()
    until(lambda: len(job.containers()) == 3, "the nodes know the containers again", SOON_S)
    assert job.births() == before
    assert job.master().pid == master
    end_well(yarn, job)


def test_a_lost_node_costs_nothing_but_time(yarn: Yarn) -> None:
    job = yarn.steps(instances=2, memory="4g")
    tasks = job.running()
    masters = node_of(job.master())
    lost = next(task for task in tasks if task.node != masters)
    assert lost.node is not None
    stays = next(task for task in tasks if task is not lost)
    take_away(job, lost.node)
    view = job.until(
        lambda v: v if v.generation == 2 and all(t.state == "running" for t in v.tasks) else None,
        "the gang runs again",
        SOON_S,
    )
    again = next(task for task in view.tasks if task.task == lost.task)
    assert again.node != lost.node
    assert next(task for task in view.tasks if task.task == stays.task).container == stays.container
    yarn.stop(job)
    final = job.wait(SOON_S)
    assert final.outcome == "succeeded", final.reason
    assert [f.cause for f in final.failures] == ["node-lost"]
    assert not any(f.counted for f in final.failures)
    whole_story(job)


def test_a_restart_of_the_namenode_loses_nothing(yarn: Yarn) -> None:
    job = yarn.steps()
    job.running()
    before = job.births()
    job.cluster.kill("namenode")
    # Meanwhile there is something to write down.
    os.kill(job.task("worker:1").pids[0], signal.SIGKILL)
    job.cluster.start("namenode")
    job.cluster.wait_ready()
    job.until(
        lambda v: (v.generation == 2 and all(t.state == "running" for t in v.tasks)) or None,
        "the gang runs again",
        SOON_S,
    )
    assert not set(job.births().items()) >= set(before.items())
    job.goes_on("worker:0")
    yarn.stop(job)
    final = job.wait(SOON_S)
    assert final.outcome == "succeeded", final.reason
    assert [(f.cause, f.task) for f in final.failures] == [("signal", "worker:1")]
    whole_story(job)
    for attempt in (1, 2):
        log = job.read(f"logs/worker-0/{attempt}.log").decode()
        told = [int(line.split()[1]) for line in log.splitlines() if line.startswith("step")]
        assert told == list(range(1, len(told) + 1))


def test_a_client_leaves_a_job_behind_when_nothing_of_the_cluster_answers(yarn: Yarn) -> None:
    path = yarn.folder / "job.toml"
    path.write_text(LONG + SMALL)
    run = start("run", str(path), "--backend", "yarn")
    run.until_line("worker:0 | begun")
    names = [daemon.name for daemon in yarn.cluster.site.daemons]
    for name in names:
        yarn.cluster.pause(name)
    try:
        for told in ("stopping the job cleanly", "ending the job at once", "howdah attach"):
            run.signal(signal.SIGINT)
            run.until_line(told)
        assert run.end(within_s=20) == 130
        assert "Traceback" not in run.told
    finally:
        for name in names:
            yarn.cluster.resume(name)
    yarn.cluster.wait_ready()
    (directory,) = list_jobs(base_folder())
    assert start("stop", "--now", directory.job_id).end(within_s=SOON_S) in (0, 130)
    final = until(directory.final, "the end of the job", SOON_S)
    assert final.outcome == "stopped"
