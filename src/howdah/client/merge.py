"""Where a follower of a job stands, and whole lines out of the bytes of many logs. Pure.

A follower may be cut off at any byte and come back to another coordinator: what it has seen is
kept here by record number and log offset, so nothing is shown twice and nothing is left out.
"""

from __future__ import annotations

import msgspec

from howdah.core.messages import Task

LONGEST_LINE = 64 * 1024
"""Bytes after which an unfinished line is shown anyway, so that memory stays bounded."""


class Stream(msgspec.Struct, frozen=True, order=True):
    """One attempt's log."""

    task: Task
    attempt: int


class Position:
    """How far a follower has come: the newest record, and the next byte of every log."""

    def __init__(self, after_seq: int = 0) -> None:
        self.seq = after_seq
        self.offsets: dict[Stream, int] = {}

    def is_new_record(self, seq: int) -> bool:
        """Whether the record has not been seen; it counts as seen from now on."""
        if seq <= self.seq:
            return False
        self.seq = seq
        return True

    def new_bytes(self, stream: Stream, offset: int, data: bytes) -> tuple[int, bytes]:
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
        self._rest: dict[Stream, tuple[int, bytes]] = {}

    def feed(self, stream: Stream, offset: int, data: bytes) -> list[tuple[int, bytes]]:
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

    def finish(self, stream: Stream) -> list[tuple[int, bytes]]:
        """What the log ended with, if it had no line end."""
        start, rest = self._rest.pop(stream, (0, b""))
        return [(start, _last_writing(rest))] if rest else []

    def finish_all(self) -> list[tuple[Stream, int, bytes]]:
        """The unfinished ends of all logs."""
        streams = sorted(self._rest)
        return [(s, start, line) for s in streams for start, line in self.finish(s)]


def _last_writing(line: bytes) -> bytes:
    if b"\r" not in line:
        return line
    return line.rstrip(b"\r").rpartition(b"\r")[2]
