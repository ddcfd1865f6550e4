"""Logs written far away, as they are pushed here."""

from __future__ import annotations

from pathlib import Path

from howdah.coordinator.remote_directory import SpillFiles
from howdah.core.messages import Task
from howdah.storage.logs import LogTimes

TASK = Task("worker", 0)


def everything(spill: SpillFiles, offset: int = 0) -> bytes:
    found = b""
    while (part := spill.read(TASK, 1, offset, 4)) is not None and part.data:
        found += part.data
        offset = part.next_offset
    return found


def test_what_is_pushed_is_read_wherever_one_begins(tmp_path: Path) -> None:
    spill = SpillFiles(tmp_path)
    assert spill.read(TASK, 1, 0, 10) is None
    assert spill.size(TASK, 1) == 0
    spill.add(TASK, 1, 0, b"one\n", ((0, 1.0),))
    spill.add(TASK, 1, 4, b"two\n", ((4, 2.0),))
    assert spill.size(TASK, 1) == 8
    assert everything(spill) == b"one\ntwo\n"
    assert everything(spill, 4) == b"two\n"


def test_parts_that_overlap_are_kept_once(tmp_path: Path) -> None:
    spill = SpillFiles(tmp_path)
    spill.add(TASK, 1, 0, b"one\n")
    spill.add(TASK, 1, 0, b"one\ntwo\n")
    spill.add(TASK, 1, 2, b"e\n")
    assert everything(spill) == b"one\ntwo\n"


def test_a_gap_is_told_and_offsets_stay(tmp_path: Path) -> None:
    spill = SpillFiles(tmp_path)
    spill.add(TASK, 1, 0, b"one\n")
    spill.add(TASK, 1, 100, b"far\n")
    spill.add(TASK, 1, 104, b"on\n")
    part = spill.read(TASK, 1, 4, 100)
    assert part is not None
    assert b"96 bytes are missing" in part.data
    assert everything(spill, 100) == b"far\non\n"
    assert spill.size(TASK, 1) == 107


def test_a_log_whose_beginning_never_came_has_the_rest(tmp_path: Path) -> None:
    spill = SpillFiles(tmp_path)
    spill.add(TASK, 1, 50, b"late\n")
    assert everything(spill, 50) == b"late\n"


def test_what_is_pushed_keeps_its_times(tmp_path: Path) -> None:
    spill = SpillFiles(tmp_path)
    spill.add(TASK, 1, 50, b"one\n", ((40, 1000.0), (52, 1001.0)))
    spill.add(TASK, 1, 54, b"two\n", ((52, 1001.0), (55, 1002.5)))
    known = LogTimes(spill.path(TASK, 1))
    assert known.between(50, 58) == ((40, 1000.0), (52, 1001.0), (55, 1002.5))


def test_what_is_dropped_is_gone(tmp_path: Path) -> None:
    spill = SpillFiles(tmp_path)
    spill.add(TASK, 1, 0, b"one\n", ((0, 1000.0),))
    spill.drop(TASK, 1)
    spill.drop(TASK, 1)
    assert spill.read(TASK, 1, 0, 10) is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
