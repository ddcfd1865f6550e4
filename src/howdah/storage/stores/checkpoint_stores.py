"""Places for checkpoints: a local folder, a folder on HDFS, or any fsspec URL.

A place holds one folder a version, named by a number. A version exists once its manifest can be
read; it is written last. Nothing in a version ever changes afterwards, so its files may be shared
between versions (hard links). fsspec is imported for URLs only: starting it takes longer than most
checkpoints take to save.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import secrets
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from howdah.storage.files import make_private_folder, sync_folder
from howdah.storage.folders import FolderChanged, copy_proven, sha256
from howdah.storage.hdfs import is_hdfs
from howdah.storage.stores import file_system

MANIFEST = "manifest.json"

CLAIM = ".writer-"

HDFS_PATIENCE_S = 60.0
"""Each call waits so long for a NameNode that restarts, unless its caller has its own way."""

_VERSION = re.compile(r"(\d{6,})(?:-[0-9a-f]+)?")
_UNFINISHED = re.compile(r"\.\d{6,}[-0-9a-f]*\.tmp")


class Draft(Protocol):
    """A version that does not exist yet."""

    def add(self, source: Path, name: str) -> str:
        """Copy a local file in; returns its SHA-256.

        Raises:
            FolderChanged: it changed meanwhile.
        """
        ...

    def reuse(self, version: str, name: str) -> bool:
        """Take the file over from an earlier version; False if it isn't there to be taken."""
        ...

    def publish(self, manifest: bytes, check: Callable[[], None]) -> str:
        """Make the version exist; returns its name, greater than all before.

        ``check`` is called between choosing a name and taking it, and raises if the version must not
        be. A version that appears after the check is either seen by the next one, because the name
        is taken, or has a greater number.
        """
        ...

    def discard(self) -> None:
        """Leave nothing of it. Harmless after `publish`."""
        ...


class Store(Protocol):
    """One place. Methods raise `OSError`, or what the fsspec implementation raises."""

    any_name: bool
    """Whether it takes every name that a local file may have."""

    def versions(self) -> list[str]:
        """Names of all versions with a manifest, oldest first."""
        ...

    def manifest(self, version: str) -> bytes: ...

    def fetch(self, version: str, name: str, target: Path) -> None:
        """Copy a file out; its content is for the caller to verify."""
        ...

    def draft(self) -> Draft: ...

    def remove(self, version: str) -> None: ...

    def clean(self) -> None:
        """Remove what writers left that died."""
        ...

    def claim(self, name: str) -> None:
        """Leave an empty file there, of a name that begins with `CLAIM`."""
        ...

    def claims(self) -> list[str]:
        """The names of all such files."""
        ...


def open_store(
    place: str, patience_s: float = HDFS_PATIENCE_S, *, within: str | None = None
) -> Store:
    """The store at a path or URL. On HDFS each call waits for ``patience_s`` for a NameNode, and
    ``within`` is a folder that the store is in and that is not made."""
    if place.startswith("file://"):
        place = place.removeprefix("file://")
    if is_hdfs(place):
        return HdfsStore(place, patience_s, within)
    if "://" in place or "::" in place:
        return UrlStore(place)
    return LocalStore(Path(place).expanduser())


def is_version(name: str) -> bool:
    """Whether it could be the name of a version."""
    return _VERSION.fullmatch(name) is not None


def version_number(name: str) -> int:
    """The number in a version's name."""
    return int(name.partition("-")[0])


class LocalStore:
    """A folder. Versions appear by a rename."""

    any_name: bool = True

    def __init__(self, path: Path) -> None:
        self.path = path

    def versions(self) -> list[str]:
        return [name for name in self._names() if (self.path / name / MANIFEST).exists()]

    def manifest(self, version: str) -> bytes:
        return (self.path / version / MANIFEST).read_bytes()

    def fetch(self, version: str, name: str, target: Path) -> None:
        # Never a link: programs may write into what they are given.
        shutil.copyfile(self.path / version / name, target)

    def draft(self) -> Draft:
        make_private_folder(self.path)
        return _LocalDraft(self)

    def next_name(self) -> str:
        return _next_name(self._names())

    def remove(self, version: str) -> None:
        # By its name it is gone at once: nobody takes a half-removed version for a whole one.
        hidden = _hidden(self.path, version)
        with contextlib.suppress(FileNotFoundError):
            (self.path / version).rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)

    def clean(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for entry in list(os.scandir(self.path)):
                if _UNFINISHED.fullmatch(entry.name):
                    shutil.rmtree(entry.path, ignore_errors=True)

    def claim(self, name: str) -> None:
        make_private_folder(self.path)
        (self.path / name).touch(mode=0o600)

    def claims(self) -> list[str]:
        return [path.name for path in self.path.glob(f"{CLAIM}*")]

    def _names(self) -> list[str]:
        try:
            names = {entry.name for entry in os.scandir(self.path)}
        except FileNotFoundError:
            return []
        return _sorted(names)


class _LocalDraft:
    def __init__(self, store: LocalStore) -> None:
        self._store = store
        self._folder = _hidden(store.path, store.next_name())
        self._folder.mkdir(mode=0o700)

    def add(self, source: Path, name: str) -> str:
        return copy_proven(source, self._folder / name)

    def reuse(self, version: str, name: str) -> bool:
        target = self._folder / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            os.link(self._store.path / version / name, target)
        except OSError:
            return False
        return True

    def publish(self, manifest: bytes, check: Callable[[], None]) -> str:
        with (self._folder / MANIFEST).open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(manifest)
            file.flush()
            os.fsync(file.fileno())
        for folder, _, _ in os.walk(self._folder):
            sync_folder(Path(folder))
        while True:
            final = self._store.path / self._store.next_name()
            check()
            try:
                self._folder.rename(final)
            except OSError:
                if final.exists():
                    continue  # somebody else was faster: the next number
                raise
            sync_folder(self._store.path)
            return final.name

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


class HdfsStore:
    """A folder on HDFS. Versions appear by a rename, as in a local one; HDFS has no links, so that
    every version has all its files."""

    any_name: bool = False

    def __init__(
        self, url: str, patience_s: float = HDFS_PATIENCE_S, within: str | None = None
    ) -> None:
        from howdah.storage.hdfs.files import Hdfs

        self.hdfs: Hdfs = Hdfs(url, patience_s=patience_s)
        self.root: str = self.hdfs.path(url)
        self._within = within

    def versions(self) -> list[str]:
        return self._names()

    def manifest(self, version: str) -> bytes:
        return self.hdfs.read(f"{self.root}/{version}/{MANIFEST}")

    def fetch(self, version: str, name: str, target: Path) -> None:
        self.hdfs.get(f"{self.root}/{version}/{name}", target)

    def draft(self) -> Draft:
        self.make()
        return _HdfsDraft(self)

    def make(self) -> None:
        """Make the store's folder."""
        self.hdfs.mkdirs(self.root, within=self._within)

    def next_name(self) -> str:
        return _next_name(self._names())

    def remove(self, version: str) -> None:
        # By its name it is gone at once: nobody takes a half-removed version for a whole one.
        hidden = f"{self.root}/{_hidden_name(version)}"
        with contextlib.suppress(FileNotFoundError):
            self.hdfs.rename(f"{self.root}/{version}", hidden)
            self.hdfs.remove(hidden, recursive=True)

    def clean(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for stat in self.hdfs.list(self.root):
                if _UNFINISHED.fullmatch(stat.name):
                    self.hdfs.remove(stat.path, recursive=True)

    def claim(self, name: str) -> None:
        self.make()
        self.hdfs.write(f"{self.root}/{name}", b"", parents=False)

    def claims(self) -> list[str]:
        return [stat.name for stat in self.hdfs.list(self.root) if stat.name.startswith(CLAIM)]

    def _names(self) -> list[str]:
        try:
            return _sorted(stat.name for stat in self.hdfs.list(self.root) if stat.is_dir)
        except FileNotFoundError:
            return []


class _HdfsDraft:
    def __init__(self, store: HdfsStore) -> None:
        self._store = store
        self._folder = f"{store.root}/{_hidden_name(store.next_name())}"
        store.hdfs.mkdirs(self._folder, within=store.root)
        self._made = {self._folder}

    def add(self, source: Path, name: str) -> str:
        target = f"{self._folder}/{name}"
        if (folder := posixpath.dirname(target)) not in self._made:
            self._store.hdfs.mkdirs(folder, within=self._folder)
            self._made.add(folder)
        return _sent_proven(source, partial(self._store.hdfs.put, parents=False), target)

    def reuse(self, version: str, name: str) -> bool:
        return False

    def publish(self, manifest: bytes, check: Callable[[], None]) -> str:
        self._store.hdfs.write(f"{self._folder}/{MANIFEST}", manifest, parents=False)
        while True:
            name = self._store.next_name()
            check()
            try:
                self._store.hdfs.rename(self._folder, f"{self._store.root}/{name}")
            except FileExistsError:
                continue  # somebody else was faster: the next number
            return name

    def discard(self) -> None:
        with contextlib.suppress(OSError):
            self._store.hdfs.remove(self._folder, recursive=True)


class UrlStore:
    """Anything fsspec knows. Versions appear with their manifest."""

    any_name: bool = False

    def __init__(self, url: str) -> None:
        self._fs: Any
        self._fs, path = file_system(url)
        self._root: str = str(path).rstrip("/")

    def versions(self) -> list[str]:
        return [
            name for name in self._names() if self._fs.exists(f"{self._root}/{name}/{MANIFEST}")
        ]

    def manifest(self, version: str) -> bytes:
        return self._fs.cat_file(f"{self._root}/{version}/{MANIFEST}")

    def fetch(self, version: str, name: str, target: Path) -> None:
        self._fs.get_file(f"{self._root}/{version}/{name}", str(target))

    def draft(self) -> Draft:
        return _UrlDraft(self._fs, self._root, _next_name(self._names()))

    def remove(self, version: str) -> None:
        # The manifest goes first: without it there is no version.
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._root}/{version}/{MANIFEST}")
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(f"{self._root}/{version}", recursive=True)

    def clean(self) -> None:
        for name in self._names():
            if not self._fs.exists(f"{self._root}/{name}/{MANIFEST}"):
                self.remove(name)

    def claim(self, name: str) -> None:
        self._fs.makedirs(self._root, exist_ok=True)
        self._fs.pipe_file(f"{self._root}/{name}", b"")

    def claims(self) -> list[str]:
        return [name for name in self._entries() if name.startswith(CLAIM)]

    def _names(self) -> list[str]:
        return _sorted(self._entries())

    def _entries(self) -> set[str]:
        # Listings are cached in places; other processes write here too.
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(self._root, detail=False)
        except FileNotFoundError:
            return set()
        return {posixpath.basename(str(path).rstrip("/")) for path in found}


class _UrlDraft:
    """Several writers never meet in one folder: a version's name has random letters here."""

    def __init__(self, fs: Any, root: str, version: str) -> None:
        self._fs = fs
        self._root = root
        self._version = f"{version}-{secrets.token_hex(2)}"
        self._folder = f"{root}/{self._version}"
        self._published = False

    def add(self, source: Path, name: str) -> str:
        self._prepare(name)
        return _sent_proven(source, self._fs.put_file, f"{self._folder}/{name}")

    def reuse(self, version: str, name: str) -> bool:
        try:
            self._prepare(name)
            self._fs.cp_file(f"{self._root}/{version}/{name}", f"{self._folder}/{name}")
        except (OSError, NotImplementedError):
            return False
        return True

    def publish(self, manifest: bytes, check: Callable[[], None]) -> str:
        self._prepare(MANIFEST)
        check()
        self._fs.pipe_file(f"{self._folder}/{MANIFEST}", manifest)
        self._published = True
        return self._version

    def discard(self) -> None:
        if not self._published:
            with contextlib.suppress(FileNotFoundError):
                self._fs.rm(self._folder, recursive=True)

    def _prepare(self, name: str) -> None:
        self._fs.makedirs(posixpath.dirname(f"{self._folder}/{name}"), exist_ok=True)


def _sent_proven(source: Path, send: Callable[[str, str], object], target: str) -> str:
    """Send the file there; its SHA-256, which it had before and has still.

    Raises:
        FolderChanged: it has not, or has gone.
    """
    try:
        digest = sha256(source)
        send(str(source), target)
        if sha256(source) != digest:
            raise FolderChanged(f"{source} changed while it was copied")
    except FileNotFoundError as error:
        if source.exists():
            raise
        raise FolderChanged(f"{source} went away while it was copied") from error
    return digest


def _hidden(path: Path, version: str) -> Path:
    return path / _hidden_name(version)


def _hidden_name(version: str) -> str:
    return f".{version}-{secrets.token_hex(4)}.tmp"


def _next_name(names: Iterable[str]) -> str:
    """``000008`` after ``000007``."""
    return f"{max(map(version_number, names), default=0) + 1:06}"


def _sorted(names: Iterable[str]) -> list[str]:
    versions = filter(is_version, names)
    return sorted(versions, key=lambda name: (version_number(name), name))
