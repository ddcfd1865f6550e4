"""What jobs held and what came of it: hours of GPUs, cores and memory, from journals. Pure.

`JournalReading` takes one job's journal in and tells its containers; `totals` adds jobs up. What counts as
useful is described in docs/guides/accounting.md. `howdah.client.usage` reads job directories.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from howdah.backends.base import RoleResources
from howdah.coordinator.web.documents import Span, Stage, Timeline
from howdah.core import messages as m
from howdah.core.machine import Machine
from howdah.core.messages import Task
from howdah.core.state import Outcome, TaskState
from howdah.spec.model import Mode
from howdah.storage.journal import EventEntry, RecordEntry, event_cause
from howdah.wire.messages import RecordUpdate

HOUR = 3600.0
NONE = "-"
"""The group of jobs without a queue or a tag."""
GROUPS = ("user", "queue", "name", "framework", "week", "node", "tag")
PREPARING, USEFUL, LOST, IDLE = "preparing", "useful", "lost", "idle"
"""What a moment of a container went to."""

Spent = tuple[float, float, str]
"""From when to when, and what it went to."""


class ContainerUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One container, from its grant to its end. Times are seconds since the epoch."""

    container_id: str
    task: str | None
    """Which it was granted for; None where the job had no use for it any more."""
    role: str
    node: str
    gpus: int = 0
    cores: int = 0
    memory_mb: int = 0
    granted: float
    ended: float | None = None
    """None while it is held."""
    held_s: float = 0.0
    useful_s: float = 0.0
    preparing_s: float = 0.0
    lost_s: float = 0.0
    idle_s: float = 0.0


class FailureUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One failure of a job."""

    task: str | None
    attempt: int | None
    generation: int
    cause: str
    what: str
    exit_code: int | None = None
    signal: str | None = None
    node: str | None = None
    time: float = 0.0
    counted: bool = False


class JobUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its containers and failures."""

    job_id: str
    name: str
    user: str
    backend: str
    framework: str
    queue: str = ""
    tags: tuple[str, ...] = ()
    state: str
    """One of `howdah.client.lookup.states.STATES`."""
    reason: str = ""
    submitted: float = 0.0
    started: float | None = None
    finished: float | None = None
    restarts: int = 0
    containers: tuple[ContainerUsage, ...] = ()
    failures: tuple[FailureUsage, ...] = ()


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What the jobs of one group held, and what came of it."""

    group: str
    """A user, a queue, …; empty for all jobs together."""
    jobs: int = 0
    succeeded: int = 0
    failed: int = 0
    """Timed-out jobs too."""
    stopped: int = 0
    unended: int = 0
    """Jobs that wait, run, or have lost their coordinator."""
    failures: int = 0
    """Failures in all, those included after which a job went on."""
    gpu_hours: float = 0.0
    core_hours: float = 0.0
    memory_gib_hours: float = 0.0
    held_hours: float = 0.0
    """Container-hours; the four below add up to it."""
    useful_hours: float = 0.0
    preparing_hours: float = 0.0
    lost_hours: float = 0.0
    idle_hours: float = 0.0
    useful_gpu_hours: float = 0.0
    goodput: float | None = None
    """Useful hours of those held; None where nothing was held."""


# -- one job ---------------------------------------------------------------------------------------


class _Program(msgspec.Struct):
    """One attempt's program, in one container."""

    attempt: int
    start: float
    end: float | None = None
    kept: bool = False
    """It ended well, or was told to end."""
    saved: float | None = None
    """Its newest checkpoint."""


class _Container(msgspec.Struct):
    container_id: str
    task: Task | None
    node: str
    granted: float
    ended: float | None = None
    programs: list[_Program] = []


class JournalReading:
    """One job's journal, taken in from its beginning: its machine is replayed, which knows whose each
    container is."""

    def __init__(self) -> None:
        self.machine: Machine = Machine()
        self.last: float = 0.0
        """When something happened last."""
        self._timeline = Timeline(None)
        self._held: dict[str, _Container] = {}
        self._open: dict[str, _Container] = {}
        self._running: dict[Task, tuple[str, _Program]] = {}
        self._saved: list[float] = []

    def take(self, entry: EventEntry | RecordEntry) -> None:
        now = self.last = max(self.last, entry.now)
        if isinstance(entry, RecordEntry):
            record = entry.record
            self._timeline.add(RecordUpdate(seq=entry.seq, time=now, record=record))
            if record.task is not None:
                self._look(record.task, now)
            return
        event, state = entry.event, self.machine.state
        self.machine.handle(event, now, event_cause(event, entry.seq))
        match event:
            case m.ContainerGranted(container_id=name) if name in state.containers:
                if name not in self._held:
                    made = _Container(name, state.containers[name].task, event.node, now)
                    self._held[name] = self._open[name] = made
            case m.CheckpointSaved(task=task, attempt=attempt):
                self._saved.append(now)
                if task in self._running and self._running[task][1].attempt == attempt:
                    self._running[task][1].saved = now
            case m.CoordinatorStarted():
                for each in [data.task for data in state.tasks.values()]:
                    self._look(each, now)
            case m.AgentRegistered(held=m.Held(task=task)):
                self._look(task, now)
            case m.TaskStarted(task=task) | m.TaskExited(task=task) | m.TaskSaving(task=task):
                self._look(task, now)
            case _:
                pass
        if len(self._open) != len(state.containers):
            for name in [name for name in self._open if name not in state.containers]:
                self._open.pop(name).ended = now
                for task in [t for t, (where, _) in self._running.items() if where == name]:
                    self._end(task, now, False)

    def _look(self, task: Task, now: float) -> None:
        """See whether the task's program runs."""
        data = self.machine.state.tasks.get(str(task))
        if data is None:
            return
        runs = (
            data.state in (TaskState.RUNNING, TaskState.STOPPING)
            and data.started is not None
            and data.exit is None
        )
        known = self._running.get(task)
        if known is not None and (not runs or known[1].attempt != data.attempt):
            end = data.exit if known[1].attempt == data.attempt else None
            self._end(task, now, end is not None and (end.code == 0 or bool(end.stopped)))
        if runs and task not in self._running and data.container_id in self._open:
            program = _Program(data.attempt, now)
            self._running[task] = data.container_id, program
            self._open[data.container_id].programs.append(program)

    def _end(self, task: Task, now: float, kept: bool) -> None:
        program = self._running.pop(task)[1]
        program.end, program.kept = now, kept

    def containers(
        self,
        resources: Mapping[str, RoleResources],
        *,
        until: float,
        over: bool,
        lost: bool = False,
    ) -> tuple[ContainerUsage, ...]:
        """What each container was held for.

        Args:
            resources: of each role's containers.
            until: what has no end in the journal counts until then.
            over: the job holds nothing any more.
            lost: nobody goes on with it.
        """
        state = self.machine.state
        each = state.plan is not None and state.plan.mode is Mode.EACH
        failed = lost or state.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
        done = state.outcome is Outcome.SUCCEEDED
        spans = self._timeline.spans
        stages = [] if each else list(_stages(spans, self._saved, until, failed, done))
        made: list[ContainerUsage] = []
        for held in self._held.values():
            end = max(until if held.ended is None else held.ended, held.granted)
            spent: dict[str, float] = defaultdict(float)
            pieces = _by_itself(held, end, over) if each else _in_gang(held, end, stages)
            for begin, stop, what in pieces:
                spent[what] += stop - begin
            role = held.task.role if held.task is not None else ""
            needs = resources.get(role, RoleResources())
            made.append(
                ContainerUsage(
                    container_id=held.container_id,
                    task=None if held.task is None else str(held.task),
                    role=role,
                    node=held.node,
                    gpus=needs.gpus,
                    cores=needs.cores or 0,
                    memory_mb=needs.memory_mb or 0,
                    granted=held.granted,
                    ended=end if over or held.ended is not None else None,
                    held_s=end - held.granted,
                    **{f"{what}_s": spent[what] for what in (PREPARING, USEFUL, LOST, IDLE)},
                )
            )
        return tuple(made)


_WENT_TO = {
    Stage.WAIT: PREPARING,
    Stage.PREPARE: PREPARING,
    Stage.JOIN: PREPARING,
    Stage.RESTART: LOST,
    Stage.FINISH: IDLE,
}


def _stages(
    spans: Sequence[Span], saved: Sequence[float], until: float, failed: bool, done: bool
) -> Iterator[Spent]:
    """The job's time: what its programs did while all ran is useful up to the checkpoint that is gone
    on from, or wholly where nothing went wrong."""
    for number, span in enumerate(spans):
        start, end, stage = span.start, until if span.end is None else span.end, Stage(span.stage)
        after = spans[number + 1] if number + 1 < len(spans) else None
        if stage is not Stage.RUN:
            # Done before its programs were seen to have met, as short ones may be.
            ran = stage is Stage.JOIN and after is not None and after.stage == Stage.FINISH.value
            yield start, end, USEFUL if ran and done else _WENT_TO[stage]
            continue
        kept = end
        if after is None or after.stage == Stage.FINISH.value:
            next_begins, broken = until, failed
        else:
            next_begins = after.end if after.end is not None else until
            broken = after.stage == Stage.RESTART.value
        if broken:
            newest = max((at for at in saved if start < at <= next_begins), default=start)
            kept = min(newest, end)
        yield start, kept, USEFUL
        yield kept, end, LOST


def _in_gang(held: _Container, end: float, stages: Iterable[Spent]) -> Iterator[Spent]:
    """What a container of a gang was held for; while all run, its own program says."""
    at = held.granted
    for start, stop, what in stages:
        start, stop = max(start, at), min(stop, end)
        if stop <= start:
            continue
        yield at, start, PREPARING
        if what in (USEFUL, LOST):
            yield from _with_programs(held, start, stop, what)
        else:
            yield start, stop, what
        at = stop
    yield at, end, IDLE if held.programs else PREPARING


def _with_programs(held: _Container, start: float, stop: float, what: str) -> Iterator[Spent]:
    """While all run, a container without a program either waits for its next one or has had its last."""
    at = start
    for program in held.programs:
        begin = min(max(program.start, at), stop)
        finish = stop if program.end is None else min(max(program.end, begin), stop)
        yield at, begin, LOST if what is LOST else PREPARING
        yield begin, finish, what
        at = finish
    if at < stop:
        last = bool(held.programs) and held.programs[-1].start < stop
        yield at, stop, LOST if what is LOST else IDLE if last else PREPARING


def _by_itself(held: _Container, end: float, over: bool) -> Iterator[Spent]:
    """What a container was held for whose task depends on no others: all that its programs did but
    what a failure lost."""
    at = held.granted
    for program in held.programs:
        yield at, program.start, PREPARING
        finish = end if program.end is None else min(program.end, end)
        goes_on = program.end is None and not over
        kept = finish if program.kept or goes_on else max(program.saved or 0.0, program.start)
        yield program.start, kept, USEFUL
        yield kept, finish, LOST
        at = finish
    yield at, end, IDLE if held.programs else PREPARING


# -- many jobs -------------------------------------------------------------------------------------


def week(time: float) -> str:
    """The ISO week in local time: ``2026-W48``."""
    year, number, _ = datetime.datetime.fromtimestamp(time).isocalendar()
    return f"{year}-W{number:02}"


def totals(jobs: Iterable[JobUsage], by: str | None = None) -> list[Usage]:
    """One row a group, weeks in their order, others with the most GPU-hours first; without ``by`` one
    row for all. A job counts in each of its tags, and on each node that it had a container on."""
    assert by is None or by in GROUPS
    counts: dict[str, dict[str, float]] = {}
    for job in jobs:
        for group in _groups(job, by):
            on_node = by == "node"
            held = [each for each in job.containers if not on_node or each.node == group]
            failures = [each for each in job.failures if not on_node or each.node == group]
            into = counts.setdefault(group, defaultdict(float))
            into["jobs"] += 1
            into[_COUNTED.get(job.state, "unended")] += 1
            into["failures"] += len(failures)
            for each in held:
                for name, amount in hours(each).items():
                    into[name] += amount
    if by is None and not counts:
        counts[""] = {}
    rows = [_row(group, into) for group, into in counts.items()]
    if by == "week":
        return sorted(rows, key=lambda row: row.group)
    return sorted(rows, key=lambda row: (-row.gpu_hours, -row.held_hours, row.group))


_COUNTED = {
    "succeeded": "succeeded",
    "failed": "failed",
    "timed-out": "failed",
    "stopped": "stopped",
}
_WHOLE = frozenset({"jobs", "succeeded", "failed", "stopped", "unended", "failures"})


def hours(held: ContainerUsage) -> dict[str, float]:
    """What one container adds to the hours of a `Usage`."""
    time = held.held_s / HOUR
    return {
        "gpu_hours": time * held.gpus,
        "core_hours": time * held.cores,
        "memory_gib_hours": time * held.memory_mb / 1024,
        "held_hours": time,
        "useful_hours": held.useful_s / HOUR,
        "preparing_hours": held.preparing_s / HOUR,
        "lost_hours": held.lost_s / HOUR,
        "idle_hours": held.idle_s / HOUR,
        "useful_gpu_hours": held.useful_s / HOUR * held.gpus,
    }


def _row(group: str, into: Mapping[str, float]) -> Usage:
    values = {name: int(value) if name in _WHOLE else value for name, value in into.items()}
    held = values.get("held_hours", 0.0)
    goodput = values["useful_hours"] / held if held else None
    return Usage(group=group, goodput=goodput, **values)  # pyright: ignore[reportArgumentType]


def _groups(job: JobUsage, by: str | None) -> Iterable[str]:
    match by:
        case None:
            return ("",)
        case "week":
            return (week(job.submitted),)
        case "tag":
            return dict.fromkeys(job.tags) or (NONE,)
        case "node":
            nodes = [each.node for each in job.containers]
            return dict.fromkeys(nodes + [each.node for each in job.failures if each.node])
        case _:
            return (getattr(job, by) or NONE,)
