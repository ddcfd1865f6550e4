"""What Ctrl-C and its kin mean: once stops cleanly, twice at once, attached views just leave."""

from __future__ import annotations

import signal

import pytest

from howdah.cli.display.attached import Action, Interrupts, Tie


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_stops_twice_at_once_a_third_time_leaves(number: int) -> None:
    run = Interrupts(Tie.JOB)
    assert [run.signal(number) for _ in range(4)] == [
        Action.STOP,
        Action.STOP_AT_ONCE,
        Action.LEAVE,
        Action.LEAVE,
    ]


def test_a_closed_terminal_stops_the_job_and_leaves() -> None:
    assert Interrupts(Tie.JOB).signal(signal.SIGHUP) is Action.STOP_AND_LEAVE


def test_a_closed_terminal_after_ctrl_c_only_leaves() -> None:
    run = Interrupts(Tie.JOB)
    run.signal(signal.SIGINT)
    assert run.signal(signal.SIGHUP) is Action.LEAVE


def test_a_broken_pipe_is_a_closed_terminal() -> None:
    assert Interrupts(Tie.JOB).output_closed() is Action.STOP_AND_LEAVE
    assert Interrupts(Tie.VIEW).output_closed() is Action.LEAVE


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_attached_view_leaves_the_job_alone(number: int) -> None:
    assert Interrupts(Tie.VIEW).signal(number) is Action.LEAVE
    assert Interrupts(Tie.WAIT).signal(number) is Action.LEAVE
