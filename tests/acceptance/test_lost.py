"""A job whose coordinator and node daemon are both killed: said in words, and brought back."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil
import pytest

from howdah.storage.jobdir import JobDirectory
from tests.acceptance.jobs import Job
from tests.cli.howdah import (
    agents_paused,
    ended_at_last,
    gone,
    job_file,
    lose,
    newest,
    start,
    until,
)
from tests.cli.inside import howdah

PROGRAM = """
import time
print("begun", flush=True)
for step in range(1200):
    time.sleep(0.05)
    if __import__("os").path.exists({end!r}):
        break
print("done", flush=True)
"""


@pytest.mark.timeout(180)
@pytest.mark.parametrize("with_checkpoint", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_job_that_nobody_runs_says_so_and_can_be_brought_back(
    with_checkpoint: bool, tmp_path: Path
) -> None:
    end = tmp_path / "end"
    more = {"checkpoint": {}} if with_checkpoint else {}
    file = job_file(tmp_path, PROGRAM.format(end=str(end)), roles={"worker": {}}, **more)
    with ended_at_last():
        job = Job(start("run", str(file)))
        job.until_printed("begun")
        with agents_paused(job.directory):
            lose(job.directory)
            assert job.run.end() == 3
        name = job.directory.job_id
        rerun = f"howdah rerun {name}{' --resume' if with_checkpoint else ''}."
        anew = f"to begin anew once they have ended: {rerun}"
        assert f"howdah attach --revive {name}; {anew}" in job.run.told
        assert f"left {name} behind" not in job.run.told

        shown = howdah("status", name).text
        assert f"{name} lost" in shown
        assert f"howdah attach --revive {name}" in shown
        assert "http://" not in shown, "nobody serves the page"

        again = start("attach", "--revive", "--tail", "all", name)
        again.until_line("took over")
        end.touch()
        assert again.end() == 0
        assert "worker:0 | done" in "\n".join(again.out).replace("worker:0#2", "worker:0")
        assert gone(JobDirectory(job.directory.path)).outcome == "succeeded"
        assert howdah("attach", "--revive", name), "one that has ended stays as it is"


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_a_lost_job_is_neither_removed_nor_run_again_while_its_programs_run(tmp_path: Path) -> None:
    file = job_file(tmp_path, PROGRAM.format(end=str(tmp_path / "end")), roles={"worker": {}})
    howdah("submit", str(file))
    directory = newest()
    name = directory.job_id
    until(lambda: "begun" in howdah("logs", name).text, "it runs")
    still = "its programs still run, and end by themselves within 20 s"

    def states() -> list[str]:
        (view,) = howdah("status", name, "--json").documents()
        return [task["state"] for task in view["tasks"]]

    with agents_paused(directory):
        lose(directory)
        for command in ("rm", "rerun", "stop"):
            refused = howdah(command, name, code=3).told
            assert still in refused and f"howdah attach --revive {name}" in refused, refused
        assert states() == ["running"]
        shown = howdah("status", name).text
        assert still in shown and "did the machine restart?" not in shown
    until(lambda: states() == ["ended"], "the end of its programs", 60)
    assert still not in howdah("status", name).text
    (tmp_path / "end").touch()
    again = howdah("attach", "--revive", name).told
    assert "nobody saw how: not heard by a coordinator for 20 s, its lease" in again, again
    assert howdah("rm", name).text.startswith(f"{name} removed")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("made_anew", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_job_whose_directory_was_removed_ends(made_anew: bool, tmp_path: Path) -> None:
    file = job_file(tmp_path, PROGRAM.format(end="/nowhere"), roles={"worker": {"instances": 2}})
    job = Job(start("run", str(file)))
    for worker in (0, 1):  # or one had not yet read its program, and the gang would start anew
        job.until_printed(f"worker:{worker} .*begun")
    name = job.directory.job_id
    assert len(_of(name)) >= 6, "node daemon, coordinator, agents, programs"

    def removed() -> bool:
        shutil.rmtree(job.directory.path, ignore_errors=True)  # others write there meanwhile
        return not job.directory.path.exists()

    until(removed, "the removal of the directory")
    if made_anew:  # by whatever was being written meanwhile
        (job.directory.path / "containers").mkdir(parents=True, exist_ok=True)
    until(lambda: not _of(name), "the end of everything of the job", 30)
    assert job.run.end() == 2
    assert f"{name} has no meta.json" in job.run.told
    assert f"left {name} behind" not in job.run.told
    assert "Traceback" not in job.run.told


def _of(job_id: str) -> list[int]:
    """Processes whose environment, open files or parents are the job's."""
    found: list[int] = []
    for process in psutil.process_iter():
        try:
            marked = process.environ().get("HOWDAH_JOB_ID") == job_id
            files = any(job_id in file.path for file in process.open_files())
            if (marked or files) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found
