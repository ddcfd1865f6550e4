"""What each of TonY's keys and options is in a job file, or why nothing needs it: ``table.toml``.

`howdah.compat.tony.convert` follows it, the migration page of the documentation shows it, and a
test holds it against TonY's own keys.
"""

from __future__ import annotations

import enum
import re
import tomllib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from howdah.compat.tony import values

_PLACEHOLDERS = {
    "<type>": r"(?P<type>[A-Za-z][A-Za-z0-9_-]*)",
    "<group>": r"(?P<group>[A-Za-z0-9_-]+)",
    "<resource>": r"(?P<resource>[A-Za-z][A-Za-z0-9_./-]*)",
}


class RowKind(enum.Enum):
    """What becomes of a key."""

    MAPPED = "mapped"
    """It is a key of the job file."""
    CHECKED = "checked"
    """It is looked at when the configuration is read, and no part of the job."""
    NOT_NEEDED = "not needed"
    """Nothing needs it; the words say why."""


class TonyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One key."""

    key: str
    default: str = ""
    kind: RowKind = RowKind.MAPPED
    to: str = ""
    """Where it goes in the job file."""
    read: Callable[[str], Any] | None = None
    """How its value is read, where it goes there as it is; else several keys make the value."""
    words: str = ""

    def match(self, key: str) -> re.Match[str] | None:
        """The key with what stands for its placeholders, if it is one of this row."""
        return _pattern(self.key).fullmatch(key)


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One option of TonY's command line."""

    name: str
    value: str = ""
    """What is written behind it; empty for a switch."""
    repeated: bool = False
    kind: RowKind = RowKind.MAPPED
    to: str = ""
    words: str


_TABLE = tomllib.loads(
    resources.files("howdah.compat.tony").joinpath("table.toml").read_text("utf-8")
)


def _fields(given: dict[str, Any]) -> dict[str, Any]:
    words = given.get("words", "")
    for name, reason in _TABLE["reasons"].items():
        words = words.replace(f"{{{name}}}", reason)
    return {**given, "kind": RowKind(given.get("kind", "mapped")), "words": words}


def _row(key: str, given: dict[str, Any]) -> TonyRow:
    read = getattr(values, given["read"]) if "read" in given else None
    return TonyRow(**{**_fields(given), "key": key, "read": read})


SECTIONS: tuple[tuple[str, tuple[TonyRow, ...]], ...] = tuple(
    (title, tuple(_row(*each) for each in rows.items()))
    for title, rows in _TABLE["sections"].items()
)
"""All rows as a reader meets them."""

ROWS = tuple(
    sorted(
        (row for _, rows in SECTIONS for row in rows),
        # A key written out is looked for before a pattern it would also fit.
        key=lambda row: ("<" in row.key, -len(row.key)),
    )
)

NO_TYPES = frozenset(_TABLE["no-types"])
"""Second words of keys that are no task types."""

OPTIONS = tuple(Option(name=name, **_fields(each)) for name, each in _TABLE["options"].items())


def row_of(key: str) -> tuple[TonyRow, dict[str, str]] | None:
    """The row of a key, and what stands for its placeholders; None for a key that is not TonY's."""
    for row in ROWS:
        found = row.match(key)
        if found is not None and found.groupdict().get("type") not in NO_TYPES:
            return row, found.groupdict()
    return None


@cache
def _pattern(key: str) -> re.Pattern[str]:
    text = re.escape(key)
    for name, pattern in _PLACEHOLDERS.items():
        text = text.replace(re.escape(name), pattern)
    return re.compile(text)
