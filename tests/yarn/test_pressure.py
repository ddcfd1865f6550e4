"""What a job does when it is in others' way, when it stands still, and when there is no room for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from howdah.backends.base import BackendError
from tests.cli.howdah import start
from tests.hadoop.cluster import Cluster
from tests.yarn.runner import SMALL, Yarn, until
from tests.yarn.test_client import on_hdfs
from tests.yarn.test_faults import steps, stop

pytestmark = pytest.mark.timeout(400)

SOON_S = 120.0
ASKED = """
import os, time
from howdah import task
from pathlib import Path
me = task.context()
while not os.path.exists(os.environ["STOP_FILE"]):
    if task.checkpoint_requested():
        Path(os.environ["FOLDER"], f"asked-{me.index}-{me.generation}").touch()
    time.sleep(0.05)
"""


def test_a_job_over_its_share_is_asked_for_a_checkpoint_before_a_container_is_taken(
    yarn: Yarn,
) -> None:
    # `pair` has 40 % of two nodes of 6 GiB, its halves may take each other's: see tests.hadoop.queues.
    text = """
command = "python3 asked.py"
queue = "{queue}"
env = {{ STOP_FILE = "{folder}/stop-{queue}", FOLDER = "{folder}" }}
[roles.worker]
instances = {instances}
memory = "1g"
"""

    def submit(queue: str, instances: int):
        full = text.format(queue=queue, folder=yarn.folder, instances=instances)
        return yarn.submit(full, files={"asked.py": ASKED})

    job = submit("a", 4)
    job.running()
    other = submit("b", 1)
    other.running(SOON_S)
    taken = until(lambda: [f for f in job.view().failures if f.cause == "preempted"], "it is told")
    assert list(yarn.folder.glob("asked-*-1"))
    assert not any(failure.counted for failure in taken)
    story = job.handle.events(follow=False)
    noticed = [each.time for each in story if each.kind == "preemption-noticed"]
    assert min(noticed) < min(failure.time for failure in taken)
    (yarn.folder / "stop-b").touch()
    assert other.wait(SOON_S).outcome == "succeeded"
    job.running(SOON_S)
    (yarn.folder / "stop-a").touch()
    final = job.wait(SOON_S)
    assert final.outcome == "succeeded", final.reason
    assert {failure.cause for failure in final.failures} == {"preempted"}


def test_programs_that_stand_still_are_a_hang_and_are_started_again(yarn: Yarn) -> None:
    job = steps(yarn, '[timeouts]\nhang = "12s"\nstop-grace = "1s"')
    tasks = job.running()
    # One rank's progress is everybody's: a gang hangs when nobody goes on.
    for task in tasks:
        os.kill(task.pids[0], signal.SIGSTOP)
    view = job.until(
        lambda v: v if v.generation == 2 and all(t.state == "running" for t in v.tasks) else None,
        "the gang runs again",
        SOON_S,
    )
    assert [(f.cause, f.counted) for f in view.failures] == [("hang", True)]
    stop(yarn)
    assert job.wait(SOON_S).outcome == "succeeded"


def test_an_environment_that_is_no_archive_is_said_to_be_none(yarn: Yarn) -> None:
    before = on_hdfs(yarn)
    text = 'command = "true"\n[roles.worker]\nmemory = "256m"\n'
    (yarn.folder / "broken.tar.gz").write_bytes(b"\x1f\x8b\x08\x00" + os.urandom(4096))
    with pytest.raises(BackendError, match=r"broken\.tar\.gz"):
        yarn.submit(f'{text}[environment]\narchive = "{yarn.folder}/broken.tar.gz"\n')
    assert on_hdfs(yarn) == before


@pytest.fixture
def narrow(hadoop: Cluster) -> Iterator[str]:
    """A folder of HDFS that can be made full."""
    place = f"/tmp/narrow-{os.getpid()}-{time.monotonic_ns()}"
    hadoop.hdfs(place, "MKDIRS", permission="1777")
    yield place
    hadoop.set_quota(place, None)
    hadoop.hdfs(place, "DELETE", "DELETE", recursive="true")


def test_a_store_without_room_is_refused_and_nothing_begins(yarn: Yarn, narrow: str) -> None:
    yarn.cluster.set_quota(narrow, 1024)
    path = yarn.folder / "job.toml"
    path.write_text(
        f'name = "roomless"\ncommand = "true"\nstore = "{yarn.cluster.default_fs}{narrow}"\n'
        '[roles.worker]\nmemory = "256m"\n' + SMALL
    )
    run = start("submit", str(path), "--backend", "yarn")
    assert run.end(SOON_S) == 3
    assert "quota" in run.told.lower()
    told = yarn.cluster.hdfs(narrow, "GETCONTENTSUMMARY", "GET")["ContentSummary"]
    assert told["fileCount"] == 0
    left = yarn.cluster.applications("RUNNING", "ACCEPTED")
    assert "roomless" not in {each["name"] for each in left}


def test_a_store_that_fills_up_stops_no_program_and_loses_nothing(yarn: Yarn, narrow: str) -> None:
    job = steps(yarn, f'store = "{yarn.cluster.default_fs}{narrow}"', instances=1)
    job.running()
    yarn.cluster.set_quota(narrow, 1024)
    stop(yarn)
    job.until(lambda v: v.tasks[0].state == "succeeded" or None, "the program ends")
    assert job.application()["state"] == "RUNNING"
    yarn.cluster.set_quota(narrow, None)
    final = job.wait(SOON_S)
    assert final.outcome == "succeeded", final.reason
    assert job.read("final.json")
