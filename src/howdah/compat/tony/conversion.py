"""A conversion under way, and what comes of it."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import msgspec

from howdah.compat.tony.options import Arguments
from howdah.compat.tony.settings import Setting, Settings
from howdah.spec.problems import JobFileError, JobFileProblem, shown
from howdah.spec.values import Table


class About(enum.Enum):
    """What a note is about."""

    UNKNOWN = "unknown"
    """TonY has no such key."""
    NOT_NEEDED = "not needed"
    CHANGED = "changed"
    """It works otherwise here than with TonY."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """Something to tell the user about one key or option."""

    about: About
    key: str
    text: str
    place: str = ""
    """The file it was set in."""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        return f"{place}{self.key}: {self.text}"


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """A job file's document, and what is to be said about it."""

    document: Table
    notes: tuple[Note, ...]


class ConversionBuilder:
    """A conversion under way: reads settings, and collects the document, notes and problems."""

    def __init__(self, settings: Settings, given: Arguments) -> None:
        self.settings = settings
        self.given = given
        self.document: Table = {}
        self.notes: list[Note] = []
        self._problems: list[JobFileProblem] = []

    def value(self, key: str, read: Callable[[str], Any]) -> Any:
        """The value of a key, None if nobody set it; a bad one is a problem."""
        setting = self.settings.get(key)
        return None if setting is None else self._read(key, setting, read)

    def _read(self, key: str, setting: Setting, read: Callable[[str], Any]) -> Any:
        try:
            return read(setting.text)
        except ValueError as error:
            message, _, hint = f"{shown(setting.text)} {error}".partition("; ")
            self.problem(key, message, hint or None, setting)
            return None

    def problem(
        self, key: str, message: str, hint: str | None = None, setting: Setting | None = None
    ) -> None:
        """Note why the job cannot be run."""
        setting = setting or self.settings.get(key)
        found = JobFileProblem(
            file=setting.place if setting is not None else None,
            key=key,
            value=setting.text if setting is not None else None,
            message=message,
            hint=hint,
        )
        if found not in self._problems:
            self._problems.append(found)

    def note(self, about: About, key: str, text: str) -> None:
        """Note something to tell."""
        setting = self.settings.get(key)
        place = setting.place if setting is not None and setting.place != "--conf" else ""
        self.notes.append(Note(about=about, key=key, text=text, place=place))

    def put(self, path: str, value: Any) -> None:
        """Put a value at a dotted place of the document; None and nothing at all are left out."""
        if value is None or value in ([], {}):
            return
        table = self.document
        *tables, key = path.split(".")
        for name in tables:
            table = table.setdefault(name, {})
        table[key] = value

    def raise_any(self) -> None:
        """Raise what was found.

        Raises:
            JobFileError: there is a problem.
        """
        if self._problems:
            raise JobFileError(self._problems)
