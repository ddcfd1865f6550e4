"""Job directories that the last release wrote. The one in ``data`` is of a job it really ran."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from howdah.client.following import offline_job
from howdah.core.messages import CheckpointSaved
from howdah.storage import journal
from howdah.storage.jobdir import JobDirectory

JOB_ID = "digits-20261122-163903-uw4d"
DATA = Path(__file__).with_name("data") / "last-release"


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    """A copy of the job's directory that may be changed."""
    copy = tmp_path / JOB_ID
    shutil.copytree(DATA, copy)
    return JobDirectory(copy)


def test_every_entry_of_its_journal_is_read():
    entries = list(journal.read(DATA))
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) == len((DATA / "events-0001.jsonl").read_text().splitlines())


def test_its_checkpoints_are_facts_of_this_release():
    events = [e.event for e in journal.read(DATA) if isinstance(e, journal.EventEntry)]
    saved = [event for event in events if isinstance(event, CheckpointSaved)]
    assert [event.name for event in saved] == ["000001", "000002", "000003", "000004"]


def test_what_its_records_say_has_the_names_of_this_release():
    records = [e.record for e in journal.read(DATA) if isinstance(e, journal.RecordEntry)]
    ended = [r.data for r in records if r.kind in ("generation-ended", "task-restarting")]
    assert ended == [
        {"cause": "user-code", "counted": True},
        {"cause": "user-code", "task": "worker:1", "counted": True, "secondary": 0},
    ]


def test_how_its_job_ended_is_known_with_causes_and_what_counted(directory: JobDirectory):
    view = directory.final()
    assert view is not None
    assert view.outcome == "succeeded"
    assert [(f.task, f.cause, f.counted) for f in view.failures] == [
        ("watcher:0", "user-code", True),
        ("worker:1", "user-code", True),
    ]
    assert {task.task: task.counted for task in view.tasks} == {
        "worker:0": 0,
        "worker:1": 0,
        "watcher:0": 1,
    }


def test_a_job_it_left_unfinished_is_told_from_its_journal(directory: JobDirectory):
    file = directory.path / "events-0001.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    last = next(n for n, line in enumerate(lines) if '"what":"000003"' in line)
    file.write_text("".join(lines[: last + 1]))
    (directory.path / "final.json").unlink()
    view = offline_job.view(directory)
    assert view.outcome is None
    assert view.checkpoint == "000003"
    assert [failure.cause for failure in view.failures] == ["user-code", "user-code"]
