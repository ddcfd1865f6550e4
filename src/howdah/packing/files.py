"""What a job file's ``files`` names: local files and folders, and what lies at URLs."""

from __future__ import annotations

import contextlib
import os
import posixpath
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.packing import tarball
from howdah.packing.archives import Archive, ArchiveKind, PackingError, Progress, quiet
from howdah.packing.cache import Cache, Content, tar_of
from howdah.packing.folders import look
from howdah.packing.ignore_rules import only_caches
from howdah.storage.stores import file_system

if TYPE_CHECKING:
    from fsspec.spec import AbstractFileSystem

ARCHIVES = (".tar.gz", ".tgz", ".tar", ".zip", ".jar")
"""Endings by which YARN knows what it can unpack (``FSDownload.unpack``)."""
READY = ("hdfs://", "viewfs://", "webhdfs://", "swebhdfs://", "har://")
"""Where YARN itself reads."""
_VERSION_HEADERS = ("ETag", "Last-Modified", "Content-MD5", "Digest")
"""By which web servers tell one version from another, as fsspec passes them on."""


class Extra(msgspec.Struct, frozen=True):
    """One thing that is put beside the source."""

    name: str
    """What it is called there: the name of a file, or of a folder."""
    archive: Archive
    unpack: bool
    """The archive's content is the folder of that name."""


class FilesLine(msgspec.Struct, frozen=True):
    """One line of ``files``, understood."""

    place: str
    name: str
    unpack: bool


def files(
    lines: Sequence[str],
    folder: Path,
    cache: Path,
    progress: Progress = quiet,
    *,
    fresh: bool = False,
) -> list[Extra]:
    """What lines of ``files`` name, packed. Paths are relative to ``folder``, the job file's. ``fresh``
    fetches again what lies at URLs.

    Raises:
        PackingError: something is not there, or cannot be what is said.
    """
    return [_extra(wanted, folder, cache, progress, fresh) for wanted in understand(lines)]


def understand(lines: Sequence[str]) -> list[FilesLine]:
    """What lines of ``files`` mean, each ``place`` or ``place -> name``.

    Raises:
        PackingError: a line means nothing, or two have one name.
    """
    found: dict[str, FilesLine] = {}
    for line in lines:
        wanted = _understand(line)
        if wanted.name in found:
            raise PackingError(
                f"files: {found[wanted.name].place} and {wanted.place} are both to be called "
                f"{wanted.name!r}; give one of them another name: 'place -> name'"
            )
        found[wanted.name] = wanted
    return list(found.values())


def is_url(place: str) -> bool:
    """Whether it is a URL, and no path."""
    return "://" in place or "::" in place


def path_of(place: str, folder: Path) -> Path:
    """A path of the job file, which is relative to ``folder``."""
    return Path(os.path.normpath(folder / Path(place.removeprefix("file://")).expanduser()))


def _understand(line: str) -> FilesLine:
    place, arrow, name = line.partition("->")
    place, name = place.strip(), name.strip()
    unpack = name.endswith("/")
    name = name.rstrip("/")
    if not arrow and not name:
        name = posixpath.basename(place.rstrip("/"))
    if not place or not name:
        raise PackingError(f"files: {line!r} lacks a place or a name; write 'place -> name'")
    if "/" in name or name in (".", "..") or "\0" in name:
        raise PackingError(
            f"files: {name!r} in {line!r} is not one name; things are put beside the source, and "
            "not into folders there"
        )
    if unpack and is_url(place) and not place.endswith(ARCHIVES):
        raise not_an_archive(place)
    return FilesLine(place, name, unpack)


def _extra(wanted: FilesLine, folder: Path, cache: Path, progress: Progress, fresh: bool) -> Extra:
    place = wanted.place.removeprefix("file://")
    if place.startswith(READY):
        return Extra(wanted.name, elsewhere(place, ArchiveKind.FILES), wanted.unpack)
    if is_url(place):
        archive = fetched(place, ArchiveKind.FILES, cache, progress, fresh=fresh)
        return Extra(wanted.name, archive, wanted.unpack)
    path = path_of(place, folder)
    if path.is_dir():
        return Extra(wanted.name, _packed(path, cache, progress), True)
    if not path.is_file():
        raise PackingError(f"files: there is no file or folder {path}")
    if wanted.unpack and not path.name.endswith(ARCHIVES):
        raise not_an_archive(str(path))
    return Extra(wanted.name, ready(path, ArchiveKind.FILES, cache), wanted.unpack)


def elsewhere(url: str, kind: ArchiveKind, python: str | None = None) -> Archive:
    """Something that lies where YARN can read it."""
    return Archive(
        kind=kind,
        digest="",
        path=None,
        size=0,
        files=0,
        unpacked_size=0,
        suffix=_suffix(url),
        python=python,
        url=url,
    )


def ready(path: Path, kind: ArchiveKind, cache: Path) -> Archive:
    """A local file as it is; only its digest is worked out, once.

    Raises:
        PackingError: it cannot be read.
    """

    def make(_scratch: Path) -> Archive:
        return _of_file(path, kind, path.name)

    return Cache(cache).get(kind, ("ready", str(path), _stamp(path)), make)


def fetched(
    url: str, kind: ArchiveKind, cache: Path, progress: Progress, *, fresh: bool = False
) -> Archive:
    """What lies at a URL that YARN does not read, brought here unless it is the same as the last time.
    It is brought anyway if it is to be ``fresh``, or where nothing says whether it has changed.

    Raises:
        PackingError: it cannot be brought.
    """
    with _in_words(url):
        fs, path = file_system(url, written=False)
        version = _version(fs, path)

    def make(scratch: Path) -> Archive:
        progress(f"fetching {url}", 0, None)
        target = scratch / "fetched"
        with _in_words(url):
            fs.get_file(path, str(target))
        return _of_file(target, kind, url)

    inputs = ("fetched", url, version)
    return Cache(cache).get(kind, inputs, make, fresh=fresh or version is None)


@contextlib.contextmanager
def _in_words(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise PackingError(f"there is nothing at {url}") from None
    except Exception as error:  # whatever an fsspec implementation raises
        text = str(error) or type(error).__name__
        raise PackingError(f"{url} cannot be fetched: {text}") from error


def _version(fs: AbstractFileSystem, path: str) -> object:
    """What changes when the content at a URL does; None where its server does not tell."""
    key = str(fs.ukey(path))
    if "http" not in fs.protocol:
        return key
    # There the key is made of the URL alone.
    try:
        info = fs.info(path)
    except FileNotFoundError:  # also for what is denied, or does not answer: fetching it says what
        return None
    told = [info.get(header) for header in _VERSION_HEADERS]
    return (key, info.get("size"), told) if any(told) else None


def _packed(path: Path, cache: Path, progress: Progress) -> Archive:
    found = look(path, only_caches(path.resolve()))

    def make(scratch: Path) -> Archive:
        content = Content(entries=found.entries, rows=found.by_top(), notes=found.notes)
        return tar_of(ArchiveKind.FILES, content, scratch, progress)

    return Cache(cache).get(ArchiveKind.FILES, (str(path), found.stamps), make)


def _of_file(path: Path, kind: ArchiveKind, name: str) -> Archive:
    size = path.stat().st_size
    return Archive(
        kind=kind,
        digest=tarball.sha256(path),
        path=path,
        size=size,
        files=1,
        unpacked_size=size,
        suffix=_suffix(name),
    )


def _suffix(name: str) -> str:
    """The ending that says what to do with it; YARN looks at nothing else."""
    known = next((ending for ending in ARCHIVES if name.endswith(ending)), None)
    return known or ""


def _stamp(path: Path) -> tuple[int, ...]:
    try:
        status = path.stat()
    except OSError as error:
        raise PackingError(f"{path} cannot be read: {error.strerror or error}") from error
    return (status.st_size, status.st_ino, status.st_ctime_ns)


def not_an_archive(place: str) -> PackingError:
    """That something which is to be unpacked cannot be."""
    return PackingError(
        f"files: {place} cannot be unpacked; it is one of {', '.join(ARCHIVES)} that can. Without "
        "the / at the end of its name it is put there as a file"
    )
