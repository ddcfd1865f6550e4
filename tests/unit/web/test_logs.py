"""Logs as text."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.coordinator.web import logs
from howdah.core.messages import Task
from howdah.storage.logs import LogPart
from howdah.wire.messages import LogUpdate
from tests.unit.web.fake_job import FakeJob

WORKER = Task("worker", 0)


def job_with(data: bytes) -> FakeJob:
    job = FakeJob({"worker": 1})
    job.print("worker:0", data, attempt=1)
    return job


@given(st.text(), st.integers(min_value=1, max_value=7))
def test_text_cut_anywhere_comes_together_again(text: str, size: int) -> None:
    data, found, at = text.encode(), "", 0
    while at < len(data):
        part, used = logs.whole_text(data[at : at + max(size, 4)])
        assert used > 0
        found, at = found + part, at + used
    assert found == text


@given(st.binary(min_size=4, max_size=50))
def test_bytes_that_are_no_text_never_stop_the_reading(data: bytes) -> None:
    _, used = logs.whole_text(data)
    assert len(data) - 3 <= used <= len(data)


def test_a_page_is_followed_by_the_next_one_without_loss() -> None:
    text = "ä€😀 line\n" * 500
    job = job_with(text.encode())

    async def read() -> str:
        found, offset = "", 0
        while True:
            page = await logs.page(job, WORKER, 1, offset, 100)
            if not page.text:
                return found
            found, offset = found + page.text, page.next_offset

    assert asyncio.run(read()) == text


@pytest.mark.parametrize("lines", [1, 2, 3, 100, 5000])
def test_the_last_lines(lines: int) -> None:
    all_lines = [f"line {i} " + "x" * (i % 97) for i in range(4000)]
    job = job_with(("\n".join(all_lines) + "\n").encode())
    page = asyncio.run(logs.tail(job, WORKER, 1, lines))
    assert page.text.splitlines() == all_lines[-lines:]
    assert page.next_offset == len(job.logs["worker:0", 1])
    rest = bytes(job.logs["worker:0", 1][page.offset :]).decode()
    assert rest == page.text


def test_the_last_lines_of_an_unfinished_line() -> None:
    page = asyncio.run(logs.tail(job_with(b"a\nb\nc"), WORKER, 1, 2))
    assert page.text == "b\nc"


def test_the_last_lines_of_an_empty_log() -> None:
    job = job_with(b"")
    job.logs["worker:0", 1] = bytearray()
    page = asyncio.run(logs.tail(job, WORKER, 1, 5))
    assert (page.text, page.offset, page.next_offset) == ("", 0, 0)


def test_the_tail_of_a_log_without_line_ends_is_bounded() -> None:
    page = asyncio.run(logs.tail(job_with(b"x" * 5_000_000), WORKER, 1, 10))
    assert len(page.text) == logs.PAGE_MAX


class Gapped(FakeJob):
    """A log whose middle (bytes 100 to 1000) was dropped."""

    async def read_log(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart:
        whole = b"head line\n" * 10 + b"?" * 900 + b"tail line\n" * 10
        offset = max(0, len(whole) + offset) if offset < 0 else min(offset, len(whole))
        if 100 <= offset < 1000:
            offset = 1000
        end = min(offset + limit, 100 if offset < 100 else len(whole))
        data = whole[offset:end]
        return LogPart(offset, data, 1000 if end == 100 else end)

    def log_attempts(self, task: Task) -> list[int]:
        return [1]


def test_pages_and_tails_step_over_a_dropped_middle() -> None:
    job = Gapped({"worker": 1})
    page = asyncio.run(logs.page(job, WORKER, 1, 0, 5000))
    assert (page.text.count("head"), page.next_offset) == (10, 1000)
    page = asyncio.run(logs.page(job, WORKER, 1, page.next_offset, 5000))
    assert (page.offset, page.text.count("tail"), page.next_offset) == (1000, 10, 1100)
    tail = asyncio.run(logs.tail(job, WORKER, 1, 12))
    assert tail.text == "head line\n" * 2 + "tail line\n" * 10
    assert (tail.offset, tail.next_offset) == (80, 1100)


def test_search_finds_any_case_and_says_where() -> None:
    job = job_with("one\nLoss ä\ntwo\nloss b".encode())
    found = asyncio.run(logs.search(job, WORKER, 1, "LOSS", 0))
    assert [(m.offset, m.line) for m in found.matches] == [(4, "Loss ä"), (16, "loss b")]
    assert found.end


def test_a_search_goes_on_where_it_stopped() -> None:
    lines = [f"match {i}" if i % 2 else f"other {i}" for i in range(3 * logs.MATCHES)]
    job = job_with("\n".join(lines).encode())

    async def look() -> list[str]:
        found: list[str] = []
        offset = 0
        while True:
            part = await logs.search(job, WORKER, 1, "match", offset)
            found += [match.line for match in part.matches]
            if part.end:
                return found
            offset = part.next_offset

    assert asyncio.run(look()) == [line for line in lines if "match" in line]


def test_one_search_looks_at_a_bounded_part_of_a_huge_log() -> None:
    job = job_with(b"nothing here\n" * 1_000_000)
    found = asyncio.run(logs.search(job, WORKER, 1, "absent", 0))
    assert not found.end
    assert logs.SCAN - 20 <= found.next_offset <= logs.SCAN + logs.PAGE_MAX


def update(offset: int, data: bytes, attempt: int = 1) -> LogUpdate:
    return LogUpdate(task=WORKER, attempt=attempt, offset=offset, data=data)


def test_gathered_bytes_come_as_one_change() -> None:
    gatherer = logs.Gatherer(WORKER)
    gatherer.add(update(0, b"ab"))
    gatherer.add(update(2, b"c\xc3"))
    (change,) = gatherer.take()
    assert (change.text, change.offset, change.next_offset) == ("abc", 0, 3)
    gatherer.add(update(4, b"\xa4"))
    (change,) = gatherer.take()
    assert (change.text, change.offset, change.next_offset) == ("ä", 3, 5)
    assert gatherer.take() == []


def test_a_new_attempt_is_a_change_of_its_own() -> None:
    gatherer = logs.Gatherer(WORKER)
    gatherer.add(update(0, b"old\n"))
    gatherer.add(update(0, b"new\n", attempt=2))
    first, second = gatherer.take()
    assert (first.attempt, first.text) == (1, "old\n")
    assert (second.attempt, second.text, second.offset) == (2, "new\n", 0)


def test_of_a_log_that_runs_away_the_end_is_kept_and_the_gap_told() -> None:
    gatherer = logs.Gatherer(WORKER)
    line = b"x" * 99 + b"\n"
    for i in range(10_000):
        gatherer.add(update(i * 100, line))
    (change,) = gatherer.take()
    assert change.next_offset == 1_000_000
    assert len(change.text) <= logs.BURST
    assert change.skipped == change.offset
    assert change.offset % 100 == 0
