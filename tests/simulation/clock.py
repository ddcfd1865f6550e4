"""Virtual time: what is to happen when, in order."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    """Seconds that pass only when something happens. Equal times keep the order of asking."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0

    def later(self, after_s: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (self.now + max(0.0, after_s), self._order, action))

    def next(self) -> float | None:
        """When the next action is due; None if nothing is left to happen."""
        return self._queue[0][0] if self._queue else None

    def advance(self, to: float) -> None:
        self.now = max(self.now, to)

    def act(self) -> None:
        """Go to the next action and do it."""
        due, _, action = heapq.heappop(self._queue)
        self.advance(due)
        action()
