"""The portal's own schedule of ``howdah prune``: in the folder of each user, as that user.

The portal may read everything, and what users put into their folders is not to be trusted. So it removes
nothing itself: each folder's owner does, in a process of theirs that can do no more than they could. For
jobs on HDFS that process is the owner on the cluster as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import msgspec

from howdah.packing.archives import quantity
from howdah.portal.as_owner import NoAccount, as_owner, ids_of, kill, last_line, may_be, one_line
from howdah.portal.copies import JOB_ID, ClusterStore
from howdah.storage.copies.local_copy import account

log: logging.Logger = logging.getLogger(__name__)

EVERY_S = 24 * 3600.0
LONGEST_S = 3600.0
"""For the folder of one user."""
ROUNDS = 30
"""That are shown."""
_ANSWER_BYTES = 4 * 1024 * 1024


class CannotPrune(Exception):
    """The portal is not able to do what it was asked for; the text says why, and what to do."""


class PrunedJob(msgspec.Struct, frozen=True):
    """A job that is gone."""

    job_id: str
    bytes: int


class Failed(msgspec.Struct, frozen=True):
    """A job, or the jobs of a folder, that should have gone."""

    job_id: str
    reason: str


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What became of all users' jobs at one time."""

    at: float
    """Seconds since the epoch."""
    removed: tuple[PrunedJob, ...] = ()
    failed: tuple[Failed, ...] = ()

    @property
    def freed(self) -> str:
        """``1.2 GB``"""
        return quantity(sum(each.bytes for each in self.removed))


class _Answer(msgspec.Struct, frozen=True):
    """What ``howdah prune --json`` prints."""

    removed: list[PrunedJob]
    failed: list[Failed]


class Owner(NamedTuple):
    """Whose jobs are removed, and as whom."""

    user: str
    """As their folder is called."""
    name: str
    """The account that it belongs to."""
    uid: int | None
    """The number of that account on this machine; None if it has none."""
    gid: int
    env: Mapping[str, str] = MappingProxyType({})
    """Variables that make a program that user on a cluster."""
    problem: str = ""
    """Why it has no account here."""


class Owners(Protocol):
    """The users' folders of a store."""

    place: str
    """Its path or URL."""

    def all(self) -> Sequence[Owner]:
        """By name. Raises `OSError`."""
        ...


class LocalOwners:
    """Those of a folder.

    Raises:
        CannotPrune: the portal runs as an account that may not remove other users' jobs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.place: str = os.fspath(folder)
        for user, name, uid, *_ in self.all():
            if uid is not None and not may_be(uid):
                raise CannotPrune(
                    f"the jobs in {folder / user} are {name}'s, and only root can remove them in their "
                    "name: run the portal as root, or let each user run howdah prune"
                )

    def all(self) -> list[Owner]:
        found: list[Owner] = []
        with os.scandir(self._folder) as entries:
            for each in sorted(entries, key=lambda entry: entry.name):
                if not each.name.startswith(".") and each.is_dir(follow_symlinks=False):
                    of = each.stat(follow_symlinks=False)
                    found.append(Owner(each.name, account(of.st_uid), of.st_uid, of.st_gid))
        return found


class RemoteOwners:
    """Those of a store on a cluster.

    Args:
        store: such as `howdah.backends.registry.cluster_store` gives.

    Raises:
        CannotPrune: the cluster wants each user's own proof.
    """

    def __init__(self, store: ClusterStore) -> None:
        self._store = store
        self.place: str = store.place
        if store.wants_proof:
            raise CannotPrune(
                f"the jobs in {self.place} are removed in their owners' names, and the portal has no "
                "Kerberos tickets of theirs: leave it out, and let each user run "
                f"'howdah prune --store {self.place} --yes'"
            )

    def all(self) -> list[Owner]:
        found: list[Owner] = []
        for user in self._store.users():
            if not user.startswith("."):
                try:
                    found.append(self._owner(user))
                except OSError as error:  # the others' jobs are pruned all the same
                    log.warning("%s/%s cannot be looked at: %s", self.place, user, error)
        return found

    def _owner(self, user: str) -> Owner:
        name, env = self._store.owner_of(user), self._store.acting_as(user)
        try:
            return Owner(user, name, *ids_of(name), env)
        except NoAccount as problem:
            return Owner(user, name, None, 0, problem=str(problem))


class PruneSchedule:
    """Prunes at once, then each day.

    Args:
        owners: whose jobs.
        older_than: as ``howdah prune`` takes it, such as ``90d``; None for any age.
        keep_size: the same, such as ``200g``, of each user's folder; None for any size.
    """

    def __init__(
        self, owners: Owners, older_than: str | None, keep_size: str | None = None
    ) -> None:
        self._owners = owners
        self.rule: str = _rule(older_than, keep_size)
        """What is removed, for people."""
        limits = {"--older-than": older_than, "--keep-size": keep_size}
        self._limits = [word for name, text in limits.items() if text for word in (name, text)]
        self.rounds: deque[Round] = deque(maxlen=ROUNDS)
        """Newest first."""

    async def run(self) -> None:
        """Prune until cancelled."""
        while True:
            try:
                await self.prune()
            except Exception:  # the next day may be better, and the pages are served meanwhile
                log.exception("the jobs in %s were not pruned", self._owners.place)
            await asyncio.sleep(EVERY_S)

    async def prune(self) -> None:
        """Remove what is due now, one user after another."""
        at = time.time()
        removed: list[PrunedJob] = []
        failed: list[Failed] = []
        try:
            owners = await asyncio.to_thread(self._owners.all)
        except OSError as error:
            owners = []
            failed.append(Failed(self._owners.place, error.strerror or str(error)))
        for owner in owners:
            answer = await self._prune_folder(owner)
            removed += answer.removed
            failed += answer.failed
            for each in answer.removed:
                log.warning(
                    "removed %s of %s, %s freed", each.job_id, owner.user, quantity(each.bytes)
                )
        for each in failed:
            log.warning("%s was not removed: %s", each.job_id, each.reason)
        self.rounds.appendleft(Round(at=at, removed=tuple(removed), failed=tuple(failed)))

    async def _prune_folder(self, owner: Owner) -> _Answer:
        """What the folder's owner has removed there."""
        place, name = f"{self._owners.place.rstrip('/')}/{owner.user}", owner.name
        if name != owner.user:
            return _no(place, f"it is not {owner.user}'s but {name}'s")
        if owner.uid is None:
            return _no(place, f"they are removed in {name}'s name, but {owner.problem}")
        command = [
            *(sys.executable, "-I", "-m", "howdah", "prune", "--yes", "--json"),
            *(*self._limits, "--store", self._owners.place),
        ]
        try:
            async with _as_whom(owner, owner.uid) as options:
                code, said, told = await _output(command, options)
        except TimeoutError:
            return _no(place, f"howdah prune was still not done after {LONGEST_S:.0f} s, and ended")
        except OSError as error:
            return _no(place, f"{name} cannot run {command[0]}: {error.strerror or error}")
        try:
            answer = msgspec.json.decode(said, type=_Answer)
        except (ValueError, RecursionError):
            return _no(place, last_line(told) or f"howdah prune exited with code {code}")
        # Its owner may have made it say anything.
        return _Answer(
            [each for each in answer.removed if JOB_ID.fullmatch(each.job_id)],
            [Failed(one_line(each.job_id), one_line(each.reason)) for each in answer.failed],
        )


def _rule(older_than: str | None, keep_size: str | None) -> str:
    age = f" that ended more than {older_than} ago" if older_than else ""
    if keep_size is None:
        return f"Jobs{age} are removed each day"
    return (
        f"Of each user whose jobs need more than {keep_size}, the oldest{age} are removed each day"
    )


def _no(place: str, why: str) -> _Answer:
    return _Answer([], [Failed(place, why)])


@contextlib.asynccontextmanager
async def _as_whom(owner: Owner, uid: int) -> AsyncIterator[dict[str, Any]]:
    """Options of a program that runs as the owner, with nothing of ours. What it copies from a cluster
    is gone afterwards.

    Raises:
        OSError: there is no room for that.
    """
    options = as_owner(owner.name, uid, owner.gid)
    if not owner.env:
        yield options
        return
    home = tempfile.mkdtemp(prefix="howdah-prune-")
    try:
        os.chown(home, uid, owner.gid)
        options["env"] |= {**owner.env, "HOWDAH_HOME": home}
        yield options
    finally:
        await asyncio.to_thread(shutil.rmtree, home, ignore_errors=True)


async def _output(command: Sequence[str], options: dict[str, Any]) -> tuple[int, bytes, bytes]:
    """Exit code, and what it wrote, of a program.

    Raises:
        OSError: it may not be run.
        TimeoutError: it did not end.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **options,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(LONGEST_S):
            said, told = await asyncio.gather(_read(process.stdout), _read(process.stderr))
            return await process.wait(), said, told
    except BaseException:
        kill(process)
        await process.wait()
        raise


async def _read(stream: asyncio.StreamReader) -> bytes:
    """All of it that is no more than an answer can be."""
    found = bytearray()
    while part := await stream.read(65536):
        found += part[: _ANSWER_BYTES - len(found)]
    return bytes(found)
