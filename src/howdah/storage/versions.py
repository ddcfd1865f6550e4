"""Saved versions of a task's folder: what describes them, and how damage is found."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import PurePosixPath

import msgspec

from howdah.core.messages import Task
from howdah.spec.model import Checkpoint
from howdah.storage.folders import stays_inside
from howdah.storage.stores import MANIFEST, Store, open_store


class CheckpointSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One task's folder and its place in the store."""

    folder: str
    """Absolute path of the folder the programs write to."""
    store: str
    """The job's place for checkpoints, a path or fsspec URL."""
    source: str = "chief"
    """"chief": the place is the job's own; "each": every task has a folder of its own in it."""
    task: Task | None = None
    keep: int = 3
    settle_s: float = 0.5
    ignore: tuple[str, ...] = Checkpoint().ignore
    version: str | None = None
    """What to restore; None means the newest. If it is damaged or gone, the next best is taken."""
    generation: int = 0
    """Once a later generation has saved, the folder of an earlier one is not saved any more."""
    attempt: int = 0
    job_id: str = ""
    """Jobs may share a store; generations are compared within one job only."""
    origin: str = ""
    """As in `Manifest`, for a version that is a copy of another job's."""

    @property
    def place(self) -> str:
        """Where this task's versions are."""
        if self.source != "each" or self.task is None:
            return self.store
        return f"{self.store.rstrip('/')}/{self.task.role}-{self.task.index}"


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a version."""

    path: str
    """Relative to the folder."""
    size: int
    sha256: str = ""
    mtime_ns: int = 0
    """Restored too: programs pick the newest file by it."""
    stored: str = ""
    """Its name in the version where that is not ``path``."""
    link: str = ""
    """It is a symbolic link to this, relative and within the folder; nothing is stored."""

    @property
    def name(self) -> str:
        """Its name in the version."""
        return self.stored or self.path


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a version: written last, as ``manifest.json``."""

    files: tuple[SavedFile, ...]
    checksum: str
    """Over all files; see `checksum`."""
    created: float
    job_id: str = ""
    task: Task | None = None
    generation: int = 0
    attempt: int = 0
    origin: str = ""
    """Of a version copied from another job's: ``000007 of digits-20261121-143502-k3f9``."""
    format: int = 1

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """A version was published."""

    version: str
    files: int
    bytes: int
    checksum: str
    seconds: float = 0.0
    """What saving it took."""


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A version that could not be restored."""

    version: str
    reason: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The folder holds this version now and nothing else; without one it is empty."""

    version: str | None
    files: int = 0
    bytes: int = 0
    checksum: str = ""
    origin: str = ""
    """As in `Manifest`."""
    skipped: tuple[Skipped, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader of the job's events should know."""

    problem: str


class Damaged(Exception):
    """A version in the store is not what was published; the text says how."""


def checksum(files: Iterable[SavedFile]) -> str:
    """One digest for a set of files: equal contents under equal names give equal digests."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        content = f"-> {file.link}" if file.link else f"{file.size} {file.sha256}"
        digest.update(f"{file.path}\0{content}\n".encode())
    return digest.hexdigest()


def read_manifest(store: Store, version: str) -> Manifest:
    """The version's manifest, proven to be whole; its files are not read.

    Raises:
        Damaged: it is not.
    """
    try:
        manifest = msgspec.json.decode(store.manifest(version), type=Manifest)
    except (msgspec.DecodeError, FileNotFoundError) as error:
        raise Damaged(f"its {MANIFEST} can't be read: {error}") from error
    for file in manifest.files:
        for name in (file.path, file.name):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts:
                raise Damaged(f"its {MANIFEST} names a file outside of it: {name!r}")
        if file.link and not stays_inside(file.path, file.link):
            raise Damaged(f"its {MANIFEST} has a link to outside of it: {file.link!r}")
    if checksum(manifest.files) != manifest.checksum:
        raise Damaged(f"the checksum in its {MANIFEST} does not fit the list of files there")
    return manifest


def latest_complete(place: str) -> tuple[str, Manifest] | None:
    """The newest version with a sound manifest; None if there is none.

    Raises:
        OSError: the store can't be read.
    """
    return newest(open_store(place))


def newest(store: Store) -> tuple[str, Manifest] | None:
    """`latest_complete` of an open store."""
    for version in reversed(store.versions()):
        try:
            return version, read_manifest(store, version)
        except Damaged:
            continue
    return None
