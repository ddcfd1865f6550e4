"""Answers of the HTTP API that are not documents of another room, and how they are computed. Pure.

`howdah.wire.status.JobView` is the job; what is here serves readers who follow it. Times are seconds
since the epoch.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from howdah.wire.messages import RecordUpdate, Sample


class _Document(msgspec.Struct, frozen=True, kw_only=True): ...


class ErrorAnswer(_Document, frozen=True, kw_only=True):
    """What every answer with a status of 400 or more holds: what happened and what to do."""

    error: str


class RecordLine(_Document, frozen=True, kw_only=True):
    """One line of the event log."""

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
    """A part of the job's time and what it was spent on."""

    stage: str
    """A `howdah.coordinator.web.documents.Stage` value: wait, prepare, join, run, restart, finish."""
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
    """A part of an attempt's log as text. Offsets are bytes ever written."""

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
    """``seq`` of the newest record you have now; ask on with it."""
    log: LogChange | None = None


class Series(_Document, frozen=True, kw_only=True):
    """One measurement of one task, on the grid of its `SeriesPage`."""

    task: str
    name: str
    """cpu (cores), rss_mb, gpu (0 to 1), gpu_memory_mb, step (the newest reported), or ``value:`` and a
    reported name."""
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
    """A record as the API gives it: tasks by name."""
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
    """A document without the fields that have their default."""
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


# -- the timeline ---------------------------------------------------------------------------------


class Stage(enum.Enum):
    """What a part of the job's time was spent on."""

    WAIT = "wait"
    """For containers, and for their agents to register."""
    PREPARE = "prepare"
    """Checkpoint restored, ports reserved, programs started."""
    JOIN = "join"
    """Programs run and look for their peers."""
    RUN = "run"
    """Everyone has joined: the work itself."""
    RESTART = "restart"
    """From the first failure report until the next generation is formed."""
    FINISH = "finish"
    """The outcome is decided; programs are stopped, containers given back."""


_FAILURES = frozenset({"task-failed", "container-lost", "hang"})
"""The first of them in a generation that ends is when its useful time was over."""


class Timeline:
    """Spans so far, from records: each must be added once, in order.

    The kinds are those `howdah.core` writes when the job's phase changes. Kinds not listed change
    nothing, so records of a newer coordinator still give a right, if coarser, picture.
    """

    def __init__(self, submitted: float | None) -> None:
        self._spans: list[Span] = []
        self._failed: float | None = None
        self._closed = False
        if submitted is not None:
            self._enter(Stage.WAIT, submitted, 0)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Oldest first; only the last has no end."""
        return tuple(self._spans)

    def add(self, update: RecordUpdate) -> bool:
        """Take a record in; whether it changed the picture."""
        record, time = update.record, update.time
        generation = record.generation or 0
        now = Stage(self._spans[-1].stage) if self._spans else None
        if self._closed:
            return False
        match record.kind:
            case "submitted" if now is None:
                self._enter(Stage.WAIT, time, 0)
            case "generation-formed":
                self._enter(Stage.PREPARE, time, generation)
            case "task-started" if now is Stage.PREPARE:
                self._enter(Stage.JOIN, time, generation)
            case "running":
                self._enter(Stage.RUN, time, generation)
            case kind if kind in _FAILURES and now is not Stage.FINISH:
                if self._failed is None:
                    self._failed = time
                return False
            case "task-restarting" | "task-retired" | "sidecar-retired":
                self._failed = None
                return False
            case "generation-ended" | "growing":
                began = self._spans[-1].start if self._spans else time
                self._enter(Stage.RESTART, max(self._failed or time, began), generation)
            case "stage-done":
                self._enter(Stage.WAIT, time, generation)
            case "finishing":
                self._enter(Stage.FINISH, time, generation)
            case "finished":
                self._end(time)
                self._closed = True
            case _:
                return False
        return True

    def _enter(self, stage: Stage, time: float, generation: int) -> None:
        self._failed = None
        if self._spans and self._spans[-1].stage == stage.value:
            return
        self._end(time)
        self._spans.append(Span(stage=stage.value, start=time, generation=generation))

    def _end(self, time: float) -> None:
        if self._spans and self._spans[-1].end is None:
            last = self._spans[-1]
            self._spans[-1] = Span(
                stage=last.stage,
                start=last.start,
                end=max(time, last.start),
                generation=last.generation,
            )


# -- series ---------------------------------------------------------------------------------------

MEASUREMENTS = ("cpu", "rss_mb", "gpu", "gpu_memory_mb", "step")
VALUE = "value:"
"""Goes before the name of a value the program reported."""

COUNT_MAX = 2000
"""Points of a series in one answer."""
VALUES_MAX = 64
"""Names of reported values shown of one task."""


def grid(since: float, now: float, step_s: float) -> tuple[float, int]:
    """Start and number of steps that cover ``since`` to ``now``, the newest ones if too many.

    Starts are multiples of the step, so that answers to later questions fit earlier ones.
    """
    first = math.floor(since / step_s)
    last = math.floor(now / step_s)
    first = max(first, last - COUNT_MAX + 1)
    return first * step_s, max(0, last - first + 1)


def on_grid(
    samples: Mapping[str, Iterable[Sample]], start: float, step_s: float, count: int
) -> SeriesPage:
    """Means of each measurement over each step; None where nothing was measured."""
    found: list[Series] = []
    for task, own in samples.items():
        sums: dict[str, list[float]] = {}
        numbers: dict[str, list[int]] = {}
        for sample in own:
            place = int((sample.time - start) // step_s)
            if not 0 <= place < count:
                continue
            for name, value in _measured(sample):
                if name not in sums:
                    if len(sums) >= VALUES_MAX:
                        continue
                    sums[name] = [0.0] * count
                    numbers[name] = [0] * count
                sums[name][place] += value
                numbers[name][place] += 1
        for name, totals in sums.items():
            points = [
                _short(total / number) if number else None
                for total, number in zip(totals, numbers[name], strict=True)
            ]
            found.append(Series(task=task, name=name, points=points))
    return SeriesPage(start=start, step_s=step_s, count=count, series=found)


def _measured(sample: Sample) -> Iterable[tuple[str, float]]:
    for name in MEASUREMENTS:
        value = getattr(sample, name)
        if value is not None and math.isfinite(value):
            yield name, value
    for name, value in sample.values.items():
        if math.isfinite(value):
            yield VALUE + name, value


def _short(value: float) -> float:
    """Six significant digits: what a plot can show."""
    return float(f"{value:.6g}")
