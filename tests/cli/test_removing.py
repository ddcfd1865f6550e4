"""Jobs that have ended are removed, one by one or by their age; never one that runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from howdah.storage.jobdir import JobDirectory
from tests import leaks
from tests.cli.finished import Finished
from tests.cli.howdah import gone, job_file, lose, newest, start, until
from tests.cli.inside import howdah

WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
"""


def listed() -> list[str]:
    return [view["job_id"] for view in json.loads(howdah("list", "--json").text)]


def running(folder: Path, name: str) -> JobDirectory:
    """A job that runs."""
    howdah("submit", str(job_file(folder, WAITS, name=name)))
    job = newest()
    until(lambda: "begun" in howdah("logs", job.job_id).text, "it runs")
    return job


def end(job: JobDirectory) -> None:
    (job.shared / "go").touch()
    gone(job)


def test_a_job_that_has_ended_is_removed_and_one_that_runs_is_not(
    finished: Finished, tmp_path: Path
) -> None:
    first = finished.copy("first-20261121-143502-k3f9")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (first.shared / "link").symlink_to(outside)
    (first.shared / "big").write_bytes(bytes(2_000_000))
    second = running(tmp_path, "second")
    run = howdah("rm", "first", "second", "third", code=3)
    assert run.out[0].startswith(f"{first.job_id} removed, 2.")
    assert f"{second.job_id} has not ended: it is not removed" in run.told
    assert "There is no job 'third'" in run.told
    assert run.out[-1].startswith("1 job removed, 2 not removed, 2.")
    assert not first.path.exists() and (outside / "kept").exists()
    assert listed() == [second.job_id]
    end(second)
    removed = json.loads(howdah("rm", second.job_id[:-2], "--json").text)
    assert [each["job_id"] for each in removed["removed"]] == [second.job_id]
    assert removed["failed"] == [] and listed() == []


def test_checkpoints_in_a_store_of_the_jobs_own_stay(tmp_path: Path) -> None:
    store = tmp_path / "store"
    table = {"folder": "saved", "store": str(store)}
    howdah("run", str(job_file(tmp_path, "", checkpoint=table)))
    job_id = newest().job_id
    told = howdah("rm", job_id).text
    assert f"freed; its checkpoints in {store}/{job_id} stay" in told


def test_a_job_that_another_begins_from_stays_until_that_has_ended(
    finished: Finished, tmp_path: Path
) -> None:
    first = finished.copy("digits-20261121-143502-k3f9")
    job_file(tmp_path, WAITS)
    howdah(
        *("rerun", first.job_id, "--detach", "--set", "checkpoint.folder=saved"),
        *("--set", "command=sleep 600", "--set", f"source={tmp_path}/job"),
    )
    again = newest()
    for command in (("rm", first.job_id), ("prune", "--older-than", "0s", "--yes")):
        refused = howdah(*command, code=3).told
        assert f"{again.job_id} runs this job again and may read its checkpoints" in refused
    # For its size it is passed over, and nothing else may go.
    assert howdah("prune", "--keep-size", "0k", "--yes").out == ["0 jobs removed, 0 bytes freed"]
    assert listed() == [again.job_id, first.job_id]
    howdah("stop", "--now", again.job_id)
    gone(again)
    assert howdah("rm", first.job_id).text.startswith(f"{first.job_id} removed")


def would_remove(*options: str) -> list[dict[str, Any]]:
    return json.loads(howdah("prune", "--json", *options).text)["would_remove"]


def would_go(*options: str) -> list[str]:
    return [each["job_id"] for each in would_remove(*options)]


def test_old_jobs_are_listed_first_and_removed_when_that_is_asked_for(finished: Finished) -> None:
    made = [
        finished.copy(
            f"{name}-20261121-14350{number}-k3f9", failed=name == "c", later_s=number - 60
        )
        for number, name in enumerate(("a", "a", "b", "a", "c"))
    ]
    first, second, third, fourth, fifth = (each.job_id for each in made)
    assert howdah("prune").text.startswith("There is nothing to remove in")  # none is 30 days old
    assert would_go("--older-than", "24h") == []
    assert would_go("--older-than", "0s") == [fifth, fourth, third, second, first]
    assert would_go("--keep", "1") == [second, first]
    assert would_go("--older-than", "0s", "--state", "failed") == [fifth]
    assert would_go("--older-than", "0s", "--name", "b") == [third]
    # Files with two names are freed with the second, which may be another job's.
    base = made[0].path
    (base / "one").write_bytes(bytes(300_000))
    os.link(base / "one", base / "two")
    (made[1].path / "one").write_bytes(bytes(500_000))
    os.link(made[1].path / "one", base / "three")
    would = would_remove("--keep", "1")
    assert would[1]["bytes"] - would[0]["bytes"] > 250_000
    told = howdah("prune", "--keep", "2")
    size = told.out[-1].removeprefix("1 job would be removed, ").partition(" freed")[0]
    assert first in told.text and "1 job would be removed" in told.out[-1]
    assert first in listed()
    done = howdah("prune", "--keep", "2", "--yes")
    assert done.out[0].startswith(f"{first} removed, ")
    assert done.out[-1] == f"1 job removed, {size} freed"
    assert listed() == [fifth, fourth, third, second]
    assert "'long' is not a time" in howdah("prune", "--older-than", "long", code=2).told


def test_the_oldest_are_removed_until_the_others_have_room(
    finished: Finished, tmp_path: Path
) -> None:
    waits = running(tmp_path, "waits")
    made = [finished.copy(f"job-{n}-20261121-14350{n}-k3f9", later_s=n - 60) for n in range(3)]
    for number, job in enumerate((*made, waits)):
        (job.shared / "big").write_bytes(bytes((number + 1) * 1_000_000))
    first, second, third = (each.job_id for each in made)
    # The running job's 4 MB count, and it stays.
    assert would_go("--keep-size", "12m") == []
    assert would_go("--keep-size", "9.5m") == [first]
    assert would_go("--keep-size", "8.5m") == [second, first]
    assert would_go("--keep-size", "1k") == [third, second, first]
    assert would_go("--keep-size", "1k", "--older-than", "24h") == []
    assert would_go("--keep-size", "1k", "--name", "job-[12]") == [third, second]
    assert would_go("--keep-size", "4m", "--name", "job-[12]") == [second]
    done = howdah("prune", "--keep-size", "8.5MB", "--yes")
    assert [line.partition(" ")[0] for line in done.out] == [second, first, "2"]
    assert listed() == [waits.job_id, third]
    end(waits)


def test_what_cannot_be_removed_is_said_and_the_job_stays_listed(
    finished: Finished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that has become read-only below one folder."""
    job = finished.copy("digits-20261121-143502-k3f9")
    (job.shared / "stuck").write_bytes(bytes(5000))
    unlink = os.unlink

    def fails(path: str, *, dir_fd: int | None = None) -> None:
        if path == "stuck":
            raise OSError(30, "Read-only file system", path)
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails)
        told = howdah("rm", job.job_id, code=3).told
    assert f"stuck of {job.path} is left: Read-only file system" in told
    assert listed() == [job.job_id]


def test_what_a_killed_job_left_in_the_folder_for_sockets_goes_with_it(tmp_path: Path) -> None:
    folder = Path(os.environ["HOWDAH_RUNTIME_DIR"])
    before = set(leaks.sockets(folder))
    directory = running(tmp_path, "killed")
    (agent,) = directory.containers.glob("*/agent.json")
    lose(directory)
    assert set(leaks.sockets(folder)) - before
    # Its agent would wait for a coordinator for its lease.
    os.kill(json.loads(agent.read_bytes())["pid"], 9)
    until(
        lambda: start("rm", directory.job_id).end() == 0,
        "its removal, once its programs have ended",
    )
    assert set(leaks.sockets(folder)) <= before
