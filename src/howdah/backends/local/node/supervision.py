"""When a dead coordinator is started again. Pure.

A coordinator that dies takes nothing with it: a new one replays the journal. So it is started
again at once. One that dies over and over, each time soon after its start, will not get further
the next time: the job is ended, in words.
"""

from __future__ import annotations

import enum
import signal

import msgspec

from howdah.storage.coordinator_ends import NO_ROOM

RAPID_S = 10.0
"""A coordinator that lived at least so long was healthy: deaths are counted anew."""
MAX_RAPID = 6
"""Deaths in a row, each soon after its start, before the job is given up."""
FIRST_DELAY_S = 0.1
"""Before the second restart in a row (the first comes at once); doubled each time."""

NO_ROOM_DELAY_S = (1.0, 30.0)
"""Before the next start where the machine has no room for a coordinator: first and longest."""
MAX_NO_ROOM = 120
"""Such ends in a row, about an hour of them, before the job is given up."""

NOT_INSTALLED = 124
"""Exit code of a later coordinator that finds no Howdah to import, or half of one: it may be being upgraded."""
UPGRADE_DELAY_S = 1.0
"""Before the next start then."""
MAX_NOT_INSTALLED = 120
"""Such ends in a row, two minutes or more of them, before the job is given up."""

CANNOT_START = 125
"""Exit code of a forked child that could not even begin: trying again would not help."""


class Verdict(enum.Enum):
    FINISHED = "finished"
    RESTART = "restart"
    GIVE_UP = "give-up"


class Decision(msgspec.Struct, frozen=True):
    """What to do about a coordinator's end."""

    verdict: Verdict
    delay_s: float = 0.0
    reason: str = ""
    """Why the job is given up."""


class Supervision(msgspec.Struct, frozen=True):
    """What is remembered of earlier deaths."""

    rapid: int = 0
    no_room: int = 0
    """Ends in a row for want of room."""
    not_installed: int = 0
    """Ends in a row for want of a Howdah."""

    def ended(self, status: int | None, lived_s: float) -> tuple[Decision, Supervision]:
        """The coordinator has ended with that wait status (None: unknown) after ``lived_s``."""
        if status == 0:
            return Decision(Verdict.FINISHED), self
        how = describe(status)
        code = None if status is None else status >> 8
        if code == CANNOT_START:
            return Decision(Verdict.GIVE_UP, reason="the coordinator could not be started"), self
        if code == NOT_INSTALLED:
            if self.not_installed == MAX_NOT_INSTALLED:
                reason = (
                    "for two minutes there was no Howdah that a coordinator could be started from"
                )
                return Decision(Verdict.GIVE_UP, reason=reason), self
            later = msgspec.structs.replace(self, not_installed=self.not_installed + 1)
            return Decision(Verdict.RESTART, UPGRADE_DELAY_S), later
        if code == NO_ROOM:
            if self.no_room == MAX_NO_ROOM:
                reason = (
                    "for an hour there was no room for a coordinator (disk, open files or memory)"
                )
                return Decision(Verdict.GIVE_UP, reason=reason), self
            first_s, longest_s = NO_ROOM_DELAY_S
            delay_s = min(first_s * 2**self.no_room, longest_s)
            return Decision(Verdict.RESTART, delay_s), Supervision(
                rapid=self.rapid, no_room=self.no_room + 1
            )
        rapid = self.rapid + 1 if lived_s < RAPID_S else 1
        if rapid > MAX_RAPID:
            reason = f"the coordinator died {rapid} times in a row, at last it {how}"
            return Decision(Verdict.GIVE_UP, reason=reason), self
        delay_s = FIRST_DELAY_S * 2 ** (rapid - 2) if rapid > 1 else 0.0
        return Decision(Verdict.RESTART, delay_s), Supervision(rapid=rapid)


def describe(status: int | None) -> str:
    """A wait status in words: "exited with code 1", "was killed by SIGKILL"."""
    if status is None:
        return "ended, nobody saw how"
    number = status & 0x7F
    if number:
        try:
            return f"was killed by {signal.Signals(number).name}"
        except ValueError:
            return f"was killed by signal {number}"
    return f"exited with code {status >> 8}"
