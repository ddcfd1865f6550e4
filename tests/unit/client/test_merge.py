"""Followers see every byte and record once, and whole lines only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from howdah.client.following.items import log_line
from howdah.client.following.log_lines import (
    LONGEST_LINE,
    FollowerPosition,
    Lines,
    LogBlock,
    LogId,
    TimedLines,
)
from howdah.core.messages import Task

WORKER = LogId(Task("worker", 0), 1)
OTHER = LogId(Task("worker", 1), 1)


def test_a_record_is_new_once() -> None:
    position = FollowerPosition()
    assert position.is_new_record(3)
    assert not position.is_new_record(3)
    assert not position.is_new_record(2)
    assert position.is_new_record(4)


def test_bytes_sent_again_by_another_coordinator_are_cut_off() -> None:
    position = FollowerPosition()
    assert position.new_bytes(WORKER, 0, b"abcdef") == (0, b"abcdef")
    assert position.new_bytes(WORKER, 0, b"abcd") == (6, b"")
    assert position.new_bytes(WORKER, 4, b"efgh") == (6, b"gh")


def test_a_gap_left_by_the_size_cap_is_stepped_over() -> None:
    position = FollowerPosition()
    position.new_bytes(WORKER, 0, b"head")
    assert position.new_bytes(WORKER, 1000, b"tail") == (1000, b"tail")
    assert position.new_bytes(WORKER, 500, b"late") == (1004, b"")


def test_logs_of_tasks_and_attempts_are_counted_apart() -> None:
    position = FollowerPosition()
    position.new_bytes(WORKER, 0, b"abc")
    assert position.new_bytes(OTHER, 0, b"abc") == (0, b"abc")
    assert position.new_bytes(LogId(WORKER.task, 2), 0, b"abc") == (0, b"abc")


@given(st.binary(max_size=60), st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60))))
def test_overlapping_pieces_in_rising_order_give_the_log_exactly_once(
    log: bytes, cuts: list[tuple[int, int]]
) -> None:
    position = FollowerPosition()
    seen = b""
    reached = 0
    for start, size in [*cuts, (0, len(log))]:
        start = min(start, reached)  # a follower asks from where it stands, or from before
        piece = log[start : start + size]
        reached = max(reached, start + len(piece))
        offset, fresh = position.new_bytes(WORKER, start, piece)
        if fresh:
            assert offset == len(seen)
        seen += fresh
    assert seen == log


def test_a_line_is_shown_when_it_is_whole() -> None:
    lines = Lines()
    assert lines.feed(WORKER, 0, b"one\ntw") == [(0, b"one")]
    assert lines.feed(WORKER, 6, b"o\n\nthree") == [(4, b"two"), (8, b"")]
    assert lines.finish(WORKER) == [(9, b"three")]
    assert lines.finish(WORKER) == []


def test_unfinished_lines_of_two_tasks_do_not_mix() -> None:
    lines = Lines()
    assert lines.feed(WORKER, 0, b"left ") == []
    assert lines.feed(OTHER, 0, b"right ") == []
    assert lines.feed(WORKER, 5, b"hand\n") == [(0, b"left hand")]
    assert lines.finish_all() == [(OTHER, 0, b"right ")]


def test_a_progress_bar_shows_its_last_state() -> None:
    lines = Lines()
    bar = b"10%\r50%\r100%\n"
    assert lines.feed(WORKER, 0, bar) == [(0, b"100%")]
    assert lines.feed(WORKER, len(bar), b"windows\r\n") == [(len(bar), b"windows")]


def test_an_endless_line_is_shown_in_pieces() -> None:
    lines = Lines()
    shown = lines.feed(WORKER, 0, b"x" * LONGEST_LINE)
    assert shown == [(0, b"x" * LONGEST_LINE)]
    assert lines.finish_all() == []


@given(st.lists(st.binary(max_size=20), max_size=20))
def test_any_cutting_of_a_log_gives_the_same_lines(pieces: list[bytes]) -> None:
    whole, cut = Lines(), Lines()
    log = b"".join(pieces)
    expected = whole.feed(WORKER, 0, log) + whole.finish(WORKER)
    got: list[tuple[int, bytes]] = []
    offset = 0
    for piece in pieces:
        got += cut.feed(WORKER, offset, piece)
        offset += len(piece)
    assert got + cut.finish(WORKER) == expected


def test_a_log_line_reads_as_the_command_line_prints_it() -> None:
    assert str(log_line(OTHER, 0, b"loss 0.1")) == "worker:1 | loss 0.1"


def test_lines_are_told_with_the_time_at_which_they_began() -> None:
    cut = TimedLines()
    assert cut.feed(WORKER, 0, b"one\ntwo\nthr", ((0, 100.0), (8, 101.0))) == [
        LogBlock(WORKER, 100.0, [(0, b"one"), (4, b"two")])
    ]
    assert cut.feed(OTHER, 0, b"apart\n", ()) == [LogBlock(OTHER, None, [(0, b"apart")])]
    assert cut.feed(WORKER, 11, b"ee\nfour\nfive", ((8, 101.0), (13, 103.0))) == [
        LogBlock(WORKER, 101.0, [(8, b"three")]),
        LogBlock(WORKER, 103.0, [(14, b"four")]),
    ]
    assert cut.finish_all() == [LogBlock(WORKER, 103.0, [(19, b"five")])]


def test_times_that_no_clock_tells_are_left_out_and_never_run_backwards() -> None:
    cut = TimedLines()
    times = ((0, 200.0), (2, float("nan")), (4, -1.0), (6, 1e300), (8, 150.0))
    blocks = cut.feed(WORKER, 0, b"a\n" * 5, times)
    assert [(block.time, len(block.lines)) for block in blocks] == [(200.0, 4), (200.0, 1)]
