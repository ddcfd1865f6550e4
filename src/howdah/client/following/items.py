"""What a follower of a job is given, as Python objects and, the same, as JSON lines.

With ``--json`` every line is one of these; ``type`` says which. Fields are only ever added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from howdah.client.following.log_lines import LogId
from howdah.storage.jobdir import JobDirectory
from howdah.wire.messages import RecordUpdate
from howdah.wire.status import JobView


class _Item(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"): ...


class LogLine(_Item, frozen=True, kw_only=True, tag="log"):
    """One line of a task's output."""

    task: str
    """``worker:1``"""
    attempt: int
    offset: int
    """Where the line begins in the attempt's log, in bytes ever written."""
    text: str
    time: float | None = None
    """When it was written, by the job's clock: seconds since the epoch, accurate to a tenth
    of a second (in very long logs to 20 seconds); null if that is not known."""

    def __str__(self) -> str:
        return f"{self.task} | {self.text}"


class JobEvent(_Item, frozen=True, kw_only=True, tag="event"):
    """One record of a job's event log."""

    seq: int
    """Its number in the job's journal. Numbers grow, with gaps."""
    time: float
    """Seconds since the epoch."""
    level: str
    """``info``, ``warning`` or ``error``."""
    kind: str
    """A stable name such as ``task-failed``."""
    text: str
    task: str | None = None
    attempt: int | None = None
    generation: int | None = None
    data: dict[str, Any] = {}

    def __str__(self) -> str:
        return self.text


class Submitted(_Item, frozen=True, kw_only=True, tag="submitted"):
    """The job has been submitted to its backend."""

    job_id: str
    directory: str
    """The job directory."""
    notes: tuple[str, ...] = ()
    """What a user should know of the job all the same: a key that has no effect there, say."""


class Page(_Item, frozen=True, kw_only=True, tag="page"):
    """A page that a person can open is being served."""

    name: str
    """``job`` for the job page, or what a task serves through it, such as ``TensorBoard``."""
    address: str
    """A link that opens the page once, within ten minutes."""


class StatusItem(_Item, frozen=True, kw_only=True, tag="status"):
    """The job's status document. It comes when the job's phase or a task's state has changed."""

    status: JobView


class SummaryItem(_Item, frozen=True, kw_only=True, tag="summary"):
    """The last line: the job's final status document."""

    status: JobView


class WaitingItem(_Item, frozen=True, kw_only=True, tag="waiting"):
    """The job waits for its coordinator or for containers. It comes again whenever ``why`` changes."""

    why: str
    """Such as ``the queue is full: …``; empty if it is not known, or if the job no longer waits."""


class NoteItem(_Item, frozen=True, kw_only=True, tag="note"):
    """Something about the client itself, such as a stop that it asked for, or a broken connection."""

    text: str


def submitted(directory: JobDirectory, notes: Sequence[str]) -> Submitted:
    """That the job of that directory has been submitted, with the notes of its submission."""
    return Submitted(job_id=directory.job_id, directory=str(directory.path), notes=tuple(notes))


def log_line(stream: LogId, offset: int, line: bytes, time: float | None = None) -> LogLine:
    """A line as it was cut from a log."""
    return LogLine(
        task=str(stream.task),
        attempt=stream.attempt,
        offset=offset,
        text=line.decode(errors="replace"),
        time=time,
    )


def job_event(update: RecordUpdate) -> JobEvent:
    """A record as the coordinator sends it."""
    record = update.record
    return JobEvent(
        seq=update.seq,
        time=update.time,
        level=record.level.value,
        kind=record.kind,
        text=record.text,
        task=str(record.task) if record.task else None,
        attempt=record.attempt,
        generation=record.generation,
        data=record.data,
    )
