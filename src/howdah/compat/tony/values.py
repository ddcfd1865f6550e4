"""TonY's ways to write values, read as its source reads them, or better where that loses something.

Every reader raises `ValueError` with words for the user: what is wrong, and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_ENTRY = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*=")
_MEMORY = re.compile(r"([0-9]+)\s*([mMgG]?)[bB]?")
_ARCHIVE = "#archive"
_DIVIDER = "::"


class TonyResource(msgspec.Struct, frozen=True):
    """A file or folder for containers: ``SRC[::NAME][#archive]`` (TonY's LocalizableResource)."""

    place: str
    name: str
    archive: bool

    @property
    def remote(self) -> bool:
        """It is a URL, not a path of this machine."""
        return "://" in self.place


def text(value: str) -> str:
    """Any text."""
    return value.strip()


def words(value: str) -> list[str]:
    """A list with commas."""
    return [word for part in value.split(",") if (word := part.strip())]


def flag(value: str) -> bool:
    """``true`` or ``false``, as Hadoop's Configuration reads them."""
    found = value.strip().lower()
    if found not in ("true", "false"):
        raise ValueError("is neither true nor false")
    return found == "true"


def whole(value: str) -> int:
    """A whole number."""
    try:
        return int(value.strip())
    except ValueError:
        raise ValueError("is not a whole number") from None


def count(value: str) -> int:
    """A whole number of at least 0."""
    number = whole(value)
    if number < 0:
        raise ValueError("is less than 0")
    return number


def memory(value: str) -> str:
    """``2g``, ``2048m``, or a bare number of megabytes (Utils.parseMemoryString)."""
    found = _MEMORY.fullmatch(value.strip())
    if found is None:
        raise ValueError('is no amount of memory; TonY knows "2g", "2048m" and 2048')
    return f"{int(found[1])}{(found[2] or 'm').lower()}"


def milliseconds(value: str) -> str | None:
    """A time-out in milliseconds; none at all for 0 and less."""
    return _duration(whole(value))


def in_seconds(value: str) -> str | None:
    """A time-out in seconds; none at all for 0 and less."""
    return _duration(whole(value) * 1000)


def _duration(amount_ms: int) -> str | None:
    if amount_ms <= 0:
        return None
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if amount_ms % size == 0:
            return f"{amount_ms // size}{unit}"
    return f"{amount_ms}ms"


def environment(value: str) -> dict[str, str]:
    """``A=1,B=2``. What has no ``NAME=`` belongs to the value before it.

    TonY cuts at every comma, so that ``A=x,y`` gives it a variable ``y``.
    """
    entries: list[str] = []
    for part in value.split(","):
        if entries and not _ENTRY.match(part.strip()):
            entries[-1] += "," + part
        else:
            entries.append(part)
    return variables(entry for entry in entries if entry.strip())


def variables(entries: Iterable[str]) -> dict[str, str]:
    """Entries ``NAME=value``; a bare name is an empty value (Utils.parseKeyValue)."""
    found: dict[str, str] = {}
    for entry in entries:
        name, _, value = entry.strip().partition("=")
        if name:
            found[name] = value
    return found


def resources(value: str) -> list[TonyResource]:
    """Resources with commas between them."""
    return [resource(part) for part in words(value)]


def resource(value: str) -> TonyResource:
    """One resource; without a name it has that of its file."""
    archive = _ARCHIVE in value
    place, *names = value.replace(_ARCHIVE, "").split(_DIVIDER)
    if len(names) > 1 or not place:
        raise ValueError("is no resource; TonY knows SOURCE, SOURCE::NAME and SOURCE::NAME#archive")
    name = names[0] if names else place.rstrip("/").rpartition("/")[2]
    return TonyResource(place, name, archive)
