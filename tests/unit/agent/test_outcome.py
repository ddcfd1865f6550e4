"""What an attempt's end means."""

from __future__ import annotations

import errno

import pytest

from howdah.agent.outcome import Ended, exit_of, not_started


def test_the_first_program_that_failed_by_itself_decides() -> None:
    ends = [
        Ended(process=2, status=0),
        Ended(process=1, status=42, tail=("boom",)),
        Ended(process=0, status=-15, asked=True),
    ]
    exit = exit_of(ends)
    assert (exit.process, exit.code, exit.signal, exit.tail) == (1, 42, None, ("boom",))


def test_all_programs_that_ended_well_are_success_without_a_tail() -> None:
    exit = exit_of([Ended(process=p, status=0, tail=("bye",)) for p in (1, 0)])
    assert (exit.code, exit.tail) == (0, ())


def test_a_signal_is_told_as_signal() -> None:
    exit = exit_of([Ended(process=0, status=-11)])
    assert (exit.code, exit.signal) == (None, 11)


@pytest.mark.parametrize("status", [-9, 137])
def test_a_kill_is_out_of_memory_only_if_the_kernel_counted_one(status: int) -> None:
    ends = [Ended(process=0, status=status)]
    assert not exit_of(ends).out_of_memory
    proven = exit_of(ends, kernel_kills=1)
    assert proven.out_of_memory
    assert "out-of-memory killer" in proven.detail


def test_another_failure_is_not_out_of_memory_though_the_kernel_counted_a_kill() -> None:
    assert not exit_of([Ended(process=0, status=1)], kernel_kills=1).out_of_memory


def test_our_own_kill_is_not_out_of_memory() -> None:
    assert not exit_of([Ended(process=0, status=-9, asked=True)], kernel_kills=3).out_of_memory


def test_ending_it_over_its_limit_is_out_of_memory_with_the_figures() -> None:
    exit = exit_of([Ended(process=0, status=-9, asked=True)], over_memory="used 120 MB of 100 MB")
    assert exit.out_of_memory
    assert exit.detail == "used 120 MB of 100 MB"


def test_a_taken_port_counts_only_for_a_failure_of_its_own() -> None:
    tail = ("OSError: [Errno 98] Address already in use",)
    assert exit_of([Ended(process=0, status=1, tail=tail)], ports=(20001,)).port_taken
    stopped = Ended(process=0, status=1, tail=tail, asked=True)
    assert not exit_of([stopped], ports=(20001,)).port_taken
    assert not exit_of([Ended(process=0, status=0, tail=tail)], ports=(20001,)).port_taken


@pytest.mark.parametrize(
    ("asked", "told", "stopped"),
    [(True, True, True), (False, True, False), (True, False, False), (False, False, False)],
)
def test_an_end_is_our_stop_only_if_we_were_told_and_it_came_after(
    asked: bool, told: bool, stopped: bool
) -> None:
    end = Ended(process=0, status=-9, asked=asked)
    assert exit_of([end], told=told).stopped is stopped


def test_the_run_time_out_is_named() -> None:
    exit = exit_of([Ended(process=0, status=-15, asked=True)], timed_out=True, run_s=90.0)
    assert exit.timed_out
    assert "90 s" in exit.detail


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        (["pyhton"], FileNotFoundError(errno.ENOENT, "x", "pyhton"), "no program 'pyhton' on PATH"),
        (["./run"], FileNotFoundError(errno.ENOENT, "x", "./run"), "first line (#!)"),
        (["./run"], PermissionError(errno.EACCES, "x"), "chmod +x"),
        (["./run"], OSError(errno.ENOEXEC, "x"), "no program for this machine"),
        (["a"], OSError(errno.E2BIG, "x"), "too large together"),
        (["a"], OSError(errno.EAGAIN, "x"), "no room for another process"),
        (["a"], FileNotFoundError(errno.ENOENT, "x", "/gone"), "working folder /gone is gone"),
        (["a\0b"], ValueError("embedded null byte"), "embedded null byte"),
    ],
)
def test_a_start_that_fails_is_explained(argv: list[str], error: Exception, words: str) -> None:
    assert words in not_started(argv, "/gone", error)
