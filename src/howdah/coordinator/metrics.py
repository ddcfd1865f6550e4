"""Measurements over time: the newest in memory, all that is kept in the job directory.

A job of 1,000 tasks sends 1,000 samples a second, more than anybody reads or wants to store. So
each task keeps one sample an interval that grows with the job, and what a program reported is
merged meanwhile, the newest value of a name winning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec

from howdah.core.messages import Task
from howdah.storage.metrics import TaskSample
from howdah.wire.messages import Sample

RATE = 100.0
"""Samples kept a second, all tasks together (about 10 KB/s of the job directory at most)."""
HELD = 30_000
"""Samples held in memory, all tasks together (packed: about 130 bytes each)."""
HELD_EACH = 1200
"""Samples held of one task at most: twenty minutes of a small job."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Sample).decode


class _Series:
    __slots__ = ("next", "ring", "values")

    def __init__(self, held: int) -> None:
        self.next = 0.0
        self.ring: deque[bytes] = deque(maxlen=held)
        self.values: dict[str, float] | None = None


class Metrics:
    """All tasks' series."""

    def __init__(self, tasks: int) -> None:
        self._interval_s = tasks / RATE
        self._held = max(30, min(HELD_EACH, HELD // max(tasks, 1)))
        self._series: dict[Task, _Series] = {}
        self._unstored: list[TaskSample] = []

    def take(self, task: Task, attempt: int, sample: Sample) -> None:
        """Take in a sample as it came."""
        series = self._series.get(task)
        if series is None:
            series = self._series[task] = _Series(self._held)
        if sample.time < series.next:
            if sample.values:
                series.values = {**(series.values or {}), **sample.values}
            return
        series.next = sample.time + self._interval_s
        if series.values:
            sample = msgspec.structs.replace(sample, values={**series.values, **sample.values})
            series.values = None
        # Packed, a held sample is one object that the garbage collector leaves alone.
        series.ring.append(_encode(sample))
        self._unstored.append(TaskSample(task=task, attempt=attempt, sample=sample))

    def remember(self, stored: Iterable[TaskSample]) -> None:
        """Put what former coordinators stored before what has come since."""
        found: dict[Task, list[bytes]] = {}
        for item in stored:
            found.setdefault(item.task, []).append(_encode(item.sample))
        for task, packed in found.items():
            series = self._series.setdefault(task, _Series(self._held))
            series.ring = deque([*packed, *series.ring], maxlen=self._held)

    def unstored(self) -> list[TaskSample]:
        """What came since the last call and is to be stored."""
        kept, self._unstored = self._unstored, []
        return kept

    def since(self, task: Task, time: float) -> list[Sample]:
        """Held samples of the task later than ``time``, oldest first."""
        series = self._series.get(task)
        if series is None:
            return []
        return [sample for packed in series.ring if (sample := _decode(packed)).time > time]
