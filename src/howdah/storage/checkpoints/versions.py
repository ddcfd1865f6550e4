"""Saved versions of a task's folder: what describes them, and how damage is found."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import msgspec

from howdah.core.messages import Task
from howdah.spec.model import Checkpoint
from howdah.storage.confined_paths import LeadsOutside, escaping, parts, to_name, to_text
from howdah.storage.folders import Signature, links_left_out, scan
from howdah.storage.stores.checkpoint_stores import MANIFEST, Store, open_store
from howdah.wire.decoders import document_decoder


class CheckpointSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One task's folder and its place in the store."""

    folder: str
    """Absolute path of the folder the programs write to."""
    store: str
    """The job's place for checkpoints, a path or fsspec URL."""
    source: str = "chief"
    """"chief": the place is the job's own; "each": every task has a folder of its own in it."""
    task: Task | None = None
    rank: int | None = None
    """Of several tasks with one place, the one of the lowest rank that writes anything is saved; None
    where no other task has this place."""
    began_ns: int = 0
    """When the programs were started: what is older was restored."""
    keep: int = 3
    settle_s: float = 0.5
    ignore: tuple[str, ...] = Checkpoint().ignore
    version: str | None = None
    """What to restore; None means the newest. If it is damaged or gone, the next best is taken."""
    generation: int = 0
    attempt: int = 0
    """Once a later generation, or a later attempt of the task, has saved, the folder of an earlier
    one is not saved any more; see `supersedes`."""
    job_id: str = ""
    """Jobs may share a store; generations and attempts are compared within one job only."""
    job_dir: str | None = None
    """The job directory if the store is in it; it is not made again if it was removed."""
    spare: str = ""
    """Where a sound state of the folder is kept that the store does not take; empty: nowhere."""
    unsaved: str = ""
    """Where what the store has not taken in the end is put, so that it outlives the container; empty: nowhere."""
    origin: str = ""
    """As in `Manifest`, for a version that is a copy of another job's."""
    given: str = ""
    """JSON file of the files, with their signatures, that were in the folder before any program ran:
    they are no part of a version unless they have changed, and stay where they are."""
    without: tuple[str, ...] = ()
    """Folders in the folder that are no part of it."""

    @property
    def place(self) -> str:
        """Where this task's versions are."""
        if self.source != "each" or self.task is None:
            return self.store
        return f"{self.store.rstrip('/')}/{self.task.role}-{self.task.index}"

    def look(self) -> dict[str, Signature]:
        """The files that make a version, as they are now."""
        found = scan(Path(self.folder), self.ignore)
        if not self.given:
            return found
        given = _given(self.given)
        return {
            name: signature
            for name, signature in found.items()
            if not signature.is_as(given.get(name)) and not name.startswith(self._without)
        }

    def links_left_out(self) -> str:
        """What a user should know of the links that no version has; empty where there are none."""
        links: dict[str, str] = {}
        scan(Path(self.folder), self.ignore, links)
        given = _given(self.given) if self.given else {}
        left_out = {
            name: link
            for name, link in links.items()
            if name not in given and not name.startswith(self._without)
        }
        return links_left_out(Path(self.folder), left_out)

    @property
    def _without(self) -> tuple[str, ...]:
        return tuple(f"{folder.rstrip('/')}/" for folder in self.without)


@lru_cache(maxsize=1)
def _given(path: str) -> dict[str, Signature]:
    found = msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Signature])
    return {
        to_name(name): signature._replace(link=to_name(signature.link))
        for name, signature in found.items()
    }


class SavedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file of a version."""

    path: str
    """Relative to the folder."""
    size: int
    sha256: str = ""
    mtime_ns: int = 0
    """Restored too: programs pick the newest file by it."""
    mode: int = 0
    """Its permissions, which are restored; 0 in versions of older releases."""
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
    folders: tuple[str, ...] = ()
    """Those that are empty, relative to the folder."""
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


def damage(skipped: Iterable[Skipped]) -> str:
    """Which versions are damaged, and how."""
    return "; ".join(f"{each.version}: {each.reason}" for each in skipped)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The folder holds this version now and nothing else; without one it is empty."""

    version: str | None
    files: int = 0
    bytes: int = 0
    checksum: str = ""
    origin: str = ""
    """As in `Manifest`."""
    skipped: tuple[Skipped, ...] = ()


class CheckpointProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a reader of the job's events should know."""

    problem: str
    transient: bool = False
    """The same may work later; see `howdah.storage.errors`."""
    unsaved: bool = False
    """The last state of the folder is saved nowhere, and no more is tried."""


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader of the job's events should know although nothing has failed."""

    note: str


class Damaged(Exception):
    """A version in the store is not what was published; the text says how."""


def checksum(files: Iterable[SavedFile]) -> str:
    """One digest for a set of files: equal contents under equal names give equal digests."""
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        content = f"-> {to_text(file.link)}" if file.link else f"{file.size} {file.sha256}"
        digest.update(f"{to_text(file.path)}\0{content}\n".encode())
    return digest.hexdigest()


def written(manifest: Manifest) -> bytes:
    """The document that `read_manifest` reads."""
    files = tuple(_each_name(to_text, file) for file in manifest.files)
    folders = tuple(map(to_text, manifest.folders))
    document = msgspec.json.encode(msgspec.structs.replace(manifest, files=files, folders=folders))
    return msgspec.json.format(document, indent=1)


def _each_name(change: Callable[[str], str], file: SavedFile) -> SavedFile:
    path, stored, link = map(change, (file.path, file.stored, file.link))
    return msgspec.structs.replace(file, path=path, stored=stored, link=link)


def read_manifest(store: Store, version: str) -> Manifest:
    """The version's manifest, proven to be whole; its files are not read.

    Raises:
        Damaged: it is not.
    """
    try:
        manifest = document_decoder(Manifest)(store.manifest(version))
    except (msgspec.DecodeError, FileNotFoundError) as error:
        raise Damaged(f"its {MANIFEST} can't be read: {error}") from error
    files = tuple(_each_name(to_name, file) for file in manifest.files)
    folders = tuple(map(to_name, manifest.folders))
    manifest = msgspec.structs.replace(manifest, files=files, folders=folders)
    _check_names(manifest.files, manifest.folders)
    if checksum(manifest.files) != manifest.checksum:
        raise Damaged(f"the checksum in its {MANIFEST} does not fit the list of files there")
    return manifest


def _check_names(files: Sequence[SavedFile], folders: Sequence[str]) -> None:
    """Refuse a list of files that would be written anywhere but in their folder: whoever can write to
    a store can write a manifest."""
    paths = {file.path for file in files}
    if len(paths) < len(files):
        raise Damaged(f"its {MANIFEST} names a file twice")
    above: list[tuple[str, str, int | None]] = [(each.path, each.name, -1) for each in files]
    above += [(folder, folder, None) for folder in folders]
    for name, stored, last in above:
        try:
            found = parts(name)[:last]
            parts(stored)
        except LeadsOutside as error:
            raise Damaged(f"its {MANIFEST} names a file outside of it: {error}") from error
        for end in range(1, len(found) + 1):
            if (path := "/".join(found[:end])) in paths:
                raise Damaged(f"its {MANIFEST} names {name!r}, below {path!r}, a link or file")
    if outside := escaping({file.path: file.link for file in files if file.link}):
        name = min(outside)
        link = next(file.link for file in files if file.path == name)
        raise Damaged(f"its {MANIFEST} has a link to outside of it: {name!r} -> {link!r}")


def supersedes(saved: Manifest, other: Manifest | CheckpointSpec) -> bool:
    """Whether a later life of the job than ``other``'s has saved that version, so that ``other`` must
    not replace it: a later generation, or within one a later attempt of the same task."""
    if not saved.job_id or saved.job_id != other.job_id:
        return False
    if saved.generation != other.generation:
        return saved.generation > other.generation
    return saved.task == other.task and saved.attempt > other.attempt


class Versions:
    """The versions of one place in the order they count. Each manifest is read once: it never
    changes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, Manifest | Damaged] = {}

    def look(self) -> list[str]:
        """Their names, the newest last. A version that an attempt published after its successor
        had, which only stores without an atomic rename let happen, comes before all others.

        Raises:
            OSError: the store can't be read.
        """
        names = self._store.versions()
        self._read = {name: self._read.get(name) or self._load(name) for name in names}
        sound = self.sound()
        stale = {
            name
            for place, (name, manifest) in enumerate(sound)
            if any(supersedes(earlier, manifest) for _, earlier in sound[:place])
        }
        return sorted(names, key=lambda name: name not in stale)

    def sound(self) -> list[tuple[str, Manifest]]:
        """Those with a sound manifest, by number, as of the last look."""
        return [(name, m) for name, m in self._read.items() if isinstance(m, Manifest)]

    def manifest(self, version: str) -> Manifest:
        """Of one that was there at the last look.

        Raises:
            Damaged: it is not sound.
        """
        found = self._read[version]
        if isinstance(found, Damaged):
            raise found
        return found

    def newest(self) -> tuple[str, Manifest] | None:
        """The newest with a sound manifest, now."""
        names = self.look()
        sound = dict(self.sound())
        return next(((name, sound[name]) for name in reversed(names) if name in sound), None)

    def _load(self, version: str) -> Manifest | Damaged:
        try:
            return read_manifest(self._store, version)
        except Damaged as damage:
            return damage


def latest_complete(place: str) -> tuple[str, Manifest] | None:
    """The newest version with a sound manifest; None if there is none.

    Raises:
        OSError: the store can't be read.
    """
    return Versions(open_store(place)).newest()
