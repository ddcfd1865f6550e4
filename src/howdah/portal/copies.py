"""The jobs of all users below a store, as copies in a folder of the portal's own.

Only the portal reads the copies, and it reads nothing else: see `howdah.storage.copies.local_copy` for what is
copied of directories that their owners may fill with anything.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from howdah.portal.access_control import JobAcl
from howdah.portal.index import SETTLED_NS
from howdah.portal.rows import Row
from howdah.storage.copies import local_copy
from howdah.storage.files import make_private_folder
from howdah.storage.jobdir import JobDirectory, StorageError, own

log: logging.Logger = logging.getLogger(__name__)

JOB_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class InUse(Exception):
    """Another portal has the copies of that store."""


class UserFolders(Protocol):
    """What has a folder for each user, with the user's job directories. All calls block and raise
    `OSError`."""

    place: str
    """Its path or URL."""
    pause_s: float
    """It is not looked through oftener than this."""

    def users(self) -> Sequence[str]:
        """Names of the users' folders."""
        ...

    def jobs_of(self, user: str) -> Collection[str]:
        """Names of the folders in one."""
        ...

    def adopt(self, user: str, job_id: str, local: Path) -> bool:
        """Copy what is needed to list the job; false if it is none (yet)."""
        ...


class ClusterStore(UserFolders, Protocol):
    """One on a cluster."""

    wants_proof: bool
    """Nobody is a user there by their name alone."""

    def owner_of(self, user: str) -> str:
        """The account that the user's folder belongs to."""
        ...

    def acting_as(self, user: str) -> Mapping[str, str]:
        """Variables that make a program that user, where no proof is wanted."""
        ...


class FolderStore:
    """A folder of this machine, or one that it sees."""

    pause_s: float = 0.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place: str = os.fspath(folder)
        self._listed: dict[str, tuple[int, frozenset[str]]] = {}
        """Of each user's folder: when it was changed last, and what is in it."""

    def users(self) -> list[str]:
        return sorted(_folders(self._folder))

    def jobs_of(self, user: str) -> frozenset[str]:
        folder = self._folder / user
        changed_ns = folder.stat(follow_symlinks=False).st_mtime_ns
        known = self._listed.get(user)
        if known is not None and known[0] == changed_ns:
            return known[1]
        found = _folders(folder)
        if time.time_ns() - changed_ns > SETTLED_NS:
            self._listed[user] = changed_ns, found
        return found

    def adopt(self, user: str, job_id: str, local: Path) -> bool:
        return local_copy.adopt(self._folder / user / job_id, local) is not None


def _marked(job_id: str, user: str) -> str:
    """No longer than a part of a host name may be, and no id (`JOB_ID`), so that nobody can choose it."""
    return f"{job_id[:46]}_{hashlib.sha256(os.fsencode(f'{user}/{job_id}')).hexdigest()[:16]}"


def _folders(folder: Path) -> frozenset[str]:
    with os.scandir(folder) as entries:
        return frozenset(each.name for each in entries if each.is_dir(follow_symlinks=False))


class Copies:
    """The copies of one store. `bring` is for one thread at a time.

    Args:
        store: where the jobs are.
        folder: a private one.

    Raises:
        InUse: another portal shows that store.
    """

    def __init__(self, store: UserFolders, folder: Path) -> None:
        self._store = store
        self.place: str = store.place
        name = hashlib.sha256(os.fsencode(store.place)).hexdigest()[:16]
        self.base: Path = folder / f"team-{name}"
        make_private_folder(self.base)
        self._lock = os.open(folder / f"team-{name}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise InUse(f"another portal of this account shows the jobs in {self.place}") from None
        self._from: dict[str, tuple[str, str]] = {}
        """Of each copy, by its name: the user's folder that the job is in, and the job's there."""
        for copy in self.base.iterdir():
            try:
                origin = local_copy.origin_of(copy)
            except StorageError:
                origin = None
            if origin is None or origin.partial:
                shutil.rmtree(copy, ignore_errors=True)
            else:
                _, user, job_id = origin.folder.rsplit("/", 2)
                self._from[copy.name] = user, job_id
        self._next = 0.0
        self.unread: dict[str, str] = {}
        """Folders that cannot be read, and why."""

    def close(self) -> None:
        """Let another portal have them."""
        os.close(self._lock)

    def bring(self, ended: Callable[[], bool]) -> None:
        """Copy jobs that are new, remove copies of those that are gone. Stops early once ``ended`` says
        so.

        Anyone can give a folder of theirs the id of somebody else's job. So each user's is a job of its own:
        one that is known keeps its id as its name here, others of that id have their user's mark in it.
        """
        if time.monotonic() < self._next:
            return
        unread: dict[str, str] = {}
        there: set[tuple[str, str]] = set()
        try:
            users = self._store.users()
        except OSError as error:
            self.unread = {self.place: error.strerror or str(error)}
            return
        for user in users:
            try:
                for job_id in filter(JOB_ID.fullmatch, self._store.jobs_of(user)):
                    there.add((user, job_id))
            except OSError as error:
                # Copies of what cannot be read just now are kept.
                unread[f"{self.place}/{user}"] = error.strerror or str(error)
                there.update(source for source in self._from.values() if source[0] == user)
        for name in [each for each, source in self._from.items() if source not in there]:
            shutil.rmtree(self.base / name, ignore_errors=True)
            del self._from[name]
        with_id = Counter(job_id for _, job_id in there)
        for user, job_id in sorted(there - set(self._from.values())):
            if ended():
                return
            name = job_id if with_id[job_id] == 1 else _marked(job_id, user)
            try:
                if self._store.adopt(user, job_id, self.base / name):
                    self._from[name] = user, job_id
            except (OSError, StorageError) as error:
                unread[f"{self.place}/{user}/{job_id}"] = str(error)
                shutil.rmtree(self.base / name, ignore_errors=True)
        for folder in unread.keys() - self.unread.keys():
            log.warning("%s cannot be read: %s", folder, unread[folder])
        self.unread = unread
        self._next = time.monotonic() + self._store.pause_s

    def share(self, row: Row) -> tuple[Row, JobAcl]:
        """The job as others may be shown it, and who they are."""
        directory = own(JobDirectory(self.base / row.job_id))
        try:
            owner = local_copy.origin_of(directory.path).owner
        except StorageError:
            return row, JobAcl()
        row = msgspec.structs.replace(row, user=owner)
        try:
            return row, JobAcl(owner=owner, acl=directory.job().acl)
        except StorageError:
            return row, JobAcl(owner=owner)
