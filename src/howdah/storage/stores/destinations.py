"""Folders anywhere that files are copied to: HDFS, a local path, or any fsspec URL.

**Fencing.** A place opened for an attempt is that attempt's until a later one opens it. What says so
is a folder in it, ``.attempt-<number>``; a new file is made in there and renamed. A later attempt
takes it away, so that a writer that was cut off or frozen at any moment has nothing to rename any more.
Not guaranteed: on stores without renames (fsspec URLs), where the mark is looked at before each
file, a writer may finish the file it has begun.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
import shutil
from pathlib import Path
from typing import Any, Protocol

from howdah.storage.errors import Outdated
from howdah.storage.files import make_private_folder
from howdah.storage.folders import files_below
from howdah.storage.hdfs import is_hdfs
from howdah.storage.stores import file_system

_MARK = re.compile(r"\.attempt-(\d+)")
_GONE = ".gone-"
"""The folder of an attempt that a later one has followed, while it is removed."""
_CHUNK_BYTES = 1 << 20
_RECOVER_S = 15.0


class Destination(Protocol):
    """Files by name relative to the folder. All calls block and raise `OSError`, or what fsspec
    raises; those that write raise `Outdated` if a later attempt has opened the place."""

    def files(self) -> dict[str, int]:
        """Sizes of all files, also in folders below."""
        ...

    def put(self, source: Path, name: str) -> None:
        """Make the file what the local one is, whole at once for readers."""
        ...

    def append(self, source: Path, name: str, offset: int) -> None:
        """Add what the local file has from ``offset`` on, which is the file's size there."""
        ...

    def read(self, name: str, offset: int, length: int) -> bytes:
        """At most so many bytes."""
        ...


def open_destination(
    place: str, *, attempt: int = 0, patience_s: float = 30.0, within: str | None = None
) -> Destination:
    """The place at a path or URL; with ``attempt`` for writers of that attempt alone.

    Args:
        within: a folder on HDFS that the place is in, or is. It is not made: a job directory that was
            removed stays away.

    Raises:
        Outdated: a later attempt has it.
    """
    if is_hdfs(place):
        return HdfsDestination(place, patience_s=patience_s, attempt=attempt, within=within)
    if place.startswith("file://"):
        place = place.removeprefix("file://")
    if "://" in place or "::" in place:
        return UrlDestination(place, attempt=attempt)
    return LocalDestination(Path(place).expanduser(), attempt=attempt)


def is_hidden(name: str) -> bool:
    """Whether the file is unfinished, or not meant for readers: a part of its path begins with a
    dot."""
    return any(part.startswith(".") for part in name.split("/")) or (
        posixpath.splitext(name)[1] == ".tmp"
    )


class LocalDestination:
    """A folder of this machine, or one all machines see."""

    def __init__(self, path: Path, *, attempt: int = 0) -> None:
        self._root = path
        self._own: Path | None = None
        if attempt:
            make_private_folder(path)
            self._own = path / _mark(attempt)
            self._own.mkdir(mode=0o700, exist_ok=True)
            try:
                for older in _others((entry.name for entry in path.iterdir()), attempt, str(path)):
                    # By its name it is gone at once, whatever its writer does in it meanwhile.
                    with contextlib.suppress(FileNotFoundError):
                        (path / older).rename(path / f"{_GONE}{secrets.token_hex(4)}")
                # What is left of it, the next one removes.
                for gone in path.glob(f"{_GONE}*"):
                    shutil.rmtree(gone, ignore_errors=True)
            except Outdated:
                shutil.rmtree(self._own, ignore_errors=True)
                raise

    def files(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for path in files_below(self._root):
            with contextlib.suppress(FileNotFoundError):  # whole now, and under its own name
                if path.is_file():
                    found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return found

    def put(self, source: Path, name: str) -> None:
        target = self._root / name
        if self._own is None:
            if not self._root.exists():
                make_private_folder(self._root)
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        else:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self._own / f"{secrets.token_hex(4)}.tmp"
        try:
            shutil.copy2(source, temporary)
            temporary.replace(target)
        except FileNotFoundError:
            if self._own is not None and not self._own.exists():
                raise _outdated(str(self._root)) from None
            raise
        finally:
            temporary.unlink(missing_ok=True)

    def append(self, source: Path, name: str, offset: int) -> None:
        self.put(source, name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        with (self._root / name).open("rb") as file:
            file.seek(offset)
            return file.read(length)


class HdfsDestination:
    """A folder on HDFS; files there are really appended to."""

    def __init__(
        self,
        url: str,
        *,
        patience_s: float = 30.0,
        attempt: int = 0,
        within: str | None = None,
    ) -> None:
        from howdah.storage.hdfs.files import Hdfs

        self.hdfs: Hdfs = Hdfs(url, patience_s=patience_s)
        self.root: str = self.hdfs.path(url)
        self._within = within
        self._own = ""
        if attempt:
            self._own = f"{self.root}/{_mark(attempt)}"
            self.hdfs.mkdirs(self._own, within=within)
            try:
                names = (stat.name for stat in self.hdfs.list(self.root))
                for older in _others(names, attempt, url):
                    self.hdfs.remove(f"{self.root}/{older}", recursive=True)
            except Outdated:
                self.hdfs.remove(self._own, recursive=True)
                raise

    def files(self) -> dict[str, int]:
        try:
            found = self.hdfs.list(self.root, recursive=True)
        except FileNotFoundError:
            return {}
        return {
            stat.path.removeprefix(f"{self.root}/"): stat.size for stat in found if not stat.is_dir
        }

    def put(self, source: Path, name: str) -> None:
        target = f"{self.root}/{name}"
        if self._own or self._within is not None:
            self.hdfs.mkdirs(posixpath.dirname(target), within=self._within)
        if not self._own:
            self.hdfs.put(source, target, parents=self._within is None)
            return
        temporary = f"{self._own}/{secrets.token_hex(4)}"
        try:
            self.hdfs.put(source, temporary, parents=False)
            self.hdfs.rename(temporary, target, overwrite=True)
        except FileNotFoundError:
            self._check()
            raise

    def append(self, source: Path, name: str, offset: int) -> None:
        from howdah.storage.hdfs.errors import BeingWritten

        self._check()
        path = f"{self.root}/{name}"
        try:
            appender = self.hdfs.append(path)
        except BeingWritten:
            # Its writer died; nobody else writes here.
            self.hdfs.recover_lease(path, _RECOVER_S)
            appender = self.hdfs.append(path)
        try:
            with source.open("rb") as file:
                file.seek(appender.size)
                while data := file.read(_CHUNK_BYTES):
                    appender.write(data)
        finally:
            appender.close()

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self.hdfs.read_range(f"{self.root}/{name}", offset, length)

    def _check(self) -> None:
        if self._own and not self.hdfs.exists(self._own):
            raise _outdated(self.hdfs.url(self.root))


class UrlDestination:
    """Anything else. Few stores can append, so a file that has grown is sent anew."""

    def __init__(self, url: str, *, attempt: int = 0) -> None:
        self._fs: Any
        self._fs, root = file_system(url, written=attempt > 0)
        self._root = str(root).rstrip("/")
        self._attempt = attempt
        if attempt:
            self._fs.makedirs(self._root, exist_ok=True)
            for older in self._check():
                with contextlib.suppress(FileNotFoundError):
                    self._fs.rm_file(f"{self._root}/{older}")
            self._fs.pipe_file(f"{self._root}/{_mark(attempt)}", b"")

    def files(self) -> dict[str, int]:
        self._fs.invalidate_cache()
        found: dict[str, dict[str, Any]] = self._fs.find(self._root, detail=True)
        root = f"{self._root}/"
        return {name.partition(root)[2]: info["size"] for name, info in found.items()}

    def put(self, source: Path, name: str) -> None:
        path = f"{self._root}/{name}"
        self._check()
        self._fs.makedirs(posixpath.dirname(path), exist_ok=True)
        self._fs.put_file(str(source), path)

    def append(self, source: Path, name: str, offset: int) -> None:
        self.put(source, name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self._fs.cat_file(f"{self._root}/{name}", start=offset, end=offset + length)

    def _check(self) -> list[str]:
        """Marks of earlier attempts."""
        if not self._attempt:
            return []
        self._fs.invalidate_cache()
        found = self._fs.ls(self._root, detail=False)
        names = (posixpath.basename(str(path).rstrip("/")) for path in found)
        return _others(names, self._attempt, self._root)


def _mark(attempt: int) -> str:
    return f".attempt-{attempt}"


def _others(names: Any, attempt: int, place: str) -> list[str]:
    """Marks of earlier attempts.

    Raises:
        Outdated: there is one of a later attempt.
    """
    numbers = [int(match[1]) for name in names if (match := _MARK.fullmatch(name))]
    if max(numbers, default=0) > attempt:
        raise _outdated(place)
    return [_mark(number) for number in numbers if number < attempt]


def _outdated(place: str) -> Outdated:
    return Outdated(f"a later attempt of the task writes to {place}; nothing more is written there")
