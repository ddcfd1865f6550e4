"""TOML with the line of every key. `tomllib` gives the values, a scanner beside it the lines.

The scanner accepts more than TOML does and stops at the first thing it cannot make out: saying
what is wrong there is left to `tomllib`. It runs first, so that the bounds hold for `tomllib`
too, whose time grows with the square of a dotted key's length.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any

from howdah.spec.problems import KeyPath, shown
from howdah.spec.readers.reading import LineIndex, PlacedValues, Unreadable

_BLANK = re.compile(r"[ \t]*")
_SPACE = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*+")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*'""")
_STRING = re.compile(r"""\"(?:[^"\\\n]++|\\.)*+"|'[^'\n]*'""", re.DOTALL)
# The end of a long string, or what only looks like one. Searched for rather than matched with the string: Python before
# 3.11.5 loses such matches (possessive quantifiers around something that backtracks).
_LONG_ENDS = {
    '"""': re.compile(r'\\.|"{3,5}', re.DOTALL),
    "'''": re.compile(r"'{3,5}"),
}
_PLAIN = re.compile(r"""[^\s,\[\]{}#="'][^\n,\[\]{}#="']*""")
_PLACE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def read(text: str) -> tuple[dict[str, Any], PlacedValues]:
    """The document and the lines of its keys.

    Raises:
        Unreadable: it is not TOML, or past the bounds of a job file.
    """
    text = text.replace("\r\n", "\n")
    scanner = _Scanner(text)
    try:
        scanner.document()
    except _Lost:
        pass  # tomllib says what is wrong there.
    try:
        return tomllib.loads(text), scanner.reading
    except tomllib.TOMLDecodeError as error:
        if "Cannot" in str(error) and scanner.reading.repeated:
            # Something is written twice: the reading says what, and where the first is.
            return {}, scanner.reading
        raise _in_our_words(text, str(error), scanner) from None
    except ValueError:
        raise Unreadable(None, "a number has too many digits") from None


class _Lost(Exception):
    """The scanner met something that is not TOML."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.reading = PlacedValues()
        self._lines = LineIndex(text)
        self._arrays: dict[KeyPath, int] = {}
        """Arrays of tables, and the position of their last table."""
        self._headers: dict[KeyPath, int] = {}
        self.open_lists: list[int] = []
        """Lines where the lists begin that the scanner is inside of."""

    def document(self) -> None:
        """Every header and every key."""
        header: KeyPath = ()
        while True:
            self._skip(_SPACE)
            if self.at >= len(self.text):
                return
            if self.text[self.at] == "[":
                header = self._header()
            else:
                self._pair(header)
            self._skip(_BLANK)
            if self.text[self.at : self.at + 1] not in ("", "\n", "#"):
                raise _Lost

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise _Lost
        self.at = found.end()
        return found[0]

    def _expect(self, mark: str) -> None:
        if not self.text.startswith(mark, self.at):
            raise _Lost
        self.at += len(mark)

    def _line(self) -> int:
        return self._lines.line(self.at)

    def _keys(self) -> KeyPath:
        """A dotted key."""
        keys: list[str] = []
        while True:
            self._skip(_BLANK)
            keys.append(_unquoted(self._skip(_KEY)))
            self.reading.more(0, len(keys), self._line())
            self._skip(_BLANK)
            if not self.text.startswith(".", self.at):
                return tuple(keys)
            self.at += 1

    def _header(self) -> KeyPath:
        line = self._line()
        marks = ("[[", "]]") if self.text.startswith("[[", self.at) else ("[", "]")
        self._expect(marks[0])
        path = self._through_arrays(self._keys())
        self._expect(marks[1])
        if marks[0] == "[[":
            # The last part went to the array's last table: this header begins the next one.
            path = path[:-1] if isinstance(path[-1], int) else path
            self._arrays[path] = self._arrays.get(path, -1) + 1
            path = (*path, self._arrays[path])
        elif path in self._headers:
            self.reading.more(1, 0, line)
            self.reading.repeated.append((path, line))
        self._headers.setdefault(path, line)
        for length in range(1, len(path) + 1):
            if path[:length] not in self.reading.lines:
                self.reading.value(path[:length], line)
        # A table's own line is its header's, even where `[a.b]` came before `[a]`.
        self.reading.lines[path] = self._headers[path]
        return path

    def _through_arrays(self, keys: KeyPath) -> KeyPath:
        """The path a header names: through the last table of every array on the way."""
        path: KeyPath = ()
        for key in keys:
            path = (*path, key)
            if path in self._arrays:
                path = (*path, self._arrays[path])
        return path

    def _pair(self, table: KeyPath) -> None:
        line = self._line()
        keys = self._keys()
        self._expect("=")
        path = table
        for key in keys[:-1]:
            path = (*path, key)
            if path not in self.reading.lines:
                self.reading.value(path, line)
        self.reading.value((*path, keys[-1]), line)
        self._skip(_BLANK)
        self._value((*path, keys[-1]))

    def _value(self, path: KeyPath) -> None:
        match self.text[self.at : self.at + 1]:
            case "[":
                self._array(path)
            case "{":
                self._table(path)
            case '"' | "'" if (quotes := self.text[self.at : self.at + 3]) in _LONG_ENDS:
                self._long_string(quotes)
            case '"' | "'":
                self._skip(_STRING)
            case _:
                self._skip(_PLAIN)

    def _long_string(self, quotes: str) -> None:
        for found in _LONG_ENDS[quotes].finditer(self.text, self.at + 3):
            if not found[0].startswith("\\"):
                self.at = found.end()
                return
        raise _Lost

    def _array(self, path: KeyPath) -> None:
        self.open_lists.append(self._line())
        self._expect("[")
        index = 0
        while True:
            self._skip(_SPACE)
            if self.text.startswith("]", self.at):
                self.at += 1
                self.open_lists.pop()
                return
            self.reading.value((*path, index), self._line())
            self._value((*path, index))
            index += 1
            self._skip(_SPACE)
            if not self.text.startswith("]", self.at):
                self._expect(",")

    def _table(self, path: KeyPath) -> None:
        self._expect("{")
        self._skip(_SPACE)
        while not self.text.startswith("}", self.at):
            self._pair(path)
            self._skip(_SPACE)
            if not self.text.startswith("}", self.at):
                self._expect(",")
                self._skip(_SPACE)
        self.at += 1


def _unquoted(key: str) -> str:
    if key[0] == "'" or (key[0] == '"' and "\\" not in key):
        return key[1:-1]
    if key[0] == '"':
        try:
            return tomllib.loads(f"k = {key}")["k"]
        except tomllib.TOMLDecodeError:
            raise _Lost from None
    return key


def _in_our_words(text: str, complaint: str, scanner: _Scanner) -> Unreadable:
    """`tomllib`'s complaint, with a hint where the mistake is a common one."""
    found = _PLACE.search(complaint)
    complaint = _PLACE.sub("", complaint)
    lines = text.split("\n")
    number = int(found[1]) if found and found[1] else len(text.rstrip().split("\n"))
    if scanner.open_lists:
        hint = f"the list that begins on line {scanner.open_lists[-1]} is not closed"
    else:
        hint = _hint(lines[number - 1], complaint)
    return Unreadable(number, f"not TOML: {complaint}", hint)


def _hint(line: str, complaint: str) -> str | None:
    key, equals, value = (part.strip() for part in line.partition("="))
    if complaint == r"Illegal character '\n'":
        return "the text is not closed: it needs a quote at its end"
    if "\\" in complaint or "hex value" in complaint:
        return "in 'single quotes' a backslash is only a backslash"
    if not equals and re.match(r"""["'\w.-]+\s*:""", line.strip()):
        return 'TOML writes key = "value", with an equals sign'
    if value in ("True", "False"):
        return f"write {value.lower()}"
    if value in ("None", "null"):
        return "leave the key out"
    plain_key = re.fullmatch(r"[\w.-]+", key)
    if plain_key and re.match(r"[^\s\"'\[{]", value) and re.search(r"[A-Za-z/$~]", value):
        return f"text needs quotes: {key} = {shown(value)}"
    if "inline table" in complaint.lower() or (value.startswith("{") and "}" not in value):
        return "an inline table { … } must be on one line; use a [table] for more"
    return None
