"""Where a follower of a job stands, and whole lines out of the bytes of many logs. Pure.

A follower may be cut off at any byte and come back to another coordinator: what it has seen is
kept here by record number and log offset, so nothing is shown twice and nothing is left out.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from howdah.core.messages import Task

_TIMES = range(10**11)
"""Seconds since the epoch that a date can be made of."""

LONGEST_LINE = 64 * 1024
"""Bytes after which an unfinished line is shown anyway, so that memory stays bounded."""


class LogId(msgspec.Struct, frozen=True, order=True):
    """One attempt's log."""

    task: Task
    attempt: int


class FollowerPosition:
    """How far a follower has come: the newest record, and the next byte of every log."""

    def __init__(self, after_seq: int = 0) -> None:
        self.seq: int = after_seq
        self.offsets: dict[LogId, int] = {}

    def is_new_record(self, seq: int) -> bool:
        """Whether the record has not been seen; it counts as seen from now on."""
        if seq <= self.seq:
            return False
        self.seq = seq
        return True

    def new_bytes(self, stream: LogId, offset: int, data: bytes) -> tuple[int, bytes]:
        """The part of ``data`` that has not been seen, and its offset; seen from now on.

        A chunk past the known end is taken as it is: the log's middle was dropped by its size cap.
        """
        known = self.offsets.get(stream, 0)
        end = offset + len(data)
        if end <= known:
            return known, b""
        self.offsets[stream] = end
        if offset >= known:
            return offset, data
        return known, data[known - offset :]


class Lines:
    """Cuts the bytes of many logs into whole lines.

    A carriage return inside a line (progress bars) begins it again: only what a terminal would
    show in the end is kept.
    """

    def __init__(self) -> None:
        self._rest: dict[LogId, tuple[int, bytes]] = {}

    def feed(self, stream: LogId, offset: int, data: bytes) -> list[tuple[int, bytes]]:
        """Lines that ``data`` completes, each with its offset, without their line ends."""
        start, rest = self._rest.pop(stream, (offset, b""))
        *whole, rest = (rest + data).split(b"\n")
        lines: list[tuple[int, bytes]] = []
        for line in whole:
            lines.append((start, _last_writing(line)))
            start += len(line) + 1
        if len(rest) >= LONGEST_LINE:
            lines.append((start, _last_writing(rest)))
        elif rest:
            self._rest[stream] = (start, rest)
        return lines

    def finish(self, stream: LogId) -> list[tuple[int, bytes]]:
        """What the log ended with, if it had no line end."""
        start, rest = self._rest.pop(stream, (0, b""))
        return [(start, _last_writing(rest))] if rest else []

    def finish_all(self) -> list[tuple[LogId, int, bytes]]:
        """The unfinished ends of all logs."""
        streams = sorted(self._rest)
        return [(s, start, line) for s in streams for start, line in self.finish(s)]


class LogBlock(NamedTuple):
    """Lines of one log that were written at about the same time."""

    stream: LogId
    time: float | None
    """In seconds since the epoch, by the job's clock; None where it is not known."""
    lines: list[tuple[int, bytes]]
    """Each with its offset."""


class TimedLines:
    """As `Lines`, and when they were written."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._times: dict[LogId, list[tuple[int, float]]] = {}

    def feed(
        self, stream: LogId, offset: int, data: bytes, times: Iterable[tuple[int, float]]
    ) -> list[LogBlock]:
        """Blocks of the lines that ``data`` completes; ``times`` as `LogUpdate` has them."""
        known = self._times.setdefault(stream, [])
        for place, time in times:
            # A clock that was set back would make later lines of the same log come first.
            if (not known or place > known[-1][0]) and 0 <= time < _TIMES.stop:
                known.append((place, max(time, known[-1][1]) if known else time))
        return self._blocks(stream, self._lines.feed(stream, offset, data))

    def finish(self, stream: LogId) -> list[LogBlock]:
        """What the log ended with, if it had no line end."""
        return self._blocks(stream, self._lines.finish(stream))

    def finish_all(self) -> list[LogBlock]:
        """The unfinished ends of all logs."""
        return [
            block
            for stream, offset, line in self._lines.finish_all()
            for block in self._blocks(stream, [(offset, line)])
        ]

    def _blocks(self, stream: LogId, lines: list[tuple[int, bytes]]) -> list[LogBlock]:
        known = self._times.get(stream, [])
        blocks: list[LogBlock] = []
        done = place = 0
        while done < len(lines):
            place = bisect.bisect_right(known, lines[done][0], lo=place, key=lambda each: each[0])
            end = len(lines)
            if place < len(known):
                end = bisect.bisect_left(lines, known[place][0], lo=done, key=lambda each: each[0])
            time = known[place - 1][1] if place else None
            blocks.append(LogBlock(stream, time, lines[done:end]))
            done = end
        if place > 1:
            del known[: place - 1]
        return blocks


def _last_writing(line: bytes) -> bytes:
    if b"\r" not in line:
        return line
    return line.rstrip(b"\r").rpartition(b"\r")[2]
