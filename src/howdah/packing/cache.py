"""The local cache of packed archives.

``index/<kind>-<key>.json`` says which archive a set of inputs makes, ``archives/<name>`` are the
archives; ``folders/<key>`` are what jobs of this machine use as folders. The key is a digest of what the inputs look like from outside (names, sizes, times of
change, versions), so that packing the same again costs a look at the inputs and nothing more. An
archive that is not, to the time of its last change, what was written is made anew.

Jobs run programs from there, so nobody else may be able to change it (`howdah.storage.ownership`).
Processes exclude each other by a lock for each key; everything appears by a rename. Archives that
have not been used for longest go when there are more than `LIMIT` bytes of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from howdah.packing import tarball
from howdah.packing.archives import Archive, ArchiveKind, PackingError, SizeRow
from howdah.storage import ownership
from howdah.storage.files import make_private_folder

LIMIT = 10 * 10**9
"""Bytes of archives that are kept; what was used within the last hour is kept anyway."""
_IN_USE_S = 3600.0
_LEFT_BEHIND_S = 86400.0
_FORGOTTEN_S = 90 * 86400.0
_OUTDATED = ".outdated"
_HELD = ".held"
_FORMAT = 2
"""Grows when nothing that was cached before may be used. What one kind of archive is made of has a number
of its own in its inputs."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into an archive."""

    entries: tuple[tarball.TarEntry, ...]
    python: str | None = None
    rows: tuple[SizeRow, ...] = ()
    notes: tuple[str, ...] = ()


class _Record(msgspec.Struct, frozen=True):
    archive: Archive
    stamp: tuple[int, ...]


class Cache:
    """The cache in one folder.

    Raises:
        PackingError: the folder cannot be made, or somebody else could put programs there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.archives: Path = folder / "archives"
        self._folders = folder / "folders"
        self._index = folder / "index"
        self._locks = folder / "locks"
        try:
            ownership.make_own_folder(folder)
        except OSError as error:
            raise self._in_words(error) from error

    def get(
        self,
        kind: ArchiveKind,
        inputs: object,
        make: Callable[[Path], Archive],
        *,
        fresh: bool = False,
    ) -> Archive:
        """The archive of these inputs, made by ``make(scratch folder)`` if it is not there. One that
        is made outside of the scratch folder stays where it is, and only its digest is kept.
        A ``fresh`` one is made though there is one.

        Raises:
            PackingError: it cannot be made, or the cache folder cannot be written.
        """
        text = msgspec.json.encode((_FORMAT, kind, inputs), order="deterministic")
        key = f"{kind.value}-{hashlib.sha256(text).hexdigest()[:40]}"
        if not fresh and (found := self._find(key)) is not None:
            return found
        try:
            # A few hundred locks for ever, rather than one for each key there ever was.
            with self._lock(f"{kind.value}-{key[-2:]}"):
                found = None if fresh else self._find(key)  # another process may have made it
                return found or self._make(key, make)
        except OSError as error:
            raise self._in_words(error) from error

    def folder_of(self, inputs: object, make: Callable[[Path], None]) -> Path:
        """The folder of these inputs, made by ``make(folder that is not there yet)`` if it is not
        in the cache. Nothing may be changed in it.

        Raises:
            PackingError: it cannot be made, or the cache folder cannot be written.
        """
        key = _folder_key(inputs)
        try:
            with self._lock(f"folder-{key[-2:]}"):
                final = self._newest(key)
                if final is None or _is_outdated(final):
                    final = self._folders / (f"{key}-{time.time_ns()}" if final else key)
                    self._folders.mkdir(mode=0o700, exist_ok=True)
                    with self.scratch() as scratch:
                        make(scratch / "folder")
                        (scratch / "folder").rename(final)
                os.utime(final)  # its last use
        except OSError as error:
            raise self._in_words(error) from error
        return final

    def hold(self, archive: Archive) -> None:
        """Keep an archive as long as a folder: a job of this machine reads it where it is.

        Raises:
            PackingError: the cache folder cannot be written.
        """

        def make(target: Path) -> None:
            target.mkdir(mode=0o700)
            (target / _HELD).symlink_to(self.archives / archive.name)

        self.folder_of(("held", archive.name), make)

    def outdate_folder(self, inputs: object) -> None:
        """Have the folder of these inputs made again for its next user, beside the one in which jobs may run.

        Raises:
            PackingError: the cache folder cannot be written.
        """
        key = _folder_key(inputs)
        try:
            with self._lock(f"folder-{key[-2:]}"):
                if (newest := self._newest(key)) is not None and not _is_outdated(newest):
                    (self._folders / f"{key}-{time.time_ns()}{_OUTDATED}").mkdir(mode=0o700)
        except OSError as error:
            raise self._in_words(error) from error

    def _newest(self, key: str) -> Path | None:
        """Of the folders of a key, which were made one after the other, and the marks after those that are
        outdated."""
        return max(self._folders.glob(f"{key}*"), default=None)

    def _in_words(self, error: OSError) -> PackingError:
        where = error.filename or self.folder
        return PackingError(
            f"packing failed at {where}: {error.strerror or error}; archives are kept in "
            f"{self.folder}: XDG_CACHE_HOME names another place"
        )

    @contextlib.contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Alone among all processes that use this cache."""
        self._locks.mkdir(mode=0o700, exist_ok=True)
        with (self._locks / name).open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for the time of making something."""
        self.sweep()
        folder = self.folder / "scratch" / secrets.token_hex(8)
        make_private_folder(folder)
        try:
            yield folder
        finally:
            _remove(folder)

    def sweep(self, limit: int = LIMIT, unused_s: float = _FORGOTTEN_S) -> list[tuple[Path, int]]:
        """Remove what has not been used for so long, of the rest what has not been used for longest
        if there is more than the limit, and what processes left that died. Returns the archives and
        folders that are gone, with their sizes."""
        now = time.time()
        for path, status in _entries(self.folder / "scratch"):
            if status.st_mtime < now - _LEFT_BEHIND_S:
                _remove(path)
        gone: list[tuple[Path, int]] = []
        for path, status in _entries(self._folders):
            if status.st_mtime < now - unused_s:
                with contextlib.suppress(FileNotFoundError):  # another process removes it, too
                    files = (each for each in path.rglob("*") if not each.is_dir())
                    gone.append((path, sum(file.lstat().st_size for file in files)))
                _remove(path)
        kept: set[str] = set()
        for link in self._folders.glob(f"*/{_HELD}"):
            with contextlib.suppress(FileNotFoundError):
                kept.add(link.readlink().name)
        total = 0
        for used, path, record in self._records():
            archive = record.archive if record is not None else None
            unused = used < now - unused_s
            if archive is None or archive.path is None:
                unused = True
            elif archive.cached:
                name = archive.path.name
                if name not in kept:
                    unused = unused or (total + archive.size > limit and used < now - _IN_USE_S)
                    if not unused:
                        kept.add(name)
                        total += archive.size
            if unused:
                path.unlink(missing_ok=True)
        for path, status in _entries(self.archives):
            if path.name not in kept and status.st_mtime < now - _IN_USE_S:
                path.unlink(missing_ok=True)
                gone.append((path, status.st_size))
        return gone

    def _records(self) -> list[tuple[float, Path, _Record | None]]:
        """What the index has, with the time of its last use, the latest first."""
        found = [(status.st_mtime, path) for path, status in _entries(self._index)]
        return [(used, path, _read(path)) for used, path in sorted(found, reverse=True)]

    def _find(self, key: str) -> Archive | None:
        path = self._index / f"{key}.json"
        record = _read(path)
        if record is None or record.archive.path is None:
            return None
        if _stamp(record.archive.path) != record.stamp:
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # its last use
        return record.archive

    def _make(self, key: str, make: Callable[[Path], Archive]) -> Archive:
        for folder in (self.archives, self._index):
            folder.mkdir(mode=0o700, exist_ok=True)
        with self.scratch() as scratch:
            archive = make(scratch)
            assert archive.path is not None
            final = archive.path
            if final.is_relative_to(scratch):
                final = self.archives / archive.name
                # Others may be reading the one that is there; if it is the same, it stays.
                if not (final.is_file() and tarball.sha256(final) == archive.digest):
                    archive.path.replace(final)
                archive = msgspec.structs.replace(archive, path=final, cached=True)
            record = scratch / "record"
            record.write_bytes(msgspec.json.encode(_Record(archive, _stamp(final)), enc_hook=str))
            record.replace(self._index / f"{key}.json")
        return archive


def tar_of(
    kind: ArchiveKind,
    content: Content,
    scratch: Path,
    progress: Callable[[str, int, int | None], None],
    level: int = tarball.LEVEL,
) -> Archive:
    """Write the archive of that content into the folder."""
    path = scratch / "archive.tar.gz"
    packed = tarball.write(content.entries, path, f"packing {kind.value}", progress, level)
    return Archive(
        kind=kind,
        digest=packed.digest,
        path=path,
        size=packed.size,
        files=packed.files,
        unpacked_size=packed.unpacked_size,
        python=content.python,
        rows=content.rows,
        notes=content.notes,
    )


def _read(path: Path) -> _Record | None:
    try:
        return _decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, NotImplementedError):
        return None


def _path(type_: type, value: object) -> object:
    if type_ is Path:
        return Path(str(value))
    raise NotImplementedError(type_)


# Made once, while this is imported: see `howdah.wire.decoders`. Archives are looked for by several threads.
_decode = msgspec.json.Decoder(_Record, dec_hook=_path).decode


def _stamp(path: Path) -> tuple[int, ...]:
    """What no program changes back: the time of the file's last change of any kind is in it."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return (status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


def _folder_key(inputs: object) -> str:
    text = msgspec.json.encode((_FORMAT, inputs), order="deterministic")
    return hashlib.sha256(text).hexdigest()[:40]


def _is_outdated(path: Path) -> bool:
    return path.name.endswith(_OUTDATED)


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """What is in a folder others may be changing."""
    try:
        found = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in found:
        with contextlib.suppress(FileNotFoundError):
            yield Path(entry.path), entry.stat(follow_symlinks=False)


def _remove(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)
