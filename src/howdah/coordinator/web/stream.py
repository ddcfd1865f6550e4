"""Following the job: one stream of server-sent events a page, and the same by polling.

A stream carries the events ``hello``, ``status`` (`StatusPatch`), ``record`` (`RecordLine`),
``log`` (`LogChange`) and ``bye``. One stream carries all, as browsers allow few connections to a
host. A reader says what it has in the address (``since``, ``after``, ``offset``), not in
``Last-Event-ID``, which some proxies drop.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import msgspec

from howdah.coordinator.clients.live_job import LiveJob, NoLog
from howdah.coordinator.web import logs
from howdah.coordinator.web.documents import (
    Changes,
    LogChange,
    RecordLine,
    StatusPatch,
    Timeline,
    record_line,
)
from howdah.core.messages import Task
from howdah.wire.status import JobView, TaskView

HISTORY = 120
"""Changes remembered; a watcher who has been away for longer gets the whole document."""

MIN_INTERVAL_S = 0.1
"""The document is not made more often than this, and takes at most a twentieth of the time."""
MAX_INTERVAL_S = 5.0
"""Nor less often, while somebody looks: what took long may have been a pause of the whole machine."""

_COST_FACTOR = 20.0
_JOB_FIELDS = tuple(name for name in JobView.__struct_fields__ if name != "tasks")
_DIGITS = (("cpu", 2), ("rss_mb", 1), ("gpu", 2), ("gpu_memory_mb", 0))


class _Change(msgspec.Struct, frozen=True):
    number: int
    job: dict[str, Any]
    tasks: dict[str, dict[str, Any]]
    removed: tuple[str, ...]


class StatusChanges:
    """The status document as versioned changes, shared by all readers of the page.

    The document is made at most a few times a second, however many readers there are; each is sent
    only what changed since the version it has. With 1,000 tasks that send a heartbeat every second a
    change is some tens of kilobytes, where the document is half a megabyte.

    ``clock`` is in seconds since the epoch, ``timer`` monotonic.
    """

    def __init__(
        self, source: LiveJob, clock: Callable[[], float], timer: Callable[[], float]
    ) -> None:
        self._source = source
        self._clock = clock
        self._timer = timer
        # A new coordinator counts from one again: the boot tells its versions from the old ones.
        self._boot = secrets.token_hex(4)
        self._number = 0
        self._job: dict[str, Any] = {}
        self._tasks: dict[str, dict[str, Any]] = {}
        self._views: dict[str, TaskView] = {}
        self._changes: collections.deque[_Change] = collections.deque(maxlen=HISTORY)
        self._timeline: Timeline | None = None
        self._told_seq = 0
        self._made_at = -1e9
        self._interval_s = MIN_INTERVAL_S
        self._view: JobView | None = None

    @property
    def version(self) -> str:
        """Names the newest document."""
        return f"{self._boot}-{self._number}"

    @property
    def interval_s(self) -> float:
        """The document is worth looking at again after this long."""
        return self._interval_s

    def view(self) -> JobView:
        """The document, at most `interval_s` old."""
        self.refresh()
        assert self._view is not None
        return self._view

    def refresh(self, *, last: bool = False) -> None:
        """Make the document anew, unless that was just done and this is not the last time."""
        began = self._timer()
        if began - self._made_at < self._interval_s and not last:
            return
        view = self._source.view()
        self._take(view, self._clock())
        self._view = view
        self._made_at = self._timer()
        cost_s = (self._made_at - began) * _COST_FACTOR
        self._interval_s = min(max(MIN_INTERVAL_S, cost_s), MAX_INTERVAL_S)

    def patch(self, since: str) -> StatusPatch | None:
        """What changed since a version; None if nothing did, everything if it is not known."""
        boot, _, text = since.partition("-")
        number = int(text) if boot == self._boot and text.isdecimal() else -1
        oldest = self._changes[0].number if self._changes else 1
        if number == self._number and number > 0:
            return None
        if not max(oldest - 1, 1) <= number <= self._number:
            return StatusPatch(
                version=self.version,
                time=self._clock(),
                full=True,
                job=self._job,
                tasks=list(self._tasks.values()),
            )
        job: dict[str, Any] = {}
        tasks: dict[str, dict[str, Any]] = {}
        removed: dict[str, None] = {}
        for change in self._changes:
            if change.number <= number:
                continue
            job.update(change.job)
            for name in change.removed:
                tasks.pop(name, None)
                removed[name] = None
            for name, fields in change.tasks.items():
                removed.pop(name, None)
                tasks.setdefault(name, {"task": name}).update(fields)
        return StatusPatch(
            version=self.version,
            time=self._clock(),
            full=False,
            job=job,
            tasks=list(tasks.values()),
            removed=list(removed),
        )

    def _take(self, view: JobView, now: float) -> None:
        job = {name: getattr(view, name) for name in _JOB_FIELDS}
        job["timeline"] = self._spans(view)
        changed_job = {
            name: value for name, value in job.items() if self._job.get(name, job) != value
        }
        changed_tasks: dict[str, dict[str, Any]] = {}
        seen: dict[str, TaskView] = {}
        for task in view.tasks:
            seen[task.task] = task
            before = self._views.get(task.task)
            if before == task:
                continue
            known = self._tasks.get(task.task, {})
            fields = _shown(task, known, now)
            # Every field of a task is known or none is.
            changes = (
                {name: value for name, value in fields.items() if known[name] != value}
                if known
                else fields
            )
            if changes:
                changed_tasks[task.task] = changes
                self._tasks[task.task] = fields
        removed = tuple(name for name in self._views if name not in seen)
        for name in removed:
            self._tasks.pop(name, None)
        self._job, self._views = job, seen
        if changed_job or changed_tasks or removed or self._number == 0:
            self._number += 1
            self._changes.append(_Change(self._number, changed_job, changed_tasks, removed))

    def _spans(self, view: JobView) -> tuple[Any, ...]:
        if self._timeline is None:
            self._timeline = Timeline(view.submitted)
        for update in self._source.records(self._told_seq):
            self._timeline.add(update)
            self._told_seq = update.seq
        return self._timeline.spans


def _shown(task: TaskView, known: dict[str, Any], now: float) -> dict[str, Any]:
    """A task's fields, rounded to what a reader can see so that noise is not sent."""
    fields = msgspec.structs.asdict(task)
    for name, digits in _DIGITS:
        value = fields[name]
        if value is not None:
            fields[name] = round(value, digits)
    # "Seconds ago" changes by itself all the time; the moment it speaks of does not.
    progress_s = fields.pop("progress_s")
    moment = None if progress_s is None else round(now - progress_s, 1)
    before = known.get("progress_at")
    if moment is not None and before is not None and abs(moment - before) < 1.0:
        moment = before
    fields["progress_at"] = moment
    return fields


HEARTBEAT_S = 10.0
"""A comment is sent after this much silence, so that a dead connection is noticed."""

LOOK_S = 1.0
"""Measurements are looked at this often, without any word that they changed."""

GATHER_S = 0.05
"""From the first change to sending it: what comes together is sent together."""

LAST_LINES_S = 1.0
"""For the log of a job that is over to be read to its end."""

TASKS_PER_SECOND = 1000.0
"""Changed tasks sent in a second at most, by sending less often: a person cannot read more."""

RECORDS_MAX = 1000
"""Records of one answer; the reader asks on."""

POLL_LOG = 256 * 1024
"""Bytes of log in one answer to a poll."""


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader has, and which log it follows."""

    version: str = ""
    after: int = 0
    task: Task | None = None
    attempt: int | None = None
    offset: int = 0
    pinned: bool = False
    """Only this attempt; otherwise the newest, and the next one when it comes."""


class StreamWatch:
    """Wakes one stream."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self.urgent: bool = True
        """A record came, so states have changed and not just measurements."""

    def wake(self, *, urgent: bool = False) -> None:
        self.urgent = self.urgent or urgent
        self._changed.set()

    async def wait(self, timeout_s: float) -> None:
        """Until woken, or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
            await asyncio.sleep(GATHER_S)
        self._changed.clear()


class Watchers:
    """The streams that are open."""

    def __init__(self, source: LiveJob) -> None:
        self._source = source
        self._watches: set[StreamWatch] = set()
        self.closing: bool = False
        """The server ends; streams say so and end too."""

    def __len__(self) -> int:
        return len(self._watches)

    @contextlib.contextmanager
    def watching(self) -> Iterator[StreamWatch]:
        """Wakes inside the ``with`` block, whenever a record comes. Measurements change all the time;
        they are looked at when it is time to."""
        watch = StreamWatch()
        self._watches.add(watch)
        try:
            with self._source.grown.calling(functools.partial(watch.wake, urgent=True)):
                yield watch
        finally:
            self._watches.discard(watch)

    def close(self) -> None:
        self.closing = True
        for watch in self._watches:
            watch.wake()


def new_records(source: LiveJob, after: int) -> list[RecordLine]:
    return [record_line(update) for update in source.records(after)[:RECORDS_MAX]]


async def poll(source: LiveJob, changes: StatusChanges, cursor: Cursor) -> Changes:
    """What the stream would have sent by now.

    Raises:
        UnknownTask: the job has no task that the cursor names.
    """
    await source.read_last_lines()
    changes.refresh()
    records = new_records(source, cursor.after)
    return Changes(
        status=changes.patch(cursor.version),
        records=records,
        records_after=records[-1].seq if records else cursor.after,
        log=await _poll_log(source, cursor) if cursor.task is not None else None,
    )


async def events(
    source: LiveJob, changes: StatusChanges, watchers: Watchers, cursor: Cursor
) -> AsyncIterator[bytes]:
    """Server-sent events from where the reader is, until the server closes."""
    loop = asyncio.get_running_loop()
    yield _event("hello", {"version": changes.version})
    sent_at = loop.time()
    with watchers.watching() as watch:
        reader = _Reader(source, changes, cursor)
        async with _following(source, cursor, watch) as log:
            while True:
                closing = watchers.closing
                if closing and log is not None and changes.view().outcome is not None:
                    await asyncio.wait({log.reading}, timeout=LAST_LINES_S)
                urgent, watch.urgent = watch.urgent, False
                sent = reader.records()
                sent += reader.status(loop.time(), urgent=urgent, last=closing)
                sent += [_event("log", change) for change in (log.take() if log else ())]
                if sent:
                    yield b"".join(sent)
                    sent_at = loop.time()
                elif loop.time() - sent_at >= HEARTBEAT_S:
                    yield b": still here\n\n"
                    sent_at = loop.time()
                if closing:
                    yield _event("bye", {})
                    return
                if not reader.behind:
                    await watch.wait(max(0.02, reader.status_due - loop.time()))


class _Reader:
    """What one reader has been sent of records and status."""

    def __init__(self, source: LiveJob, changes: StatusChanges, cursor: Cursor) -> None:
        self._source = source
        self._changes = changes
        self._version = cursor.version
        self._after = cursor.after
        self.status_due = 0.0
        """When to look at the status again, on the loop's clock."""
        self.behind = False
        """There are more records to send at once."""

    def records(self) -> list[bytes]:
        lines = new_records(self._source, self._after)
        self.behind = len(lines) == RECORDS_MAX
        if lines:
            self._after = lines[-1].seq
        return [_event("record", line) for line in lines]

    def status(self, now: float, *, urgent: bool, last: bool) -> list[bytes]:
        """The event of what changed, if it is time to look."""
        if now < self.status_due and not urgent and not last:
            return []
        self._changes.refresh(last=last)
        patch = self._changes.patch(self._version)
        tasks = len(patch.tasks) if patch is not None else 0
        self.status_due = now + max(LOOK_S, tasks / TASKS_PER_SECOND)
        if urgent:
            # The document may be a little older than the record that made it so: look once more.
            self.status_due = min(self.status_due, now + self._changes.interval_s)
        if patch is None:
            return []
        self._version = patch.version
        return [_event("status", patch)]


class _LogFollower:
    """A log being followed into a gatherer."""

    def __init__(self, source: LiveJob, cursor: Cursor, watch: StreamWatch) -> None:
        assert cursor.task is not None
        self._gatherer = logs.Gatherer(cursor.task)
        self._ended = False
        self.reading = asyncio.ensure_future(self._read(source, cursor, cursor.task, watch))

    def take(self) -> list[LogChange]:
        return self._gatherer.take(final=self._ended)

    async def _read(self, source: LiveJob, cursor: Cursor, task: Task, watch: StreamWatch) -> None:
        attempt, offset = _start(source, task, cursor)
        updates = source.follow_log(task, attempt, offset)
        try:
            async for update in updates:
                self._gatherer.add(update)
                watch.wake()
        finally:
            self._ended = True
            watch.wake()
            await _close(updates)


@contextlib.asynccontextmanager
async def _following(
    source: LiveJob, cursor: Cursor, watch: StreamWatch
) -> AsyncIterator[_LogFollower | None]:
    if cursor.task is None:
        yield None
        return
    follower = _LogFollower(source, cursor, watch)
    try:
        yield follower
    finally:
        follower.reading.cancel()
        with contextlib.suppress(asyncio.CancelledError, LookupError):
            await follower.reading


def _start(source: LiveJob, task: Task, cursor: Cursor) -> tuple[int | None, int]:
    """Which attempt to follow, from where."""
    if cursor.pinned and cursor.attempt is not None:
        return cursor.attempt, cursor.offset
    attempts = source.log_attempts(task)
    if cursor.attempt is not None and attempts and attempts[-1] != cursor.attempt:
        # The reader is in an older attempt's log: what follows is the newest one, whole.
        return None, 0
    return None, cursor.offset


async def _poll_log(source: LiveJob, cursor: Cursor) -> LogChange | None:
    assert cursor.task is not None
    attempts = source.log_attempts(cursor.task)
    if not attempts:
        return None
    attempt, offset = _start(source, cursor.task, cursor)
    attempt = attempts[-1] if attempt is None else attempt
    try:
        page = await logs.page(source, cursor.task, attempt, offset, POLL_LOG)
    except NoLog:
        return None
    if not page.text and attempt == cursor.attempt:
        return None
    return LogChange(
        task=page.task,
        attempt=attempt,
        offset=page.offset,
        next_offset=page.next_offset,
        text=page.text,
    )


def _event(name: str, content: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(content) + b"\n\n"


async def _close(iterator: AsyncIterator[object]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()
