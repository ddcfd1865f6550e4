"""What jobs held, read from their directories. A job that has ended is read once: see `_Known`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec

from howdah.backends import registry
from howdah.backends.base import RoleResources, role_resources
from howdah.client.accounting import FailureUsage, JobUsage, JournalReading
from howdah.client.following import offline_job
from howdah.client.lookup.listing import look
from howdah.client.lookup.site import site_of
from howdah.client.lookup.states import UNREADABLE, state
from howdah.frameworks import planning
from howdah.frameworks.registry import UnknownFramework
from howdah.spec.model import Job
from howdah.storage import journal, layout, ownership
from howdah.storage.hdfs import is_hdfs
from howdah.storage.jobdir import JobDirectory, StorageError, base_folder, list_jobs
from howdah.storage.layout import JobMeta
from howdah.wire.decoders import message_decoder
from howdah.wire.status import JobView

VERSION = 1
"""A number for each shape of `JobUsage`, and for each change of what is counted."""
LEASE_S = 3900.0
"""HDFS has closed a file by then whose writer is dead (dfs.namenode.lease-hard-limit-sec, an hour at most)."""
AT_ONCE = 16
"""Coordinators asked at the same time."""


async def usages(
    base: Path,
    *,
    since: float | None = None,
    only: Collection[str] | None = None,
    left_out: Callable[[str], None] = lambda words: None,
) -> list[JobUsage]:
    """The jobs below ``base``, newest first, those that run as they are now.

    ``left_out`` is told, a line each, of those that cannot be read or are not the user's own, which
    hide no others, and of hours that are not known. ``only`` has the ids of those that are wanted.

    Raises:
        NotYours: others could put jobs there.
    """
    all_there = list_jobs(base, lambda problem: left_out(str(problem)))
    directories = [each for each in all_there if only is None or each.job_id in only]
    room, reading = asyncio.Semaphore(AT_ONCE), asyncio.Lock()
    known = await asyncio.to_thread(_Known, base)

    async def one(directory: JobDirectory) -> JobUsage | None:
        async with room:
            try:
                if found := known.get(directory):
                    return found
                view = await look(directory)
                unknown: list[str] = []
                async with reading:
                    found = await asyncio.to_thread(
                        usage, directory, view, time.time(), unknown.append
                    )
                for words in unknown:
                    left_out(words)
                if not unknown:
                    known.put(directory, found)
                return found
            except Exception as error:  # a journal may hold anything
                left_out(f"{directory.job_id}: {error or type(error).__name__}")
                return None

    try:
        found = await asyncio.gather(*map(one, directories))
    finally:
        known.close({directory.job_id for directory in all_there})
    return [each for each in found if each and (since is None or each.submitted >= since)]


def usage(
    directory: JobDirectory,
    view: JobView,
    now: float,
    unknown: Callable[[str], None] = lambda words: None,
) -> JobUsage:
    """One job.

    Args:
        directory: its directory.
        view: its status document.
        now: what a running job holds counts until then.
        unknown: told of hours that the journal does not show.

    Raises:
        JournalError: its journal is damaged.
        StorageError: its documents are missing or damaged.
        BackendError: its journal is elsewhere and cannot be brought.
    """
    if view.phase == UNREADABLE:
        raise StorageError(view.reason)
    job, meta = directory.job(), directory.meta()
    if not view.over or not any(directory.path.glob("events-*")):
        site = site_of(directory)
        if not site.at_hand:
            site.bring_story()
    if view.over:
        view = offline_job.view(directory)
    reading = JournalReading()
    for entry in journal.read(directory.path):
        reading.take(entry)
    if reading.machine.state.finished is None and _may_lag(meta, view, now):
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(reading.last))
        unknown(
            f"hours of {directory.job_id}{f' after {at}' if reading.last else ''}: its journal on HDFS is "
            "still open, and HDFS shows the end of an open file to nobody; its owner's howdah closes it"
        )
    over = view.over or view.lost
    until = (view.finished or reading.last) if over else now
    nodes: dict[tuple[str, int | None, float], str | None] = {
        (str(each.report.task), each.report.attempt, each.report.time): each.report.node
        for each in reading.machine.state.failures
    }
    shared = ("task", "attempt", "generation", "cause", "what", "exit_code", "signal", "time")
    return JobUsage(
        job_id=directory.job_id,
        name=view.name,
        user=meta.owner or view.user,
        backend=view.backend,
        framework=view.framework,
        queue=view.queue or job.queue or "",
        tags=job.tags,
        state=state(view),
        reason=view.reason,
        submitted=view.submitted or meta.submitted,
        started=view.started,
        finished=view.finished,
        restarts=view.restarts,
        containers=reading.containers(
            _resources(job, view.backend), until=until, over=over, lost=view.lost
        ),
        failures=tuple(
            FailureUsage(
                node=nodes.get((str(each.task), each.attempt, each.time)),
                counted=each.counted,
                **{name: getattr(each, name) for name in shared},
            )
            for each in view.failures
        ),
    )


def _may_lag(meta: JobMeta, view: JobView, now: float) -> bool:
    """Whether HDFS may show less of the journal than was written. What is open is closed for its owner,
    and some time after its writer's death by HDFS itself."""
    if meta.owner is None or meta.url is None or not is_hdfs(meta.url):
        return False
    return view.finished is None or now - view.finished < LEASE_S


def _resources(job: Job, backend: str) -> dict[str, RoleResources]:
    """What each container of a role holds: a core at least, and the memory that the backend asks for."""
    with contextlib.suppress(UnknownFramework):  # of a plugin that is not installed here
        job = planning.expand(job)
    memory_mb = registry.default_memory_mb(backend)
    return {
        name: msgspec.structs.replace(
            each, cores=each.cores or 1, memory_mb=each.memory_mb or memory_mb
        )
        for name, each in role_resources(job).items()
    }


class _Known:
    """What was read of jobs that have ended, in a file that can be removed at any time. Without a file
    that can be used, everything is read."""

    def __init__(self, base: Path) -> None:
        self._database: sqlite3.Connection | None = None
        self._rows: dict[str, tuple[str, bytes]] = {}
        folder = base_folder().parent.parent / "portal"
        name = hashlib.sha256(os.fsencode(base)).hexdigest()[:16]
        path = folder / f"usage-{name}-{VERSION}.sqlite"
        try:
            ownership.make_own_folder(folder)
            flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
            os.close(os.open(path, flags, 0o600))
            self._database = sqlite3.connect(path, check_same_thread=False, timeout=1.0)
            self._database.execute(
                "create table if not exists ended (job_id text primary key, stamp text, job blob)"
            )
            rows = self._database.execute("select job_id, stamp, job from ended")
            self._rows = {job_id: (stamp, data) for job_id, stamp, data in rows}
        except (sqlite3.OperationalError, OSError):  # another program writes it, or nobody may
            self._database = None
        except sqlite3.DatabaseError:  # it is damaged: made again the next time
            path.unlink(missing_ok=True)
            self._database = None

    def get(self, directory: JobDirectory) -> JobUsage | None:
        """What is known of that job, as long as its end is the one that was read."""
        stamp, data = self._rows.get(directory.job_id, ("", b""))
        if not stamp or stamp != _stamp(directory):
            return None
        try:
            return message_decoder(JobUsage).decode(data)
        except (msgspec.DecodeError, TypeError):
            return None

    def put(self, directory: JobDirectory, job: JobUsage) -> None:
        if self._database is None or job.finished is None:
            return
        if stamp := _stamp(directory):
            row = (directory.job_id, stamp, msgspec.msgpack.encode(job))
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("insert or replace into ended values (?, ?, ?)", row)

    def close(self, there: Collection[str]) -> None:
        """Keep what was put, and forget jobs that are gone."""
        if self._database is None:
            return
        with contextlib.suppress(sqlite3.Error):
            gone = [(job_id,) for job_id in self._rows if job_id not in there]
            self._database.executemany("delete from ended where job_id = ?", gone)
            self._database.commit()
        self._database.close()


def _stamp(directory: JobDirectory) -> str:
    try:
        status = (directory.path / layout.FINAL).stat()
    except OSError:
        return ""
    return f"{status.st_mtime_ns} {status.st_size}"
