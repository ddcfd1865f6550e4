"""What a job may be called: its id, its name, the beginning of its id, the newest one."""

from __future__ import annotations

from pathlib import Path

import howdah as api
from tests.cli.howdah import gone, job_file, newest, until
from tests.cli.inside import howdah

WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
"""


def test_a_name_means_the_job_that_runs_and_otherwise_the_newest(tmp_path: Path) -> None:
    over = job_file(tmp_path / "a", "print('over')", name="Slow.Train")
    howdah("run", str(over))
    howdah("run", str(over))
    second = newest().job_id
    assert second in howdah("status", "Slow.Train").text
    assert second in howdah("status", "slow-train").text
    for beginning in ("slow", "Slow.T"):
        refused = howdah("status", beginning, code=2).told
        assert f"'{beginning}' is the name or the beginning of 2 job ids (" in refused
        assert second in refused
    assert second in howdah("logs", "slwo-train", code=2).told.partition("did you mean ")[2]
    howdah("submit", str(job_file(tmp_path / "b", WAITS, name="slow-train")))
    running = newest()
    howdah("run", str(over))
    assert newest().job_id != running.job_id
    assert howdah("stop", "slow").text == f"{running.job_id} stopped"
    gone(running)
    assert api.connect("@last").job_id == newest().job_id


def test_a_whole_name_means_no_job_whose_name_only_begins_so(tmp_path: Path) -> None:
    howdah("run", str(job_file(tmp_path / "a", "print('over')", name="digits")))
    over = newest().job_id
    howdah("submit", str(job_file(tmp_path / "b", WAITS, name="digits-tensorflow")))
    other = newest()
    assert over in howdah("status", "digits").text
    assert f"{over} had ended already" in howdah("stop", "digits").text
    assert howdah("stop", "digits-t").text == f"{other.job_id} stopped"
    gone(other)


def test_the_newest_job_is_followed_without_an_id(tmp_path: Path) -> None:
    howdah("submit", str(job_file(tmp_path, WAITS)))
    until(lambda: "begun" in howdah("logs", "@last").text, "it prints")
    (newest().shared / "go").touch()
    assert f"{newest().job_id} succeeded" in howdah("attach").text
    gone(newest())
    assert "has no jobs yet" in howdah("attach", "@last", "--store", str(tmp_path), code=2).told


def test_two_jobs_that_run_are_not_told_apart_by_their_name(tmp_path: Path) -> None:
    file = str(job_file(tmp_path, WAITS, name="twin"))
    howdah("submit", file)
    howdah("submit", file)
    refused = howdah("stop", "twin", code=2).told
    assert "'twin' is the name or the beginning of 2 running job ids" in refused
