"""What the three readers share: a document with the line of every key, and bounds on its size.

A job file is small. The bounds keep a hostile or generated one from costing more than a small
one: every reader counts values and levels while it reads and stops at once past the bound.
"""

from __future__ import annotations

import bisect

from howdah.spec.problems import KeyPath

MAX_BYTES = 1 << 20
MAX_VALUES = 20_000
MAX_DEPTH = 32


class Unreadable(Exception):
    """The text is no document of its kind: line, what is wrong, what to do."""

    def __init__(self, line: int | None, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.hint = hint


class PlacedValues:
    """The values of a document as they are found: their lines, how many, how deep."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.repeated: list[tuple[KeyPath, int]] = []
        """Keys that were already there, and the line of the second."""
        self.empty: set[KeyPath] = set()
        """Keys with nothing behind them, in YAML; not those with a null that is written."""
        self._values = 0

    def value(self, path: KeyPath, line: int) -> None:
        """One more value, at that path.

        Raises:
            Unreadable: one too many, or too deep.
        """
        self.more(1, len(path), line)
        if path in self.lines:
            self.repeated.append((path, line))
        else:
            self.lines[path] = line

    def more(self, values: int, depth: int, line: int) -> None:
        """So many more values, the deepest at that depth.

        Raises:
            Unreadable: too many, or too deep.
        """
        self._values += values
        if self._values > MAX_VALUES:
            raise Unreadable(line, f"more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise Unreadable(line, f"nested more than {MAX_DEPTH} levels deep")


class LineIndex:
    """The line of an offset in a text, counted from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [0]
        start = text.find("\n") + 1
        while start:
            self._starts.append(start)
            start = text.find("\n", start) + 1

    def line(self, offset: int) -> int:
        """Line of the character at ``offset``."""
        return bisect.bisect_right(self._starts, offset)
