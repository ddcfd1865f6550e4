"""Sets of row offsets as half-open ranges: sorted, not touching. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from howdah.spark.feed.messages import Intervals


def merged(ranges: Iterable[tuple[int, int]]) -> Intervals:
    """The ranges as a set: empty ones left out, touching ones made one."""
    result: Intervals = []
    for start, stop in sorted(ranges):
        if start >= stop:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(stop, result[-1][1]))
        else:
            result.append((start, stop))
    return result


def joined(known: Intervals, more: Intervals) -> Intervals:
    """Both as one set: ``known`` itself, made longer, where ``more`` goes on from its end."""
    if known and len(more) == 1 and known[-1][1] == more[0][0]:
        known[-1] = (known[-1][0], more[0][1])  # the usual case
        return known
    return merged([*known, *more])


def count(ranges: Intervals) -> int:
    """How many offsets."""
    return sum(stop - start for start, stop in ranges)


def without(ranges: Intervals, taken: Intervals) -> Intervals:
    """What of ``ranges`` is not in ``taken``."""
    result: Intervals = []
    for start, stop in ranges:
        for left, right in taken:
            if right <= start or stop <= left:
                continue
            if start < left:
                result.append((start, left))
            start = right
            if start >= stop:
                break
        if start < stop:
            result.append((start, stop))
    return result


def first(ranges: Intervals, rows: int) -> Intervals:
    """The first ``rows`` offsets."""
    result: Intervals = []
    for start, stop in ranges:
        if rows <= 0:
            break
        result.append((start, min(stop, start + rows)))
        rows -= stop - start
    return result


def cut(start: int, stop: int, ranges: Intervals) -> list[tuple[int, int]]:
    """Where the offsets ``ranges`` lie within the row numbers of ``start`` to ``stop``."""
    return [
        (max(left, start) - start, min(right, stop) - start)
        for left, right in ranges
        if right > start and left < stop
    ]


class Offsets:
    """The offsets of rows that come one after another, some ranges being left out."""

    def __init__(self, start: int, skip: Intervals) -> None:
        self._next = start
        self._skip = [(left, right) for left, right in merged(skip) if right > start]

    def take(self, rows: int) -> Intervals:
        """The offsets of the next ``rows`` rows."""
        result: Intervals = []
        while rows > 0:
            while self._skip and self._skip[0][0] <= self._next:
                self._next = max(self._next, self._skip.pop(0)[1])
            stop = self._next + rows
            if self._skip:
                stop = min(stop, self._skip[0][0])
            result.append((self._next, stop))
            rows -= stop - self._next
            self._next = stop
        return result
