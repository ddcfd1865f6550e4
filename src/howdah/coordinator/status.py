"""The status document of the present moment, and what is laid over the machine's state in it: live
measurements, announced pages, and why containers do not come."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from howdah.coordinator.event_log import Signal
from howdah.core.messages import Record, Task
from howdah.core.state import LIVE, JobPhase, JobState, TaskState
from howdah.wire.messages import MAX_FRAME, Heartbeat, Sample, WebAddress, WebWithdrawn
from howdah.wire.status import (
    JobIdentity,
    JobView,
    TaskView,
    WebLink,
    awaiting_containers,
    exit_code,
    view,
)

log: logging.Logger = logging.getLogger(__name__)

SHORTEST_S = 0.2
"""Between two documents to the same watcher."""
LARGEST = MAX_FRAME - 64 * 1024
"""Bytes of a document that fits a frame."""
SHARE = 0.05
"""Of one core's time at most for making documents, however large the job."""

PAGE_ANNOUNCED = "page-announced"
PAGE_WITHDRAWN = "page-withdrawn"
LINES = 64
"""Last lines read at a time."""

FIRST_ASKED_S = 1.0
"""Most containers come sooner than this."""
ASKED_AGAIN_S = 3.0

_LIVE = frozenset(state.value for state in LIVE)
_UP = frozenset((TaskState.STARTING.value, TaskState.RUNNING.value))


class UnknownTask(LookupError):
    """The job has no task of that name; ``str()`` says which it has."""

    def __init__(self, task: Task, known: Iterable[str]) -> None:
        names = list(known)
        some = ", ".join(names[:10]) + (f" and {len(names) - 10} more" if len(names) > 10 else "")
        super().__init__(f"the job has no task {task}; it has {some}")


# -- the document --------------------------------------------------------------------------------


class StatusDocument:
    """The status document, made when it is read and no oftener than that is worth."""

    def __init__(self, build: Callable[[], JobView]) -> None:
        self._build = build
        self._view: JobView | None = None
        self._json: bytes | None = None
        self._made = 0.0
        self._cost_s = 0.0
        self.version: int = 0
        """Grows with every change; a watcher compares it with the one it has sent."""
        self.changed: Signal = Signal()

    def touch(self) -> None:
        self.version += 1
        self._view = None
        self._json = None
        self.changed.send()

    @property
    def pace_s(self) -> float:
        """How long a watcher waits between two documents."""
        return max(SHORTEST_S, self._cost_s / SHARE)

    def view(self) -> JobView:
        """The document, not older than `pace_s`."""
        begin = time.monotonic()
        if self._view is None or begin - self._made > self.pace_s:
            self._view = self._build()
            self._json = None
            self._made = time.monotonic()
            self._cost_s = self._made - begin
        return self._view

    def json(self) -> bytes:
        view = self.view()
        if self._json is None:
            begin = time.monotonic()
            self._json = encoded(view)
            self._cost_s += time.monotonic() - begin
        return self._json


def encoded(view: JobView, largest: int = LARGEST) -> bytes:
    """The document as JSON of at most ``largest`` bytes.

    Of a job with too many tasks for that (some 8,000), as many are shown as fit; healthy running
    ones are left out first.
    """
    document = msgspec.json.encode(view)
    if len(document) <= largest:
        return document
    fit = int(len(view.tasks) * largest / len(document) * 0.9)
    chosen = sorted(view.tasks, key=lambda task: task.state == TaskState.RUNNING.value)[:fit]
    chosen.sort(key=lambda task: (task.role, task.index))
    return msgspec.json.encode(msgspec.structs.replace(view, tasks=tuple(chosen)))


def document(
    state: JobState,
    identity: JobIdentity,
    live: LiveState,
    now: float,
    page: str | None,
    pending_reason: str = "",
    unpublished: tuple[str, ...] | None = (),
) -> JobView:
    """The document; ``pending_reason`` is why containers do not come. Pure.

    ``unpublished``: what of the outputs could not be published, a line each; None while that is tried.
    """
    plain = view(state, identity)
    if state.outcome is not None and unpublished:
        unsaved = (*plain.unsaved, *unpublished)
        code = exit_code(state.outcome, unsaved)
        plain = msgspec.structs.replace(plain, unsaved=unsaved, exit_code=code)
    if unpublished is None and state.phase is JobPhase.FINISHED:
        plain = msgspec.structs.replace(plain, phase=JobPhase.FINISHING.value)
    if pending_reason and plain.outcome is None and plain.reason:
        plain = msgspec.structs.replace(
            plain, reason=f"{plain.reason} ({pending_reason})", pending_reason=pending_reason
        )
    tasks = tuple(_measured(task, state, live, now) for task in plain.tasks)
    links = tuple(
        WebLink(name=address.name, href=f"proxy/{task}/")
        for task, address in sorted(pages(state, live).items())
    )
    return msgspec.structs.replace(plain, tasks=tasks, links=links, page=page)


def pages(state: JobState, live: LiveState) -> dict[Task, WebAddress]:
    """Announced pages whose tasks still serve them."""
    serving: dict[Task, WebAddress] = {}
    for task, address in live.pages().items():
        data = state.tasks.get(str(task))
        if data is not None and data.state in LIVE and data.attempt == address.attempt:
            serving[task] = address
    return serving


def _measured(task: TaskView, state: JobState, live: LiveState, now: float) -> TaskView:
    data = state.tasks[task.task]
    last_line = data.exit.tail[-1] if data.exit and data.exit.tail else None
    measured = live.of(Task(task.role, task.index), task.attempt)
    if measured is None:
        # It had ended before this coordinator began.
        step = data.exit.step if data.exit else None
        return msgspec.structs.replace(task, last_line=last_line, step=step)
    if task.state in _LIVE:
        last_line = measured.last_line or last_line
    if task.state not in _UP:
        return msgspec.structs.replace(
            task, last_line=last_line, log_size=measured.log_size or None, step=measured.step
        )
    sample = measured.sample
    return msgspec.structs.replace(
        task,
        last_line=last_line,
        step=measured.step,
        total=measured.total,
        left_s=measured.left_s(now),
        progress_s=None if measured.progress is None else max(0.0, now - measured.progress),
        log_size=measured.log_size,
        cpu=sample.cpu if sample else None,
        rss_mb=sample.rss_mb if sample else None,
        gpu=sample.gpu if sample else None,
        gpu_memory_mb=sample.gpu_memory_mb if sample else None,
    )


# -- live state ----------------------------------------------------------------------------------


class TaskLive:
    """The newest of one attempt. Changed in place: at 1,000 beats a second nothing is allocated."""

    __slots__ = (
        "attempt",
        "first",
        "last_line",
        "last_line_size",
        "log_size",
        "progress",
        "sample",
        "sends_lines",
        "step",
        "total",
    )

    def __init__(self, attempt: int) -> None:
        self.attempt: int = attempt
        self.sample: Sample | None = None
        self.step: float | None = None
        self.total: float | None = None
        self.first: tuple[float, float] | None = None
        """The first step of the attempt that was heard of, and when, on the job's clock."""
        self.progress: float | None = None
        """When it last showed progress, on the job's clock."""
        self.log_size: int = 0
        self.last_line: str | None = None
        self.last_line_size: int = 0
        """Size of the log when `last_line` was read."""
        self.sends_lines: bool = False
        """Its agent sends the last line: the log need not be read, and most likely can't be."""

    def left_s(self, now: float) -> float | None:
        """Seconds until all steps are made, at the pace so far; None where there is no telling."""
        if self.step is None or self.total is None or self.first is None:
            return None
        step, since = self.first
        if self.step <= step or self.total < self.step:
            return None
        left = (self.total - self.step) * (now - since) / (self.step - step)
        return float(f"{left:.2g}")  # a change each second would be sent to all readers


class LiveState:
    """All tasks' newest measurements and announced pages: shown, never journaled, gone with the
    coordinator."""

    def __init__(self) -> None:
        self._tasks: dict[Task, TaskLive] = {}
        self._web: dict[Task, WebAddress] = {}
        self._recorded: dict[Task, Record] = {}
        """The newest record of each task's page."""

    def of(self, task: Task, attempt: int) -> TaskLive | None:
        live = self._tasks.get(task)
        return live if live is not None and live.attempt == attempt else None

    def heartbeat(self, task: Task, heartbeat: Heartbeat, now: float) -> None:
        """Take a heartbeat in. A new attempt starts from nothing; an older one is ignored."""
        live = self._tasks.get(task)
        if live is None or live.attempt < heartbeat.attempt:
            live = self._tasks[task] = TaskLive(heartbeat.attempt)
        elif live.attempt > heartbeat.attempt:
            return
        if heartbeat.sample is not None:
            live.sample = heartbeat.sample
        if heartbeat.progress_s is not None:
            live.progress = now - heartbeat.progress_s
        if heartbeat.step is not None:
            if live.step is None or heartbeat.step < live.step:  # or it counts anew
                live.first = heartbeat.step, now
            live.step = heartbeat.step
        if heartbeat.total is not None:
            live.total = heartbeat.total
        if heartbeat.last_line is not None:
            live.last_line, live.sends_lines = heartbeat.last_line, True
        live.log_size = heartbeat.log_size

    async def read_last_lines(
        self, last_line: Callable[[Task, int], Awaitable[str | None]]
    ) -> bool:
        """Read the newest line of logs that have grown, a few in a large job; whether any has."""
        grown = [
            (task, live)
            for task, live in self._tasks.items()
            if live.log_size != live.last_line_size and not live.sends_lines
        ]
        for task, live in grown[:LINES]:
            size = live.log_size
            try:
                line = await last_line(task, live.attempt)
            except OSError:  # a status is made all the same, and the next one may have it
                continue
            if not live.sends_lines:
                live.last_line = line
            live.last_line_size = size
        return bool(grown)

    def announce(self, address: WebAddress) -> Record | None:
        """Take in where a task serves a page; the record of it, if it is new."""
        known = self._web.get(address.task)
        if known == address or (known is not None and known.attempt > address.attempt):
            return None
        self._web[address.task] = address
        record = announcement(address)
        if self._recorded.get(address.task) == record:
            return None
        self._recorded[address.task] = record
        return record

    def withdraw(self, page: WebWithdrawn) -> Record | None:
        """The task no longer serves that page; the record of it, if the page was known."""
        known = self._web.get(page.task)
        if known is None or (known.attempt, known.name) != (page.attempt, page.name):
            return None
        del self._web[page.task]
        record = Record(
            kind=PAGE_WITHDRAWN,
            text=f"{page.task} no longer serves {page.name}",
            task=page.task,
            attempt=page.attempt,
        )
        self._recorded[page.task] = record
        return record

    def unattended(self, task: Task) -> None:
        """The task's agent is not connected: who listens on its ports is not known until it is."""
        self._web.pop(task, None)

    def remember(self, records: Iterable[Record]) -> None:
        """Take what former coordinators recorded of pages: the agents announce them anew, and that
        is no news."""
        for record in records:
            if record.kind in (PAGE_ANNOUNCED, PAGE_WITHDRAWN) and record.task:
                self._recorded[record.task] = record

    def pages(self) -> dict[Task, WebAddress]:
        """Announced pages by task."""
        return dict(self._web)


def announcement(address: WebAddress) -> Record:
    return Record(
        kind=PAGE_ANNOUNCED,
        text=f"{address.task} serves {address.name}",
        task=address.task,
        attempt=address.attempt,
        data={
            "name": address.name,
            "host": address.host,
            "port": address.port,
            "path": address.path,
            "keeps_prefix": address.keeps_prefix,
        },
    )


# -- pending reasons -----------------------------------------------------------------------------


class PendingReasons:
    """Why the job's containers do not come: asked of the backend while they are awaited."""

    def __init__(
        self,
        ask: Callable[[], Awaitable[str]],
        state: Callable[[], JobState],
        touch: Callable[[], object],
    ) -> None:
        self.why: str = ""
        """As it is now; empty while no container is awaited."""
        self._ask = ask
        self._state = state
        self._touch = touch

    async def run(self) -> None:
        while True:
            await asyncio.sleep(ASKED_AGAIN_S if self.why else FIRST_ASKED_S)
            why = await self._asked() if awaiting_containers(self._state()) else ""
            if why != self.why:
                self.why = why
                self._touch()

    async def _asked(self) -> str:
        try:
            return await self._ask()
        except Exception:  # an explanation is not worth a job
            log.exception("the backend cannot say why containers do not come")
            return ""
