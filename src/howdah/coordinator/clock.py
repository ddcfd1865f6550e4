"""The job's clock: seconds since the epoch that never go backwards."""

from __future__ import annotations

import time
from collections.abc import Callable


class Clock:
    """Wall time at the start, and from there on what the monotonic clock adds.

    Timers and durations of the machine are differences of these values, so a step of the host's
    wall clock (NTP, a suspended laptop) must not fire or stall them.
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._base = wall() - monotonic()

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._base + self._monotonic()

    def not_before(self, floor: float) -> None:
        """Never show less than ``floor``: the newest time of a replayed journal."""
        self._base = max(self._base, floor - self._monotonic())
