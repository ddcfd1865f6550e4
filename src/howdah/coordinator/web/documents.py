"""Answers of the HTTP API that are not already documents of another room.

`howdah.wire.status.JobView` is the job; what is here serves readers who follow it. Times are seconds
since the epoch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from howdah.wire.messages import RecordUpdate


class _Document(msgspec.Struct, frozen=True, kw_only=True): ...


class ErrorAnswer(_Document, frozen=True, kw_only=True):
    """What every answer with a status of 400 or more holds: what happened and what to do."""

    error: str


class RecordLine(_Document, frozen=True, kw_only=True):
    """One line of the job's story."""

    seq: int
    """Its place in the journal; ask for what follows with ``after``."""
    time: float
    kind: str
    """A stable name such as ``task-failed``."""
    text: str
    level: str
    """info, warning or error."""
    task: str | None = None
    attempt: int | None = None
    generation: int | None = None
    data: dict[str, Any] = {}


class Span(_Document, frozen=True, kw_only=True):
    """A stretch of the job's life and what it went to."""

    stage: str
    """A `howdah.coordinator.web.timeline.Stage` value: wait, prepare, join, run, restart, finish."""
    start: float
    end: float | None = None
    """None while it lasts."""
    generation: int = 0


class StatusPatch(_Document, frozen=True, kw_only=True):
    """The status document as a change: fields of the job and of tasks that are not what they were.

    Lay ``job`` over the job you have, each of ``tasks`` over the task of that name, and ask again
    with ``version``. When ``full`` is set forget what you have first.
    """

    version: str
    time: float
    """The coordinator's clock, to show ages by."""
    full: bool
    job: dict[str, Any]
    """Fields of `JobView` but ``tasks``; and ``timeline``, a list of `Span`."""
    tasks: list[dict[str, Any]]
    """``task`` and the changed fields of `TaskView`; ``progress_at`` stands for ``progress_s``."""
    removed: list[str] = []


class LogPage(_Document, frozen=True, kw_only=True):
    """A stretch of an attempt's log as text. Offsets are bytes ever written."""

    task: str
    attempt: int
    attempts: list[int]
    """Attempts of the task that have a log."""
    offset: int
    """Where ``text`` begins; later than asked for where the middle of a long log was dropped."""
    next_offset: int
    """Ask for what follows with this ``offset``."""
    text: str


class LogMatch(_Document, frozen=True, kw_only=True):
    """One line that holds the text looked for."""

    offset: int
    line: str


class LogMatches(_Document, frozen=True, kw_only=True):
    """Lines of a log that hold a text."""

    task: str
    attempt: int
    matches: list[LogMatch]
    next_offset: int
    """Look on from here."""
    end: bool
    """The log's present end was reached."""


class LogChange(_Document, frozen=True, kw_only=True):
    """More of a log that is followed."""

    task: str
    attempt: int
    offset: int
    next_offset: int
    text: str
    skipped: int = 0
    """Bytes left out before ``text``, because the log grew faster than it was sent."""


class Changes(_Document, frozen=True, kw_only=True):
    """What the stream would have sent: for readers behind proxies that buffer streams."""

    status: StatusPatch | None
    records: list[RecordLine]
    records_after: int
    """``seq`` of the newest record told; ask on with it."""
    log: LogChange | None = None


class Series(_Document, frozen=True, kw_only=True):
    """One measurement of one task, on the grid of its `SeriesPage`."""

    task: str
    name: str
    """cpu (cores), rss_mb, gpu (0 to 1), gpu_memory_mb, or ``value:`` and a reported name."""
    points: list[float | None]


class SeriesPage(_Document, frozen=True, kw_only=True):
    """Measurements of several tasks on one grid of times, averaged over each step."""

    start: float
    step_s: float
    count: int
    series: list[Series]


class StopRequest(_Document, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ask for the job's end."""

    reason: str = ""
    firm: bool = False
    """Without grace."""


class StopAnswer(_Document, frozen=True, kw_only=True):
    """The stop is durable; the job ends soon."""

    stopping: bool
    firm: bool


class StacksAnswer(_Document, frozen=True, kw_only=True):
    """Python stacks of a task's programs."""

    task: str
    text: str


def record_line(update: RecordUpdate) -> RecordLine:
    """A record as the API tells it: tasks by name."""
    record = update.record
    return RecordLine(
        seq=update.seq,
        time=update.time,
        kind=record.kind,
        text=record.text,
        level=record.level.value,
        task=str(record.task) if record.task is not None else None,
        attempt=record.attempt,
        generation=record.generation,
        data=record.data,
    )


def brief(document: msgspec.Struct) -> dict[str, Any]:
    """A document without the fields that have their default: what somebody wrote."""
    found: dict[str, Any] = {}
    for field in msgspec.structs.fields(document):
        value = getattr(document, field.name)
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        else:
            default = field.default
        if value != default:
            found[field.encode_name] = _brief_value(value)
    return found


def _brief_value(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return brief(value)
    if isinstance(value, dict):
        return {key: _brief_value(each) for key, each in value.items()}
    return value
