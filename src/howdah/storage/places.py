"""Folders anywhere, for files that only grow: HDFS, a local path, or any fsspec URL."""

from __future__ import annotations

import posixpath
import secrets
from pathlib import Path
from typing import Any, Protocol

from howdah.storage.hdfs_names import is_hdfs
from howdah.storage.jobdir import StorageError
from howdah.storage.journal import Replica


class Place(Protocol):
    """Files by name relative to the folder. All calls block and raise `OSError`, or what fsspec
    raises."""

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


def open_place(place: str) -> Place:
    """The place at a path or URL."""
    return HdfsPlace(place) if is_hdfs(place) else UrlPlace(place)


def open_replica(url: str) -> Replica:
    """What makes the journal of a job directory at that URL durable.

    Raises:
        StorageError: no journal can be kept on that store.
    """
    if not is_hdfs(url):
        raise StorageError(
            f"A job directory can't be at {url}: its journal needs a store that appends; use a "
            "folder, or HDFS"
        )
    from howdah.storage.replica import HdfsJournal

    return HdfsJournal(url)


class HdfsPlace:
    """A folder on HDFS; files there are really appended to."""

    def __init__(self, url: str, *, patience_s: float = 30.0) -> None:
        from howdah.storage.hdfs import Hdfs

        self.hdfs = Hdfs(url, patience_s=patience_s)
        self.root = self.hdfs.path(url)

    def files(self) -> dict[str, int]:
        try:
            found = self.hdfs.list(self.root, recursive=True)
        except FileNotFoundError:
            return {}
        return {
            stat.path.removeprefix(f"{self.root}/"): stat.size for stat in found if not stat.is_dir
        }

    def put(self, source: Path, name: str) -> None:
        self.hdfs.put(source, f"{self.root}/{name}")

    def append(self, source: Path, name: str, offset: int) -> None:
        from howdah.storage.hdfs_errors import BeingWritten

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


class UrlPlace:
    """Anything else. Few stores can append, so a file that has grown is sent anew."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._fs: Any
        self._fs, root = url_to_fs(url)
        self._root = str(root).rstrip("/")

    def files(self) -> dict[str, int]:
        self._fs.invalidate_cache()
        found: dict[str, dict[str, Any]] = self._fs.find(self._root, detail=True)
        root = f"{self._root}/"
        return {name.partition(root)[2]: info["size"] for name, info in found.items()}

    def put(self, source: Path, name: str) -> None:
        path = f"{self._root}/{name}"
        folder, _, last = path.rpartition("/")
        self._fs.makedirs(folder, exist_ok=True)
        temporary = f"{folder}/.{last}.{secrets.token_hex(4)}.tmp"
        self._fs.put_file(str(source), temporary)
        self._fs.mv(temporary, path)

    def append(self, source: Path, name: str, offset: int) -> None:
        self.put(source, name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        return self._fs.cat_file(f"{self._root}/{name}", start=offset, end=offset + length)


def is_hidden(name: str) -> bool:
    """Whether the file is unfinished, or nobody's business: a part of its path begins with a dot."""
    return any(part.startswith(".") for part in name.split("/")) or (
        posixpath.splitext(name)[1] == ".tmp"
    )


_CHUNK_BYTES = 1 << 20
_RECOVER_S = 15.0
