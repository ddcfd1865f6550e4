"""The status document as versioned changes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from howdah.coordinator.web.stream import HISTORY, StatusChanges
from tests.unit.web.fake_job import FakeJob


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Reader:
    """Lays patches over what it has, as the page does."""

    def __init__(self, board: StatusChanges) -> None:
        self._board = board
        self.version = ""
        self.job: dict[str, Any] = {}
        self.tasks: dict[str, dict[str, Any]] = {}

    def read(self) -> Any:
        patch = self._board.patch(self.version)
        if patch is None:
            return None
        if patch.full:
            self.job, self.tasks = {}, {}
        self.version = patch.version
        self.job.update(patch.job)
        for name in patch.removed:
            del self.tasks[name]
        for fields in patch.tasks:
            self.tasks.setdefault(fields["task"], {}).update(fields)
        return patch


@pytest.fixture
def job() -> FakeJob:
    return FakeJob({"worker": 3}, submitted=900.0)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def board(job: FakeJob, clock: Clock) -> StatusChanges:
    return StatusChanges(job, clock, Ticks())


class Ticks:
    """Every refresh is long after the one before, and takes no time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return 100.0 * ((self.calls + 1) // 2)


def test_a_new_reader_gets_everything_and_then_only_changes(
    board: StatusChanges, job: FakeJob
) -> None:
    board.refresh()
    reader = Reader(board)
    first = reader.read()
    assert first.full
    assert len(first.tasks) == 3
    assert reader.read() is None
    job.task("worker:1", state="running", attempt=1)
    board.refresh()
    second = reader.read()
    assert not second.full
    assert second.job == {}
    assert second.tasks == [{"task": "worker:1", "state": "running", "attempt": 1}]


def test_one_pause_of_the_machine_does_not_stop_the_page_for_a_minute(
    job: FakeJob, clock: Clock
) -> None:
    times = iter([0.0, 3.0, 8.1, 8.1])
    board = StatusChanges(job, clock, lambda: next(times))
    board.refresh()
    version = board.version
    job.task("worker:1", state="running")
    board.refresh()
    assert board.version != version


def test_nothing_changed_makes_no_new_version(board: StatusChanges) -> None:
    board.refresh()
    version = board.version
    board.refresh()
    assert board.version == version


def test_readers_of_different_ages_come_to_the_same(board: StatusChanges, job: FakeJob) -> None:
    board.refresh()
    eager, lazy = Reader(board), Reader(board)
    eager.read(), lazy.read()
    for step in range(20):
        job.task(f"worker:{step % 3}", step=float(step))
        if step % 5 == 0:
            job.change(generation=step)
        board.refresh()
        eager.read()
    patch = lazy.read()
    assert not patch.full
    assert len(patch.tasks) == 3
    newcomer = Reader(board)
    newcomer.read()
    assert eager.tasks == lazy.tasks == newcomer.tasks
    assert eager.job == lazy.job == newcomer.job


def test_a_reader_who_was_away_for_long_gets_everything(board: StatusChanges, job: FakeJob) -> None:
    board.refresh()
    reader = Reader(board)
    reader.read()
    for step in range(HISTORY + 2):
        job.task("worker:0", step=float(step))
        board.refresh()
    assert reader.read().full


def test_versions_of_another_coordinator_are_not_ours(
    board: StatusChanges, job: FakeJob, clock: Clock
) -> None:
    board.refresh()
    successor = StatusChanges(job, clock, Ticks())
    successor.refresh()
    patch = successor.patch(board.version)
    assert patch is not None
    assert patch.full


@pytest.mark.parametrize("since", ["", "x", "-", "-1", "deadbeef-1", "é-٣", "0" * 100])
def test_an_unknown_version_gets_everything(board: StatusChanges, since: str) -> None:
    board.refresh()
    patch = board.patch(since)
    assert patch is not None
    assert patch.full


def test_a_task_that_goes_is_told(board: StatusChanges, job: FakeJob) -> None:
    board.refresh()
    reader = Reader(board)
    reader.read()
    del job.tasks["worker:2"]
    board.refresh()
    assert reader.read().removed == ["worker:2"]
    assert set(reader.tasks) == {"worker:0", "worker:1"}


def test_an_age_that_only_grows_is_no_change(
    board: StatusChanges, job: FakeJob, clock: Clock
) -> None:
    job.task("worker:0", progress_s=5.0)
    board.refresh()
    reader = Reader(board)
    reader.read()
    assert reader.tasks["worker:0"]["progress_at"] == 995.0
    clock.now += 30
    job.task("worker:0", progress_s=35.2)
    board.refresh()
    assert reader.read() is None
    job.task("worker:0", progress_s=0.0)
    board.refresh()
    assert reader.read().tasks == [{"task": "worker:0", "progress_at": 1030.0}]


def test_noise_below_what_a_reader_sees_is_no_change(board: StatusChanges, job: FakeJob) -> None:
    job.task("worker:0", cpu=1.23412, rss_mb=512.01)
    board.refresh()
    reader = Reader(board)
    reader.read()
    job.task("worker:0", cpu=1.23399, rss_mb=512.04)
    board.refresh()
    assert reader.read() is None


def test_the_document_is_made_once_for_all_who_ask_at_once(job: FakeJob, clock: Clock) -> None:
    now = 0.0
    board = StatusChanges(job, clock, lambda: now)
    for _ in range(50):
        board.refresh()
    assert job.views == 1
    now += 1.0
    board.refresh()
    assert job.views == 2


def test_a_beat_of_a_thousand_tasks_is_a_small_change() -> None:
    job = FakeJob({"worker": 1000})
    board = StatusChanges(job, time.time, Ticks())
    board.refresh()
    reader = Reader(board)
    reader.read()
    for name in job.tasks:
        job.task(name, step=7.0)
    board.refresh()
    patch = reader.read()
    assert all(set(fields) == {"task", "step"} for fields in patch.tasks)
