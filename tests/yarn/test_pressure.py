"""What a job does when it is in others' way, when it stands still, and when there is no room for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.cli.howdah import start
from tests.hadoop.cluster import Cluster
from tests.yarn.runner import SMALL, Yarn, until

pytestmark = [pytest.mark.timeout(400), pytest.mark.nightly]

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
    # `pair` has 40 % of the cluster, its halves may take each other's: see tests.hadoop.queues.
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
