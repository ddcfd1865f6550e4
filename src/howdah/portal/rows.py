"""One job of the list, as its directory or its status document tells it."""

from __future__ import annotations

import msgspec

from howdah.client.following import offline_job
from howdah.client.lookup.states import UNREADABLE, state
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire.status import JobView

WORDS_MAX = 300
"""Characters kept of a name, a tag, …"""
REASON_MAX = 2000


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One job of the list."""

    job_id: str
    name: str
    user: str
    framework: str
    backend: str
    queue: str
    """The cluster's queue that it is in; until the cluster has told, the one it asks for, if any."""
    tags: tuple[str, ...]
    state: str
    """waiting, running, succeeded, failed, stopped, timed-out, lost or unreadable."""
    cause: str
    """Of the first failure, such as ``user-code``; empty without one."""
    reason: str
    submitted: float
    """Seconds since the epoch."""
    finished: float | None
    took: float | None
    """Seconds from the submission to the end; None before it."""
    restarts: int
    tasks: int
    ended: bool


def row_of(directory: JobDirectory) -> Row:
    """A job as its directory tells it; one that cannot be read says why."""
    try:
        return row(directory, offline_job.view(directory))
    except Exception as error:  # a journal may hold anything, and the list must not break
        return unreadable(directory, str(error) or type(error).__name__)


def unreadable(directory: JobDirectory, why: str) -> Row:
    """A job that cannot be read."""
    try:
        changed = directory.path.stat().st_mtime
    except OSError:
        changed = 0.0
    return Row(
        job_id=directory.job_id,
        name=directory.job_id,
        user="?",
        framework="?",
        backend="?",
        queue="",
        tags=(),
        state=UNREADABLE,
        cause="",
        reason=why[:REASON_MAX],
        submitted=changed,
        finished=None,
        took=None,
        restarts=0,
        tasks=0,
        ended=False,
    )


def row(directory: JobDirectory, view: JobView) -> Row:
    """A job of the list from its status document."""
    if view.phase == UNREADABLE:
        return unreadable(directory, view.reason)
    try:
        job = directory.job()
        queue, tags = view.queue or job.queue or "", job.tags
    except StorageError:
        queue, tags = view.queue, ()
    submitted = view.submitted or 0.0
    took = None if view.finished is None or not submitted else view.finished - submitted
    return Row(
        # The directory's name is the job's id wherever it is asked for.
        job_id=directory.job_id,
        name=view.name[:WORDS_MAX],
        user=view.user[:WORDS_MAX],
        framework=view.framework[:WORDS_MAX],
        backend=view.backend[:WORDS_MAX],
        queue=queue[:WORDS_MAX],
        tags=tuple(tag.replace("\n", " ")[:WORDS_MAX] for tag in tags[:50]),
        state=state(view),
        cause=view.failures[0].cause if view.failures else "",
        reason=view.reason[:REASON_MAX],
        submitted=submitted,
        finished=view.finished,
        took=took,
        restarts=min(view.restarts, 2**53),
        tasks=min(len(view.tasks), 2**53),
        ended=view.over,
    )
