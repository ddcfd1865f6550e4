"""When a call is made again, and where: a pure decision."""

from __future__ import annotations

import dataclasses
import enum
import random

from howdah.hadoop.errors import (
    AuthenticationError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    HadoopError,
    NotReadyYet,
    RetriableError,
    StandbyError,
)


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """How long and how often a call is tried.

    Attributes:
        max_wait_s: the call's deadline where the caller gives none: all tries, all addresses and
            all waiting between them. Every address is tried once at least.
        try_timeout_s: one try of a call that may be made again, at most; an answer that takes longer is
            taken for lost. Of several addresses each has its share of the time until the deadline, at
            least a second. Other calls wait until their deadline.
        first_delay_s, max_delay_s: between rounds over all addresses: doubled each round, the
            actual delay random between half of it and all of it.
    """

    max_wait_s: float = 60.0
    try_timeout_s: float = 20.0
    first_delay_s: float = 0.1
    max_delay_s: float = 5.0

    def delay_s(self, rounds: int, fraction: float | None = None) -> float:
        """How long to wait after so many rounds; ``fraction`` (0 to 1) replaces chance."""
        fraction = random.random() if fraction is None else fraction
        longest = min(self.max_delay_s, self.first_delay_s * 2 ** min(rounds, 30))
        return longest * (0.5 + fraction / 2)


class Next(enum.Enum):
    """What to do after a failed try."""

    GIVE_UP = enum.auto()
    SAME = enum.auto()
    """Ask the same server again, after a delay."""
    OTHER = enum.auto()
    """Ask the next server; a delay comes only when all were asked."""


def after(error: HadoopError, idempotent: bool) -> Next:
    """What follows a failed try of a call.

    What the server certainly did not execute is always tried again. Where that is not certain
    (the connection ended, or no answer came), only what may be done twice is.
    """
    match error:
        case StandbyError() | ConnectFailed():
            return Next.OTHER
        case RetriableError() | NotReadyYet():
            return Next.SAME
        case AuthenticationError():
            return Next.GIVE_UP
        case ConnectionLost() | CallTimeout():
            return Next.OTHER if idempotent else Next.GIVE_UP
        case _:
            return Next.GIVE_UP
