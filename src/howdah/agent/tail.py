"""The last lines of a stream of bytes, for people: few, short, and harmless to a terminal."""

from __future__ import annotations

import re
from collections import deque

LINES = 40
LINE_LENGTH = 400
_KEPT_BYTES = 64 * 1024
_NEWEST_BYTES = 4 * 1024

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Tail:
    """Keeps the end of what is put in; cheap for many small and for large pieces."""

    __slots__ = ("_pieces", "_size")

    def __init__(self) -> None:
        self._pieces: deque[bytes] = deque()
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def put(self, data: bytes | memoryview) -> None:
        """More of the stream."""
        piece = bytes(data[-_KEPT_BYTES:])
        self._pieces.append(piece)
        self._size += len(piece)
        while self._size - len(self._pieces[0]) >= _KEPT_BYTES:
            self._size -= len(self._pieces.popleft())
        if len(self._pieces) > 4096:  # many tiny pieces: their objects outweigh them
            self._pieces = deque([b"".join(self._pieces)])

    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first, without empty ones at the end."""
        return last_lines(b"".join(self._pieces))


class NewestLine:
    """The newest line of a log, for who can't read the log; told once each."""

    __slots__ = ("_lines", "_told")

    def __init__(self) -> None:
        self._lines = b""
        self._told = ""

    def put(self, lines: bytes | memoryview, before: bytes = b"") -> None:
        """More whole lines; ``before`` is the beginning of the first."""
        kept = bytes(lines[-_NEWEST_BYTES:])
        if before and len(kept) < _NEWEST_BYTES:
            kept = before[len(kept) - _NEWEST_BYTES :] + kept
        self._lines = kept

    def news(self) -> str | None:
        """The newest line, unless it was told before or is empty."""
        found = last_lines(self._lines, 1)
        if not found or found[0] == self._told:
            return None
        self._told = found[0]
        return self._told

    def forget(self) -> None:
        """Who was told is gone: the next one is to be told too."""
        self._told = ""


def last_lines(data: bytes, count: int = LINES, length: int = LINE_LENGTH) -> tuple[str, ...]:
    """At most ``count`` lines of at most ``length`` characters from the end of ``data``.

    Bytes that are no UTF-8 are replaced, escape sequences and control characters left out, and of
    a line that was overwritten in place (a progress bar) the last state counts.
    """
    found = [_clean(line, length) for line in data.rstrip(b"\r\n").split(b"\n")[-count:]]
    while found and not found[-1]:
        found.pop()
    return tuple(found)


def _clean(line: bytes, length: int) -> str:
    states = [state for state in line.split(b"\r") if state.strip()]
    text = (states[-1] if states else b"").decode(errors="replace")
    text = _CONTROLS.sub("", _ESCAPES.sub("", text)).rstrip()
    return text if len(text) <= length else text[: length - 1] + "…"
