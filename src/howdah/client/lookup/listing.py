"""Many jobs at a glance."""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from howdah.backends.base import BackendError
from howdah.client.errors import HowdahError
from howdah.client.following import offline_job
from howdah.client.handle import AsyncJobHandle
from howdah.client.lookup.states import UNREADABLE
from howdah.storage.jobdir import JobDirectory, NotYours, StorageError, list_jobs
from howdah.storage.journal import JournalError
from howdah.wire.status import JobView

T = TypeVar("T")

ASK_S = 2.0
"""A coordinator that is slower than this is not waited for: its journal is read instead."""

AT_ONCE = 16
"""Jobs looked at at the same time: the limit of each counts from its turn."""

SAME_SECOND = 50
"""More jobs than are submitted in one second."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are wanted; what is not given does not matter."""

    tags: tuple[str, ...] = ()
    """All of them."""
    name: str | None = None
    """A pattern, as of file names."""
    user: str | None = None
    since: float | None = None
    """Submitted then or later, in seconds since the epoch."""


async def views(
    base: Path,
    *,
    limit: int | None = None,
    backend: str | None = None,
    wanted: JobFilter = JobFilter(),  # noqa: B008 - it cannot be changed
    passed_over: Callable[[NotYours], None] = lambda problem: None,
    unknown: Callable[[JobView], None] = lambda view: None,
) -> list[JobView]:
    """Status documents of the jobs below ``base``, newest first; of one backend, if it is named.

    Of what ``wanted`` asks for only of jobs that are known to be so, not of such as cannot be read.

    One job that cannot be read never hides the others: its document says why. ``passed_over`` is
    told of those that are not the user's own; they are left out. ``unknown`` is told of those whose
    end, if they had one, could not be found out.

    Raises:
        NotYours: others could put jobs there.
    """
    directories = [
        directory
        for directory in list_jobs(base, passed_over)
        if (backend is None or _backend(directory) in (backend, None))
        and (wanted == JobFilter() or _is_wanted(directory, wanted))
    ][:limit]
    turns = asyncio.Semaphore(AT_ONCE)

    async def in_turn(directory: JobDirectory) -> JobView:
        async with turns:
            return await look(directory, unknown)

    found = await asyncio.gather(*map(in_turn, directories))
    # Ids tell the time to the second only.
    return sorted(found, key=lambda view: view.submitted or 0.0, reverse=True)


def _backend(directory: JobDirectory) -> str | None:
    try:
        return directory.meta().backend
    except StorageError:
        return None


def _is_wanted(directory: JobDirectory, wanted: JobFilter) -> bool:
    try:
        meta = directory.meta()
        if wanted.since is not None and meta.submitted < wanted.since:
            return False
        if wanted.user is not None and wanted.user not in (meta.user, meta.owner):
            return False
        if wanted.name is None and not wanted.tags:
            return True
        job = directory.job()
    except StorageError:
        return False
    named = wanted.name is None or fnmatch.fnmatchcase(job.name, wanted.name)
    return named and set(wanted.tags) <= set(job.tags)


def newest(base: Path) -> JobDirectory | None:
    """The job submitted last; None if there are none."""
    latest = list_jobs(base)[:SAME_SECOND]
    return max(latest, key=JobDirectory.submitted, default=None)


async def look(
    directory: JobDirectory, unknown: Callable[[JobView], None] = lambda view: None
) -> JobView:
    """The job's status document, of its coordinator if it has one; one that cannot be read says why.

    ``unknown`` is told it where not even whether the job has ended could be found out.
    """
    try:
        asked = False
        try:
            final = directory.final()
            if final is not None:
                return final
            handle = AsyncJobHandle(directory)
            async with asyncio.timeout(ASK_S):
                if await _in_own_thread(handle.ended) is not None:
                    return offline_job.view(directory)
                asked = True
                return await handle.status()
        except (HowdahError, TimeoutError) as error:
            silent = "its coordinator" if asked else "the place where it is kept"
            why = str(error) or f"{silent} did not answer within {ASK_S:g}s"
            view = msgspec.structs.replace(offline_job.view(directory), reason=why)
            if not asked:
                unknown(view)
            return view
    except (StorageError, JournalError, BackendError, OSError) as error:
        view = JobView(
            job_id=directory.job_id,
            name="?",
            framework="?",
            user="?",
            backend="?",
            phase=UNREADABLE,
            reason=str(error),
            directory=str(directory.path),
        )
        if isinstance(error, BackendError):
            unknown(msgspec.structs.replace(view, submitted=directory.submitted()))
        return view


async def _in_own_thread(call: Callable[[], T]) -> T:
    """As `asyncio.to_thread`, whose threads are few: calls that hang would take them from all others."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="look")
    answer = pool.submit(call)
    pool.shutdown(wait=False)
    return await asyncio.wrap_future(answer)
