"""Where TFRecord files are: folders of this machine, HDFS (without a JVM), any fsspec URL.

Executors open files themselves. Spark's own file access would have to bring every file through the
JVM as one value (``binaryFile``, at most 2 GB a file), which is slower and bounded.
"""

from __future__ import annotations

import contextlib
import fnmatch
import io
import os
import posixpath
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from howdah.storage.hdfs import is_hdfs, split
from howdah.storage.jobdir import user_name

_GLOB = frozenset("*?[")
_STATE = ("etag", "ETag", "mtime", "LastModified", "updated", "generation")
"""What fsspec's file systems tell of a file that changes with it."""


class File(msgspec.Struct, frozen=True):
    """A file, by its full URL or path."""

    path: str
    size: int
    state: str = ""
    """Changes with what is in it, at a URL."""


def file_system(path: str, known: dict[str, FileSystem] | None = None) -> FileSystem:
    """What a path or URL is on.

    Args:
        known: connections to HDFS, by name: one that is missing is added. For the time of a task, no
            longer: a process that lives on may have other tokens for its next one.
    """
    if not is_hdfs(path):
        return UrlFiles(path) if "://" in path else LocalFiles()
    name, known = split(path)[0], {} if known is None else known
    if name not in known:
        known[name] = HdfsFiles(path)
    return known[name]


def qualified(path: str, default_fs: str = "") -> str:
    """The path as executors will need it: absolute, with Spark's default file system in front, and on
    ViewFs where that leads to.

    Args:
        default_fs: ``fs.defaultFS``; empty or ``file:///`` for this machine's folders.

    Raises:
        ConfigurationError: it leads nowhere.
    """
    return resolved(_absolute(path, default_fs))


def resolved(url: str) -> str:
    """A URL, on ViewFs where that leads to.

    Raises:
        ConfigurationError: it leads nowhere.
    """
    if not url.startswith("viewfs:"):
        return url
    from howdah.hadoop import viewfs
    from howdah.hadoop.configuration import Configuration

    return viewfs.resolve(url, Configuration.load())


def _absolute(path: str, default_fs: str) -> str:
    if path.startswith("file:"):
        rest = path.removeprefix("file:")
        return "/" + rest.lstrip("/")
    if "://" in path:
        return path.rstrip("/") or path
    if default_fs and not default_fs.startswith("file:"):
        root = default_fs.rstrip("/")
        if path.startswith("/"):
            return root + posixpath.normpath(path)
        user = os.environ.get("HADOOP_USER_NAME") or user_name()
        return root + posixpath.normpath(f"/user/{user}/{path}")
    return str(Path(path).expanduser().absolute())


def find(paths: Iterable[str]) -> list[tuple[str, File]]:
    """All data files below folders, files and patterns (``*``, ``?``, ``[…]``), each with the
    folder it was found from; in the order of names. Hidden ones are left out, as Spark does, and all
    below such folders.

    Raises:
        FileNotFoundError: nothing is there.
    """
    found: list[tuple[str, File]] = []
    for path in paths:
        root = _without_pattern(path)
        listed = file_system(root).files(root)
        if root != path:
            listed = [file for file in listed if _matches(file.path, path)]
            if not listed:
                raise FileNotFoundError(f"no file matches {path}")
        for file in sorted(listed, key=lambda each: each.path):
            inside = file.path.removeprefix(root).strip("/")
            if not any(map(_hidden, inside.split("/"))):
                found.append((root, file))
    return found


def _hidden(name: str) -> bool:
    """Whether Spark leaves a file or folder of that name out. ``_day=1`` is a value of a column."""
    begins = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return begins or name.endswith("._COPYING_")  # HDFS's clients name so what they still write


def _without_pattern(path: str) -> str:
    parts = path.split("/")
    for at, part in enumerate(parts):
        if _GLOB.intersection(part):
            return "/".join(parts[:at]) or "/"
    return path


def _matches(path: str, pattern: str) -> bool:
    """Whether the file, or a folder above it, is what the pattern says."""
    have, want = path.split("/"), pattern.rstrip("/").split("/")
    return len(have) >= len(want) and all(map(fnmatch.fnmatchcase, have, want))


def _below(given: str, root: str, path: str) -> str:
    """A path as the file system tells it, in the words in which its folder was given."""
    rest = path.removeprefix(root.rstrip("/")).strip("/")
    return f"{given.rstrip('/')}/{rest}" if rest else given


class LocalFiles:
    """Folders that driver and executors see under the same path. All methods block and raise `OSError`;
    those of other file systems do the same, and may raise what fsspec raises."""

    def files(self, path: str) -> list[File]:
        """All files below a folder; of a file itself.

        Raises:
            FileNotFoundError: there is nothing.
        """
        if os.path.isfile(path):
            return [File(path, Path(path).stat().st_size)]
        if not os.path.isdir(path):
            raise FileNotFoundError(f"there is no {path}")
        found: list[File] = []
        for folder, _, names in os.walk(path):
            for name in names:
                each = Path(folder, name)
                found.append(File(str(each), each.stat().st_size))
        return found

    def read(self, path: str) -> Any:
        """An open file with ``read(size)`` and ``close()``."""
        return open(path, "rb", buffering=0)

    def create(self, path: str) -> Any:
        """A new file with ``write(bytes)`` and ``close()``; folders above are made."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return open(path, "xb", buffering=0)

    def rename(self, source: str, target: str) -> None:
        """Folders above the target are made."""
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(source).replace(target)

    def remove(self, path: str) -> None:
        """With all below; nothing there is no error."""
        if os.path.isdir(path) and not Path(path).is_symlink():
            shutil.rmtree(path)
        else:
            Path(path).unlink(missing_ok=True)

    def children(self, path: str) -> list[str]:
        """Files and folders in a folder; none if it is not there."""
        try:
            return sorted(str(each) for each in Path(path).iterdir())
        except FileNotFoundError:
            return []


class HdfsFiles:
    """HDFS, by `howdah.storage.hdfs.files`."""

    def __init__(self, url: str) -> None:
        from howdah.storage.hdfs.files import Hdfs
        from howdah.storage.stores.checkpoint_stores import HDFS_PATIENCE_S

        self._hdfs = Hdfs(url, patience_s=HDFS_PATIENCE_S)

    def files(self, path: str) -> list[File]:
        root = self._hdfs.path(path)
        found = self._hdfs.list(path, recursive=True)
        return [
            File(_below(path, root, each.path), each.size, str(each.mtime_ms))
            for each in found
            if not each.is_dir
        ]

    def get(self, folder: str, name: str, target: Path) -> None:
        """Copy a file of that folder (or of that path, if ``name`` is empty) to this machine."""
        self._hdfs.get(f"{self._hdfs.path(folder)}/{name}".rstrip("/"), str(target))

    def read(self, path: str) -> Any:
        return _HdfsReader(self._hdfs, path)

    def create(self, path: str) -> Any:
        self._hdfs.mkdirs(posixpath.dirname(self._hdfs.path(path)), 0o755)
        return self._hdfs.create(path, permission=0o644)

    def rename(self, source: str, target: str) -> None:
        self._hdfs.mkdirs(posixpath.dirname(self._hdfs.path(target)), 0o755)
        self._hdfs.rename(source, target)

    def remove(self, path: str) -> None:
        self._hdfs.remove(path, recursive=True)

    def children(self, path: str) -> list[str]:
        root = self._hdfs.path(path)
        try:
            return [_below(path, root, each.path) for each in self._hdfs.list(path)]
        except FileNotFoundError:
            return []


class _HdfsReader:
    """Reads on, a range at a time."""

    def __init__(self, hdfs: Any, path: str) -> None:
        self._hdfs = hdfs
        self._path = path
        self._at = 0

    def read(self, size: int) -> bytes:
        data: bytes = self._hdfs.read_range(self._path, self._at, size)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Nothing is open between ranges."""


class UrlFiles:
    """Anything fsspec knows."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self._fs: Any = url_to_fs(url)[0]

    def files(self, path: str) -> list[File]:
        self._fs.invalidate_cache()
        if not self._fs.exists(path):
            raise FileNotFoundError(f"there is no {path}")
        root = self._fs._strip_protocol(path)
        found = self._fs.find(path, detail=True)
        return [
            File(_below(path, root, name), at["size"], " ".join(str(at.get(k, "")) for k in _STATE))
            for name, at in found.items()
        ]

    def get(self, folder: str, name: str, target: Path) -> None:
        """See `HdfsFiles.get`."""
        root = self._fs._strip_protocol(folder)
        self._fs.get_file(f"{root}/{name}".rstrip("/"), str(target))

    def read(self, path: str) -> Any:
        return self._fs.open(path, "rb")

    def create(self, path: str) -> Any:
        self._fs.makedirs(self._fs._parent(path), exist_ok=True)
        return self._fs.open(path, "wb")

    def rename(self, source: str, target: str) -> None:
        self._fs.makedirs(self._fs._parent(target), exist_ok=True)
        self._fs.mv(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(path, recursive=True)

    def children(self, path: str) -> list[str]:
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(path, detail=False)
        except FileNotFoundError:
            return []
        root = self._fs._strip_protocol(path)
        return [_below(path, root, each.rstrip("/")) for each in found]


FileSystem = LocalFiles | HdfsFiles | UrlFiles
"""Paths are URLs of the file system."""


class Rewound:
    """A stream of which some was read already."""

    def __init__(self, head: bytes, stream: Any) -> None:
        self._head = io.BytesIO(head)
        self._stream = stream

    def read(self, size: int, /) -> bytes:
        """What was read comes again first."""
        return self._head.read(size) or self._stream.read(size)
