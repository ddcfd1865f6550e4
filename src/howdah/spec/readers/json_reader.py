"""JSON with the line of every key. The standard reader gives values without places."""

from __future__ import annotations

import json
import re
from typing import Any

from howdah.spec.problems import KeyPath, shown
from howdah.spec.readers.reading import LineIndex, PlacedValues, Unreadable

_SPACE = re.compile(r"[ \t\n\r]*")
_WORD = re.compile(r"[^\s,:{}\[\]]{1,40}")


def read(text: str) -> tuple[Any, PlacedValues]:
    """The document and the lines of its keys.

    Raises:
        Unreadable: it is not JSON, or past the bounds of a job file.
    """
    reader = _Reader(text)
    document = reader.value(reader.space(0), ())
    if reader.end < len(text):
        raise reader.error(reader.end, "expected the end of the file")
    return document, reader.reading


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = LineIndex(text)
        self.reading = PlacedValues()
        self.end = 0
        """Offset of what follows the value read last, white space skipped."""
        self._scalar = json.JSONDecoder().raw_decode

    def space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        assert found is not None
        return found.end()

    def error(self, at: int, expected: str, hint: str | None = None) -> Unreadable:
        word = _WORD.match(self.text, at)
        rest = word[0] if word else self.text[at : at + 1]
        found = f"found {shown(rest)}" if rest else "the file ends"
        return Unreadable(self.lines.line(at), f"not JSON: {expected}, {found}", hint)

    def _broken_text(self, error: json.JSONDecodeError) -> Unreadable:
        message = error.msg.removesuffix(" starting at").removesuffix(" at")
        return Unreadable(self.lines.line(error.pos), f"not JSON: {message}")

    def value(self, at: int, path: KeyPath, line_at: int | None = None) -> Any:
        """The value at that offset; its line is its key's, if it has one."""
        self.reading.value(path, self.lines.line(at if line_at is None else line_at))
        mark = self.text[at : at + 1]
        if mark == "{":
            return self._table(at, path)
        if mark == "[":
            return self._array(at, path)
        if not mark:
            raise self.error(at, "expected a value")
        try:
            value, end = self._scalar(self.text, at)
        except json.JSONDecodeError as error:
            if mark == '"':
                raise self._broken_text(error) from None
            hint = "text needs double quotes" if mark.isalpha() else None
            raise self.error(at, "expected a value", hint) from None
        except ValueError:
            raise Unreadable(self.lines.line(at), "a number has too many digits") from None
        self.end = self.space(end)
        return value

    def _table(self, at: int, path: KeyPath) -> dict[str, Any]:
        table: dict[str, Any] = {}
        at = self.space(at + 1)
        while self.text[at : at + 1] != "}":
            if self.text[at : at + 1] != '"':
                raise self.error(at, "expected a key in double quotes")
            try:
                key, end = self._scalar(self.text, at)
            except json.JSONDecodeError as error:
                raise self._broken_text(error) from None
            colon = self.space(end)
            if self.text[colon : colon + 1] != ":":
                raise self.error(colon, f"expected ':' after {shown(key)}")
            table[key] = self.value(self.space(colon + 1), (*path, key), line_at=at)
            at = self._next(self.end, "}")
        self.end = self.space(at + 1)
        return table

    def _array(self, at: int, path: KeyPath) -> list[Any]:
        items: list[Any] = []
        at = self.space(at + 1)
        while self.text[at : at + 1] != "]":
            items.append(self.value(at, (*path, len(items))))
            at = self._next(self.end, "]")
        self.end = self.space(at + 1)
        return items

    def _next(self, at: int, close: str) -> int:
        """The next item's offset, or that of the closing bracket."""
        mark = self.text[at : at + 1]
        if mark == close:
            return at
        if mark != ",":
            raise self.error(at, f"expected ',' or '{close}'")
        following = self.space(at + 1)
        if self.text[following : following + 1] == close:
            raise Unreadable(
                self.lines.line(at),
                "not JSON: there is a comma after the last item",
                "remove it",
            )
        return following
