"""One key or option of TonY's in the table, and what several of them have in common."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from typing import Any

import msgspec

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


_compiled: dict[str, re.Pattern[str]] = {}


def _pattern(key: str) -> re.Pattern[str]:
    if key not in _compiled:
        text = re.escape(key)
        for name, pattern in _PLACEHOLDERS.items():
            text = text.replace(re.escape(name), pattern)
        _compiled[key] = re.compile(text)
    return _compiled[key]


def not_needed(key: str, words: str, default: str = "") -> TonyRow:
    """A key that nothing needs, and why."""
    return TonyRow(key=key, default=default, kind=RowKind.NOT_NEEDED, words=words)


def gone(key: str, words: str) -> TonyRow:
    """The same for a key that newer TonY has not either."""
    return TonyRow(key=key, kind=RowKind.NOT_NEEDED, words=f"{words} (a key of older TonY)")


PORTAL = "a setting of TonY's portal, not of a job"
HISTORY = (
    "a job's directory is its history, complete from the first moment and readable while the job "
    "runs; `store` in the job or site file says where it is"
)
JVM = "there is no JVM beside your programs"
BEATS = (
    "a closed connection is noticed at once, a silent agent after some missed beats; a slow "
    "program is no silent agent"
)
OWN_TESTS = "it makes TonY fail on purpose, for its own tests"
