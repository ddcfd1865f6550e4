"""What packing makes: an archive in the local cache, named by the digest of its bytes."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

Progress = Callable[[str, int, int | None], None]
"""What is being done, how many bytes of it are done, and of how many if that is known."""


class PackingError(Exception):
    """Something cannot be packed; the text is for the user: what, which value, what to do."""


class ArchiveKind(enum.Enum):
    """What an archive holds. The value begins its file's name on the cluster."""

    RUNTIME = "runtime"
    """An interpreter, and the packages that Howdah's own processes need."""
    HOWDAH = "howdah"
    """Howdah itself."""
    ENVIRONMENT = "environment"
    """The Python of the user's programs."""
    SOURCE = "source"
    FILES = "files"


class SizeRow(msgspec.Struct, frozen=True):
    """One line of an explanation: what part of an archive is how big, unpacked."""

    name: str
    size: int
    files: int = 1


class Archive(msgspec.Struct, frozen=True, kw_only=True):
    """A packed archive (``tar.gz``, unless it came ready), or one that lies elsewhere already."""

    kind: ArchiveKind
    digest: str
    """SHA-256 (hexadecimal) of the archive's bytes; empty if it is somewhere else (`url`)."""
    path: Path | None
    """In the local cache, None if it is somewhere else."""
    size: int
    """Of the file, in bytes."""
    files: int
    """Files and links in it."""
    unpacked_size: int
    """Bytes of all files in it."""
    suffix: str = ".tar.gz"
    """How its name ends: YARN goes by that when it unpacks."""
    cached: bool = False
    """The file is the cache's own; else it is somebody's, and never touched."""
    python: str | None = None
    """The interpreter in it, relative to the unpacked archive."""
    url: str | None = None
    """Where it lies ready, if it need not be uploaded."""
    rows: tuple[SizeRow, ...] = ()
    """Its biggest parts."""
    notes: tuple[str, ...] = ()
    """What is worth knowing, in sentences."""

    @property
    def name(self) -> str:
        """Name of its file on the cluster."""
        return f"{self.kind.value}-{self.digest[:32]}{self.suffix}"


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where packed archives are kept on this machine (XDG base directories)."""
    base = Path(env.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():  # the specification has relative ones ignored
        base = Path(env.get("HOME") or Path.home(), ".cache")
    return base / "howdah"


def quiet(what: str, done: int, total: int | None) -> None:
    """Progress for those who do not look."""


def quantity(size: float) -> str:
    """``1.4 GB``: bytes for people, in powers of 1000."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
