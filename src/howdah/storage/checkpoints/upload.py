"""Save a task's folder as a version that is never half-written.

As far as files can tell: all of the folder has been left alone for ``settle_s``, nobody has a file of
it open for writing, none changed while they were copied, and each copy was compared with its original.

Not guaranteed: that files a program writes one after the other with pauses longer than
``settle_s`` between them belong to the same step. Such a program writes into a folder with an
ignored name and renames it, or the job sets a longer ``settle``.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from howdah.storage.checkpoints.restoring import NoVersion, restore
from howdah.storage.checkpoints.unsaved_files import claim, over
from howdah.storage.checkpoints.versions import (
    CheckpointSpec,
    Manifest,
    Saved,
    SavedFile,
    Skipped,
    Versions,
    checksum,
    damage,
    latest_complete,
    supersedes,
    written,
)
from howdah.storage.errors import Outdated
from howdah.storage.folders import FolderChanged, Signature, Tree, empty_folders
from howdah.storage.stores.checkpoint_stores import (
    CLAIM,
    HDFS_PATIENCE_S,
    MANIFEST,
    Draft,
    LocalStore,
    Store,
    open_store,
)

_LOG = logging.getLogger(__name__)

_ODD = re.compile(r"[^\w./+=@,~ -]")
"""What HDFS, stores of objects or fsspec do not take in a name, or take for something else; and bytes that are
no text."""
_LONGEST_NAME = 255

_CLOCK_TICK_NS = 100_000_000
"""Two changes of a file within this may have the same time stamp (file systems: up to 10 ms)."""


class CheckpointUploader:
    """Saves one folder again and again; reads a file only when it has changed."""

    def __init__(self, spec: CheckpointSpec, patience_s: float = HDFS_PATIENCE_S) -> None:
        self._spec = spec
        self._folder = Path(spec.folder)
        self._store = open_store(spec.place, patience_s, within=spec.job_dir)
        self._versions = Versions(self._store)
        self._known: dict[str, tuple[Signature, str]] = {}
        """Files as they were when they were read, and their digests then."""
        self._young: set[str] = set()
        """Files that had just changed then: another change may have left no trace."""
        self._claimed = False
        self._version: str = ""
        self._manifest: Manifest | None = None
        """The newest version in the store, as far as is known."""
        self._version, self._manifest = self._versions.newest() or ("", None)

    def changed(self, tree: Tree) -> bool:
        """Whether the folder differs from the newest version, judged without reading it.

        An empty folder never counts as changed: it is not worth a version.
        """
        if not tree or self._manifest is None:
            return bool(tree)
        saved = {file.path: file for file in self._manifest.files}
        return saved.keys() != tree.keys() or not all(
            self._same(name, signature, saved[name]) for name, signature in tree.items()
        )

    def publish(self, tree: Tree | None = None) -> Saved | None:
        """Save the folder (``tree`` is what was seen in it) as a new version; None if nothing is new.

        Raises:
            FolderChanged: a file is not what it was; nothing was saved.
            Outdated: the job has gone on without this task; nothing was saved.
            OSError: the store can't be written.
        """
        started = time.monotonic()
        if tree is None:
            tree = self._spec.look()
        if not self.changed(tree):
            return None
        self._check()
        return self._publish(tree, started)

    def begin(self) -> None:
        """Remove unfinished versions, unless they may be another task's, and prove that the place can
        be written.

        Raises:
            Outdated, OSError: as `publish`.
        """
        self._check()
        if not self._spec.rank:
            self._store.clean()
        self._store.draft().discard()

    def claim(self) -> bool:
        """Say that this task has something to save; whether no task of a lower rank has said so in
        this generation.

        Raises:
            OSError: the store can't be read or written.
        """
        if self._spec.rank is None:
            return True
        generation = f"{CLAIM}{self._spec.generation:06}-"
        own = claim(self._spec)
        if not self._claimed:
            self._store.claim(own)
            self._claimed = True
        if self._spec.rank == 0:
            return True
        return not any(generation < each < own for each in self._store.claims())

    def is_over(self) -> None:
        """Say that this task, if it has claimed the place, saves no more.

        Raises:
            OSError: the store can't be written.
        """
        if self._claimed:
            self._store.claim(over(self._spec))

    def _publish(self, tree: Tree, started: float) -> Saved | None:
        draft = self._store.draft()
        try:
            read_at_ns = time.time_ns()
            files: list[SavedFile] = []
            for path, signature in sorted(tree.items()):
                files.append(self._save(draft, path, signature, tree))
            if self._spec.look() != tree:
                raise FolderChanged(f"{self._folder} changed while it was copied")
            self._known = {file.path: (tree[file.path], file.sha256) for file in files}
            self._young = {
                path
                for path, signature in tree.items()
                if signature.ctime_ns >= read_at_ns - _CLOCK_TICK_NS
            }
            manifest = Manifest(
                files=tuple(files),
                checksum=checksum(files),
                created=time.time(),
                folders=() if self._spec.given else empty_folders(self._folder, self._spec.ignore),
                job_id=self._spec.job_id,
                task=self._spec.task,
                generation=self._spec.generation,
                attempt=self._spec.attempt,
                origin=self._spec.origin,
            )
            if self._manifest is not None and self._manifest.checksum == manifest.checksum:
                self._manifest = manifest  # touched, not changed: only times differ
                return None
            self._version = draft.publish(written(manifest), self._check)
            self._manifest = manifest
        finally:
            draft.discard()
        self._prune()
        return Saved(
            version=self._version,
            files=len(files),
            bytes=manifest.size,
            checksum=manifest.checksum,
            seconds=round(time.monotonic() - started, 3),
        )

    def _save(self, draft: Draft, path: str, signature: Signature, tree: Tree) -> SavedFile:
        if signature.link:
            return SavedFile(path=path, size=0, link=signature.link)
        stored = _stored_name(path, tree, self._store)
        digest = self._unchanged(path, stored, signature)
        if digest is None or not draft.reuse(self._version, stored):
            digest = draft.add(self._folder / path, stored)
        return SavedFile(
            path=path,
            size=signature.size,
            mode=stat.S_IMODE((self._folder / path).stat().st_mode) & 0o777,
            sha256=digest,
            mtime_ns=signature.mtime_ns,
            stored=stored if stored != path else "",
        )

    def _same(self, path: str, signature: Signature, saved: SavedFile) -> bool:
        if signature.link or saved.link:
            return signature.link == saved.link
        if path in self._young:
            return False
        known = self._known.get(path)
        if known is not None:
            return known == (signature, saved.sha256)
        # Not read by this process: a folder just restored has the saved sizes and times.
        return (signature.size, signature.mtime_ns) == (saved.size, saved.mtime_ns)

    def _unchanged(self, path: str, stored: str, signature: Signature) -> str | None:
        """The file's digest, if it is surely what the newest version has under that name."""
        known = self._known.get(path)
        if self._manifest is None or path in self._young or known is None or known[0] != signature:
            return None
        return next(
            (
                file.sha256
                for file in self._manifest.files
                if file.path == path and file.name == stored and file.sha256 == known[1]
            ),
            None,
        )

    def _check(self) -> None:
        """Fence: what a later attempt has saved is not replaced."""
        found = self._versions.newest()
        if found is not None and found[0] != self._version:
            self._version, self._manifest = found
        for version, saved in self._versions.sound():
            if supersedes(saved, self._spec):
                raise Outdated(
                    f"{self._spec.place} has {version} of attempt {saved.attempt} in generation"
                    f" {saved.generation}: the folder {self._folder} of attempt"
                    f" {self._spec.attempt} in generation {self._spec.generation} is not saved"
                    " any more"
                )

    def _prune(self) -> None:
        versions = self._versions.look()
        for version in versions[: max(len(versions) - max(self._spec.keep, 1), 0)]:
            try:
                self._store.remove(version)
            except Exception as error:
                # The new version is safe; the old one is tried again after the next.
                _LOG.warning("Checkpoint %s can't be removed: %s", version, error)


def publish(spec: CheckpointSpec) -> Saved | None:
    """Save the folder once, as it is; None if it holds nothing new. See `CheckpointUploader.publish`."""
    return CheckpointUploader(spec).publish()


def adopt(
    old: str, new: str, job_id: str, skipped: Callable[[Skipped], None] = lambda version: None
) -> str | None:
    """Copy the newest sound version at the place ``old``, of that job, to the place ``new``.

    For a job that begins where another ended. Returns what was copied, as `Manifest.origin` has it;
    None if there is none. Damaged versions are told to ``skipped``.

    Raises:
        NoVersion: there are versions, and all are damaged.
        OSError: a place can't be read or written.
    """
    with tempfile.TemporaryDirectory(prefix="howdah-", dir=_scratch_parent(new)) as scratch:
        folder = f"{scratch}/adopted"
        restored = restore(CheckpointSpec(folder=folder, store=old))
        if restored.version is None:
            if restored.skipped:
                raise NoVersion(
                    f"every checkpoint in {old} is damaged ({damage(restored.skipped)})"
                )
            return None
        for version in restored.skipped:
            skipped(version)
        origin = restored.origin or f"{restored.version} of {job_id}"
        copy = CheckpointSpec(folder=folder, store=new, ignore=(), origin=origin)
        if publish(copy) is None and latest_complete(new) is None:
            return None
        return origin


def adopt_folder(folder: Path, new: str, origin: str) -> str:
    """Save a folder of files at the place ``new`` as a version that is a copy of ``origin``; returns that.

    Raises:
        OSError: the folder can't be read, or the place not be written.
    """
    publish(CheckpointSpec(folder=str(folder), store=new, ignore=(), origin=origin))
    return origin


def _scratch_parent(place: str) -> Path | None:
    """A folder with room for a checkpoint: beside the place if that is local."""
    store = open_store(place)
    if not isinstance(store, LocalStore):
        return None
    store.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return store.path


def _stored_name(path: str, tree: Tree, store: Store) -> str:
    """Where the file is put: under its own name, unless that is the manifest's, or none that the store
    takes."""
    if not store.any_name and _ODD.search(path):
        stored = _ODD.sub(
            lambda found: "".join(f"%{byte:02X}" for byte in os.fsencode(found[0])), path
        )
        if max(map(len, stored.split("/"))) <= _LONGEST_NAME:
            return stored
        return hashlib.sha256(os.fsencode(path)).hexdigest()
    if path != MANIFEST:
        return path
    while path in tree:
        path += "~"
    return path
