"""One attempt's log while somebody follows it: the newest bytes, as the agent pushed them."""

from __future__ import annotations

from collections import deque

from howdah.core.messages import Task

KEPT = 256 * 1024
"""Bytes kept of a followed log. A reader that is further behind reads the file."""


class Feed:
    """A window over the end of a log. Offsets are logical: bytes the attempt has ever written.

    The agent sends a log once, however many follow it. Chunks may overlap (a new coordinator asked
    again) or leave a gap (the agent dropped what nobody took in time): bytes are told apart by
    their offsets alone, so no reader sees one twice.
    """

    def __init__(self, task: Task, attempt: int, end: int) -> None:
        self.task = task
        self.attempt = attempt
        self.end = end
        """Where the window ends: the offset of the next byte that is news."""
        self.start = end
        self.live = True
        """More may come."""
        self._chunks: deque[tuple[int, bytes]] = deque()

    def push(self, offset: int, data: bytes) -> bool:
        """Take a chunk in; whether it has anything new."""
        if offset + len(data) <= self.end:
            return False
        if offset < self.end:
            data = data[self.end - offset :]
            offset = self.end
        if offset > self.end:
            self._chunks.clear()
            self.start = offset
        self._chunks.append((offset, data))
        self.end = offset + len(data)
        while self.end - self.start > KEPT and len(self._chunks) > 1:
            self._chunks.popleft()
            self.start = self._chunks[0][0]
        return True

    def take(self, position: int, limit: int) -> bytes:
        """At most ``limit`` bytes from ``position``; none if the window does not have them."""
        if not self.start <= position < self.end:
            return b""
        parts: list[bytes] = []
        for offset, data in self._chunks:
            if limit <= 0:
                break
            if offset + len(data) <= position:
                continue
            part = data[position - offset : position - offset + limit]
            parts.append(part)
            position += len(part)
            limit -= len(part)
        return b"".join(parts)
