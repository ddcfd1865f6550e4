"""Following the job: one stream of server-sent events a page, and the same by asking again.

A stream carries the events ``hello``, ``status`` (`StatusPatch`), ``record`` (`RecordLine`),
``log`` (`LogChange`) and ``bye``. One stream carries all, as browsers allow few connections to a
host. A reader says what it has in the address (``since``, ``after``, ``offset``), not in
``Last-Event-ID``, which some proxies drop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import msgspec

from howdah.coordinator.source import JobSource, NoLog
from howdah.coordinator.web import logtext
from howdah.coordinator.web.board import Board
from howdah.coordinator.web.documents import Changes, LogChange, RecordLine, record_line
from howdah.core.messages import Task
from howdah.wire.messages import RecordUpdate

HEARTBEAT_S = 10.0
"""A comment is sent after this much silence, so that a dead connection is noticed."""

LOOK_S = 1.0
"""Measurements are looked at this often even if nobody says that they changed."""

GATHER_S = 0.05
"""From the first sign of news to telling it: what comes together is told together."""

TASKS_PER_SECOND = 1000.0
"""Tasks told of in a second at most, by telling less often: a person cannot read more."""

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


class Watch:
    """One stream's ear."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.urgent = True
        """A record came, so states have changed and not just measurements."""

    def wake(self, *, urgent: bool = False) -> None:
        """There is something new."""
        self.urgent = self.urgent or urgent
        self._news.set()

    async def wait(self, timeout_s: float) -> None:
        """Until woken, or the time is over."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), timeout_s)
            await asyncio.sleep(GATHER_S)
        self._news.clear()


class Watchers:
    """Wakes every stream on a record; subscribes to the job only while somebody watches."""

    def __init__(self, source: JobSource) -> None:
        self._source = source
        self._watches: set[Watch] = set()
        self._pump: asyncio.Task[None] | None = None
        self.closing = False
        """The server ends; streams say so and end too."""

    def __len__(self) -> int:
        return len(self._watches)

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watch]:
        """Listen inside the ``with`` block."""
        watch = Watch()
        self._watches.add(watch)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.ensure_future(self._listen())
        try:
            yield watch
        finally:
            self._watches.discard(watch)
            if not self._watches and self._pump is not None:
                self._pump.cancel()
                self._pump = None

    def close(self) -> None:
        """End all streams."""
        self.closing = True
        for watch in self._watches:
            watch.wake()

    async def _listen(self) -> None:
        news = self._source.subscribe()
        try:
            async for item in news:
                # Measurements change all the time; they are looked at when it is time to.
                if isinstance(item, RecordUpdate):
                    for watch in self._watches:
                        watch.wake(urgent=True)
        finally:
            await _close(news)


def new_records(source: JobSource, after: int) -> list[RecordLine]:
    """The next lines of the story."""
    return [record_line(update) for update in source.records(after)[:RECORDS_MAX]]


async def poll(source: JobSource, board: Board, cursor: Cursor) -> Changes:
    """What the stream would have sent by now.

    Raises:
        UnknownTask: the job has no task that the cursor names.
    """
    board.refresh()
    records = new_records(source, cursor.after)
    return Changes(
        status=board.patch(cursor.version),
        records=records,
        records_after=records[-1].seq if records else cursor.after,
        log=await _poll_log(source, cursor) if cursor.task is not None else None,
    )


async def events(
    source: JobSource, board: Board, watchers: Watchers, cursor: Cursor
) -> AsyncIterator[bytes]:
    """Server-sent events from where the reader stands, until the server closes."""
    loop = asyncio.get_running_loop()
    yield _event("hello", {"version": board.version})
    spoken = loop.time()
    with watchers.watching() as watch:
        teller = _Teller(source, board, cursor)
        async with _following(source, cursor, watch) as log:
            while True:
                closing = watchers.closing
                urgent, watch.urgent = watch.urgent, False
                told = teller.records()
                told += teller.status(loop.time(), urgent=urgent, last=closing)
                told += [_event("log", change) for change in (log.take() if log else ())]
                if told:
                    yield b"".join(told)
                    spoken = loop.time()
                elif loop.time() - spoken >= HEARTBEAT_S:
                    yield b": still here\n\n"
                    spoken = loop.time()
                if closing:
                    yield _event("bye", {})
                    return
                if not teller.behind:
                    await watch.wait(max(0.02, teller.status_due - loop.time()))


class _Teller:
    """What one reader has been told of records and status."""

    def __init__(self, source: JobSource, board: Board, cursor: Cursor) -> None:
        self._source = source
        self._board = board
        self._version = cursor.version
        self._after = cursor.after
        self.status_due = 0.0
        """When to look at the status again, on the loop's clock."""
        self.behind = False
        """There are more records to tell at once."""

    def records(self) -> list[bytes]:
        """Events of the next records."""
        lines = new_records(self._source, self._after)
        self.behind = len(lines) == RECORDS_MAX
        if lines:
            self._after = lines[-1].seq
        return [_event("record", line) for line in lines]

    def status(self, now: float, *, urgent: bool, last: bool) -> list[bytes]:
        """The event of what changed, if it is time to look."""
        if now < self.status_due and not urgent and not last:
            return []
        self._board.refresh(last=last)
        patch = self._board.patch(self._version)
        tasks = len(patch.tasks) if patch is not None else 0
        self.status_due = now + max(LOOK_S, tasks / TASKS_PER_SECOND)
        if urgent:
            # The document may be a little older than the record that made it so: look once more.
            self.status_due = min(self.status_due, now + self._board.interval_s)
        if patch is None:
            return []
        self._version = patch.version
        return [_event("status", patch)]


class _Follower:
    """A log being followed into a gatherer."""

    def __init__(self, source: JobSource, cursor: Cursor, watch: Watch) -> None:
        assert cursor.task is not None
        self._gatherer = logtext.Gatherer(cursor.task)
        self._ended = False
        self.pump = asyncio.ensure_future(self._read(source, cursor, cursor.task, watch))

    def take(self) -> list[LogChange]:
        """What has come."""
        return self._gatherer.take(final=self._ended)

    async def _read(self, source: JobSource, cursor: Cursor, task: Task, watch: Watch) -> None:
        attempt, offset = _place(source, task, cursor)
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
    source: JobSource, cursor: Cursor, watch: Watch
) -> AsyncIterator[_Follower | None]:
    if cursor.task is None:
        yield None
        return
    follower = _Follower(source, cursor, watch)
    try:
        yield follower
    finally:
        follower.pump.cancel()
        with contextlib.suppress(asyncio.CancelledError, LookupError):
            await follower.pump


def _place(source: JobSource, task: Task, cursor: Cursor) -> tuple[int | None, int]:
    """Which attempt to follow, from where."""
    if cursor.pinned and cursor.attempt is not None:
        return cursor.attempt, cursor.offset
    attempts = source.log_attempts(task)
    if cursor.attempt is not None and attempts and attempts[-1] != cursor.attempt:
        # The reader stands in an older attempt's log: what follows is the newest one, whole.
        return None, 0
    return None, cursor.offset


async def _poll_log(source: JobSource, cursor: Cursor) -> LogChange | None:
    assert cursor.task is not None
    attempts = source.log_attempts(cursor.task)
    if not attempts:
        return None
    attempt, offset = _place(source, cursor.task, cursor)
    attempt = attempts[-1] if attempt is None else attempt
    try:
        page = await logtext.page(source, cursor.task, attempt, offset, POLL_LOG)
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
