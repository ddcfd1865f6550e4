"""The job's story: its records in journal order, for everybody who reads along."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable

from howdah.coordinator.pulse import Pulse
from howdah.wire.messages import RecordUpdate

_seq = operator.attrgetter("seq")


class Story:
    """All records so far. Readers keep the newest ``seq`` they have seen and ask for what follows.

    Only durable records are told, so no reader ever sees a line that a new coordinator denies.
    """

    def __init__(self) -> None:
        self._updates: list[RecordUpdate] = []
        self.grown = Pulse()

    @property
    def last_seq(self) -> int:
        """``seq`` of the newest record, 0 if there is none."""
        return self._updates[-1].seq if self._updates else 0

    def tell(self, updates: Iterable[RecordUpdate]) -> None:
        """Add records, each later than all before, and wake the readers."""
        before = len(self._updates)
        self._updates.extend(updates)
        if len(self._updates) > before:
            self.grown.fire()

    def after(self, seq: int, limit: int | None = None) -> list[RecordUpdate]:
        """Records later than ``seq``, oldest first, at most ``limit``."""
        start = bisect.bisect_right(self._updates, seq, key=_seq)
        return self._updates[start : None if limit is None else start + limit]
