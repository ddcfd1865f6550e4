"""The portal's own schedule of ``howdah prune``: in the folder of each user, as that user.

The portal may read everything, and what users put into their folders is not to be trusted. So it removes
nothing itself: each folder's owner does, in a process of theirs that can do no more than they could.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from howdah.packing.archives import quantity
from howdah.portal.as_owner import as_owner, kill, last_line, may_be, one_line
from howdah.portal.copies import JOB_ID
from howdah.storage.local_copy import account

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


class PruneSchedule:
    """Prunes at once, then each day.

    Args:
        folder: it has a folder of job directories for each user.
        older_than: as ``howdah prune`` takes it, such as ``90d``; None for any age.
        keep_size: the same, such as ``200g``, of each user's folder; None for any size.

    Raises:
        CannotPrune: it runs as an account that may not remove other users' jobs.
    """

    def __init__(self, folder: Path, older_than: str | None, keep_size: str | None = None) -> None:
        self._folder = folder
        self.rule: str = _rule(older_than, keep_size)
        """What is removed, for people."""
        limits = {"--older-than": older_than, "--keep-size": keep_size}
        self._limits = [word for name, text in limits.items() if text for word in (name, text)]
        self.rounds: deque[Round] = deque(maxlen=ROUNDS)
        """Newest first."""
        for user, uid, _ in self._owners():
            if not may_be(uid):
                raise CannotPrune(
                    f"the jobs in {folder / user} are {account(uid)}'s, and only root can remove "
                    "them in their name: run the portal as root, or let each user run howdah prune"
                )

    async def run(self) -> None:
        """Prune until cancelled."""
        while True:
            try:
                await self.prune()
            except Exception:  # the next day may be better, and the pages are served meanwhile
                log.exception("the jobs in %s were not pruned", self._folder)
            await asyncio.sleep(EVERY_S)

    async def prune(self) -> None:
        """Remove what is due now, one user after another."""
        at = time.time()
        removed: list[PrunedJob] = []
        failed: list[Failed] = []
        try:
            owners = await asyncio.to_thread(lambda: list(self._owners()))
        except OSError as error:
            owners = []
            failed.append(Failed(str(self._folder), error.strerror or str(error)))
        for user, uid, gid in owners:
            answer = await self._prune_folder(user, uid, gid)
            removed += answer.removed
            failed += answer.failed
            for each in answer.removed:
                log.warning("removed %s of %s, %s freed", each.job_id, user, quantity(each.bytes))
        for each in failed:
            log.warning("%s was not removed: %s", each.job_id, each.reason)
        self.rounds.appendleft(Round(at=at, removed=tuple(removed), failed=tuple(failed)))

    def _owners(self) -> Iterator[tuple[str, int, int]]:
        """Users' folders, each with its owner and their group."""
        with os.scandir(self._folder) as entries:
            for each in sorted(entries, key=lambda entry: entry.name):
                if not each.name.startswith(".") and each.is_dir(follow_symlinks=False):
                    found = each.stat(follow_symlinks=False)
                    yield each.name, found.st_uid, found.st_gid

    async def _prune_folder(self, user: str, uid: int, gid: int) -> _Answer:
        """What the folder's owner has removed there."""
        place = str(self._folder / user)
        name = account(uid)
        if name != user:
            return _no(place, f"it is not {user}'s but {name}'s")
        command = [
            *(sys.executable, "-I", "-m", "howdah", "prune", "--yes", "--json"),
            *(*self._limits, "--store", os.fspath(self._folder)),
        ]
        try:
            code, said, told = await _as_user(command, name, uid, gid)
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


async def _as_user(
    command: Sequence[str], name: str, uid: int, gid: int
) -> tuple[int, bytes, bytes]:
    """Exit code, and what it wrote, of a program that runs as the user, with nothing of ours.

    Raises:
        OSError: they may not run it.
        TimeoutError: it did not end.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        **as_owner(name, uid, gid),
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
