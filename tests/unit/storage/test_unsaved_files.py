"""What is in no checkpoint because another task's folder is saved, seen while the programs run."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoint_upload import CheckpointUploader
from howdah.storage.checkpoints import CheckpointSpec, publish
from howdah.storage.unsaved_files import AGE_S, UnsavedFiles
from tests.unit.storage.saving import change, fill


@pytest.fixture
def other(spec: CheckpointSpec, tmp_path: Path) -> CheckpointSpec:
    """The second task, of two that share a place; the first one has saved."""
    fill(Path(spec.folder), model="1", __0_0="1")
    assert publish(change(spec, rank=0)) is not None
    folder = tmp_path / "other"
    folder.mkdir()
    return change(spec, folder=str(folder), rank=1, task=Task("worker", 1))


def look(spec: CheckpointSpec, **ages_s: float) -> str:
    fill(Path(spec.folder), **dict.fromkeys(ages_s, "1"))
    for name, age_s in ages_s.items():
        old = time.time() - age_s
        os.utime(Path(spec.folder, name), (old, old))
    return UnsavedFiles(spec, 1.0).look(spec.look())


def test_a_file_much_older_than_a_version_without_it_is_told(other: CheckpointSpec) -> None:
    told = look(other, __1_0=AGE_S + 5, model=AGE_S + 5)
    assert told.startswith("one of its files is in no checkpoint, __1_0: ")
    assert "HOWDAH_SHARED_DIR" in told


def test_a_young_file_may_still_be_saved(other: CheckpointSpec) -> None:
    assert look(other, __1_0=0.0) == ""


def test_what_was_restored_is_not_the_programs(other: CheckpointSpec) -> None:
    fill(Path(other.folder), old="1")
    time_ns = time.time_ns() + 10_000_000_000
    assert look(change(other, began_ns=time_ns), old=AGE_S + 5) == ""


def test_it_looks_now_and_then_only(other: CheckpointSpec) -> None:
    fill(Path(other.folder), __1_0="1")
    old = time.time() - AGE_S - 5
    os.utime(Path(other.folder, "__1_0"), (old, old))
    left_out = UnsavedFiles(other, 1.0)
    assert left_out.look(other.look()) != ""
    assert left_out.look(other.look()) == ""


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
