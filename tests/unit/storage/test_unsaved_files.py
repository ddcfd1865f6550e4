"""What is in no checkpoint because another task's folder is saved, seen while the programs run."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoints.unsaved_files import AGE_S, LOOK_S, UnsavedFiles
from howdah.storage.checkpoints.upload import CheckpointUploader, publish
from howdah.storage.checkpoints.versions import CheckpointSpec
from tests.unit.storage.saving import change, fill


@pytest.fixture
def other(spec: CheckpointSpec, tmp_path: Path) -> CheckpointSpec:
    """The second task, of two that share a place; the first one has saved."""
    fill(Path(spec.folder), model="1", __0_0="1")
    assert publish(change(spec, rank=0)) is not None
    folder = tmp_path / "other"
    folder.mkdir()
    return change(spec, folder=str(folder), rank=1, task=Task("worker", 1))


class Looking:
    """The second task looks at its folder, and time passes as the test says."""

    def __init__(self, spec: CheckpointSpec, first: CheckpointSpec) -> None:
        self.spec = spec
        self.first = change(first, rank=0)
        self.now = 1000.0
        self.left_out = UnsavedFiles(spec, 1.0, lambda: self.now)

    def after(self, seconds: float) -> str:
        self.now += seconds
        return self.left_out.look(self.spec.look())

    def save(self, content: str) -> None:
        """The task that is saved saves again."""
        fill(Path(self.first.folder), model=content)
        assert publish(self.first) is not None


def test_a_file_much_older_than_a_version_without_it_is_told(
    other: CheckpointSpec, spec: CheckpointSpec
) -> None:
    fill(Path(other.folder), __1_0="1", model="1")
    looking = Looking(other, spec)
    assert looking.after(0) == "", "nothing is known of the age of what was there before"
    assert looking.after(AGE_S + LOOK_S) == ""
    looking.save("2")
    told = looking.after(LOOK_S)
    assert told.startswith("one of its files is in no checkpoint, __1_0: ")
    assert "HOWDAH_SHARED_DIR" in told


def test_a_young_file_may_still_be_saved(other: CheckpointSpec, spec: CheckpointSpec) -> None:
    looking = Looking(other, spec)
    assert looking.after(0) == ""
    fill(Path(other.folder), __1_0="1")
    assert looking.after(LOOK_S) == ""
    looking.save("2")
    assert looking.after(LOOK_S) == ""
    fill(Path(other.folder), __1_0="2")
    assert looking.after(2 * AGE_S) == "", "it is the version that must be younger"


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_machines_whose_clocks_are_apart_have_files_as_old_as_they_were_seen(
    other: CheckpointSpec, spec: CheckpointSpec, ahead_s: float
) -> None:
    looking = Looking(other, spec)
    assert looking.after(0) == ""
    fill(Path(other.folder), __1_0="1")
    time_there = time.time() + ahead_s
    os.utime(Path(other.folder, "__1_0"), (time_there, time_there))
    looking.save("2")
    assert looking.after(LOOK_S) == "", "its first version may be about to come"
    assert looking.after(AGE_S + LOOK_S) == ""
    looking.save("3")
    assert looking.after(LOOK_S) != ""


def test_what_was_restored_is_not_the_programs(other: CheckpointSpec, spec: CheckpointSpec) -> None:
    fill(Path(other.folder), old="1")
    looking = Looking(change(other, began_ns=time.time_ns() + 10_000_000_000), spec)
    assert looking.after(0) == looking.after(AGE_S + LOOK_S) == ""
    looking.save("2")
    assert looking.after(LOOK_S) == ""


def test_it_looks_now_and_then_only(other: CheckpointSpec, spec: CheckpointSpec) -> None:
    fill(Path(other.folder), __1_0="1")
    looking = Looking(other, spec)
    assert looking.after(0) == looking.after(AGE_S + LOOK_S) == ""
    looking.save("2")
    assert looking.after(LOOK_S / 2) == ""
    assert looking.after(LOOK_S / 2) != ""


def test_at_the_end_the_first_version_of_the_task_that_is_saved_is_waited_for(
    spec: CheckpointSpec, tmp_path: Path
) -> None:
    first = CheckpointUploader(change(spec, rank=0))
    assert first.claim()
    folder = tmp_path / "other"
    folder.mkdir()
    other = change(spec, folder=str(folder), rank=1, task=Task("worker", 1))
    fill(folder, __1_0="1")
    told: list[str] = []
    deadline = time.monotonic() + 30
    waits = threading.Thread(
        target=lambda: told.append(UnsavedFiles(other, 1.0).last(other.look(), deadline))
    )
    waits.start()
    waits.join(0.3)  # Long enough for a look at a store without a version; nothing hangs on it.
    fill(Path(spec.folder), __0_0="1")
    assert first.publish() is not None
    first.is_over()
    waits.join()
    assert told[0].startswith("one of its files is in no checkpoint, __1_0: ")
