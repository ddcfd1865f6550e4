"""When a coordinator is started again: the pure policy."""

from __future__ import annotations

import itertools
import signal

from hypothesis import given
from hypothesis import strategies as st

from howdah.backends.local.node.supervision import (
    CANNOT_START,
    MAX_NO_ROOM,
    MAX_NOT_INSTALLED,
    MAX_RAPID,
    NOT_INSTALLED,
    RAPID_S,
    UPGRADE_DELAY_S,
    Supervision,
    Verdict,
    describe,
)
from howdah.storage.coordinator_ends import NO_ROOM

KILLED = int(signal.SIGKILL)


def test_exit_code_zero_means_that_the_job_is_over() -> None:
    decision, _ = Supervision().ended(0, 0.1)
    assert decision.verdict is Verdict.FINISHED


def test_the_first_death_is_answered_at_once_and_each_next_one_later() -> None:
    supervision = Supervision()
    delays: list[float] = []
    for _ in range(MAX_RAPID):
        decision, supervision = supervision.ended(1 << 8, 0.1)
        assert decision.verdict is Verdict.RESTART
        delays.append(decision.delay_s)
    assert delays[0] == 0.0
    assert all(later >= 2 * earlier for earlier, later in itertools.pairwise(delays))
    decision, _ = supervision.ended(1 << 8, 0.1)
    assert decision.verdict is Verdict.GIVE_UP
    assert f"died {MAX_RAPID + 1} times in a row, at last it exited with code 1" in decision.reason


@given(st.lists(st.floats(RAPID_S, 1e6), min_size=1, max_size=50))
def test_a_coordinator_that_lives_a_while_each_time_is_never_given_up(lives: list[float]) -> None:
    supervision = Supervision()
    for lived_s in lives:
        decision, supervision = supervision.ended(KILLED, lived_s)
        assert decision.verdict is Verdict.RESTART
        assert decision.delay_s == 0.0


def test_one_that_cannot_be_imported_is_given_up_at_once() -> None:
    decision, _ = Supervision().ended(CANNOT_START << 8, 0.1)
    assert decision.verdict is Verdict.GIVE_UP


def test_while_there_is_no_howdah_to_start_one_from_the_job_waits_two_minutes_for_it() -> None:
    supervision = Supervision()
    for _ in range(MAX_NOT_INSTALLED):
        decision, supervision = supervision.ended(NOT_INSTALLED << 8, 0.1)
        assert (decision.verdict, decision.delay_s) == (Verdict.RESTART, UPGRADE_DELAY_S)
    decision, _ = supervision.ended(NOT_INSTALLED << 8, 0.1)
    assert decision.verdict is Verdict.GIVE_UP
    assert "no Howdah" in decision.reason
    _, supervision = supervision.ended(KILLED, 3600.0)
    assert supervision.not_installed == 0


def test_where_there_is_no_room_for_one_the_job_waits_for_it_an_hour_long() -> None:
    supervision = Supervision()
    waited_s = 0.0
    for _ in range(MAX_NO_ROOM):
        decision, supervision = supervision.ended(NO_ROOM << 8, 0.1)
        assert decision.verdict is Verdict.RESTART
        waited_s += decision.delay_s
    assert waited_s > 3000
    decision, _ = supervision.ended(NO_ROOM << 8, 0.1)
    assert decision.verdict is Verdict.GIVE_UP
    assert "no room for a coordinator" in decision.reason
    decision, supervision = supervision.ended(KILLED, 3600.0)
    assert supervision.no_room == 0


def test_wait_statuses_read_as_words() -> None:
    assert describe(0) == "exited with code 0"
    assert describe(3 << 8) == "exited with code 3"
    assert describe(KILLED) == "was killed by SIGKILL"
    assert describe(64) == "was killed by SIGRTMAX"
    assert describe(33) == "was killed by signal 33"
    assert describe(None) == "ended, nobody saw how"
