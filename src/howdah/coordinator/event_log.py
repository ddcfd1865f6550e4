"""The event log: the job's records in journal order, for everything that reads them live."""

from __future__ import annotations

import bisect
import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator

from howdah.wire.messages import RecordUpdate

_seq = operator.attrgetter("seq")


class Signal:
    """Calls its listeners whenever it is sent. It carries nothing: something changed, look again.

    One look may answer any number of signals, so a slow listener costs no memory and delays no
    other. A listener returns at once and does not raise: it sets an `asyncio.Event`.
    """

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def send(self) -> None:
        for listener in tuple(self._listeners):
            listener()

    def add(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def remove(self, listener: Callable[[], None]) -> None:
        """Stop calling it; harmless if it is not known."""
        with contextlib.suppress(ValueError):
            self._listeners.remove(listener)

    @contextlib.contextmanager
    def calling(self, listener: Callable[[], None]) -> Iterator[None]:
        self.add(listener)
        try:
            yield
        finally:
            self.remove(listener)


class EventLog:
    """All records so far. A reader keeps the newest ``seq`` it has seen and asks for what follows.

    Only durable records are added, so no reader sees a line that a new coordinator denies.
    """

    def __init__(self) -> None:
        self._updates: list[RecordUpdate] = []
        self.grown: Signal = Signal()

    @property
    def last_seq(self) -> int:
        """``seq`` of the newest record, 0 if there is none."""
        return self._updates[-1].seq if self._updates else 0

    def record(self, updates: Iterable[RecordUpdate]) -> None:
        """Add records, each later than all before, and wake the readers."""
        before = len(self._updates)
        self._updates.extend(updates)
        if len(self._updates) > before:
            self.grown.send()

    def after(self, seq: int, limit: int | None = None) -> list[RecordUpdate]:
        """Records later than ``seq``, oldest first, at most ``limit``."""
        start = bisect.bisect_right(self._updates, seq, key=_seq)
        return self._updates[start : None if limit is None else start + limit]
