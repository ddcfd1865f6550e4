"""The logs of the job's tasks: read, followed, and joined from files and what agents push.

The past is read from files, the newest bytes come from the agents, offsets join the two. An agent
is asked once for an attempt's log, however many follow it, and pushes it only meanwhile. Every
reader goes at its own pace: one that falls behind reads the file again and costs the others nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from howdah.coordinator.remote_directory import RemoteLogs
from howdah.coordinator.status import LiveState
from howdah.core.messages import StacksTaken, Task
from howdah.core.state import UP, JobState, TaskState
from howdah.storage import logs
from howdah.storage.files import PRIVATE_FOLDER
from howdah.storage.jobdir import JobDirectory
from howdah.storage.logs import LogPart, LogTimes, Written
from howdah.wire.messages import FollowLog, LogChunk, LogUpdate

log: logging.Logger = logging.getLogger(__name__)

READ = 64 * 1024
"""Bytes read and sent at a time."""
KEPT = 256 * 1024
"""Bytes kept of a followed log. A reader that is further behind reads the file."""
PUSHED_S = 2.0
"""For what a running attempt elsewhere has written so far, when a reader begins."""
HELD_S = 30.0
"""The log of such an attempt is not pushed any more when it was not read for so long."""

_RUNNING = UP | {TaskState.STOPPING}

Attempt = tuple[Task, int]
Wants = Callable[[Task, int], bool]
"""Whether a follower wants that attempt's log."""
Start = Callable[[Task, int], int]
"""At which offset to begin an attempt's log."""


class LogWindow:
    """The newest bytes of a followed log, as the agent pushed them. Offsets are logical: bytes the
    attempt has ever written.

    The agent sends a log once, however many follow it. Chunks may overlap (a new coordinator asked
    again) or leave a gap (the agent dropped what was not taken in time): bytes are told apart by
    their offsets alone, so no reader sees one twice.
    """

    def __init__(self, task: Task, attempt: int, end: int) -> None:
        self.task = task
        self.attempt = attempt
        self.end: int = end
        """The offset of the next byte that is new."""
        self.start: int = end
        self.live: bool = True
        """More may come."""
        self._chunks: deque[tuple[int, bytes]] = deque()
        self._times: deque[Written] = deque()

    def push(self, offset: int, data: bytes, times: tuple[Written, ...] = ()) -> bool:
        """Take a chunk in; whether it has anything new."""
        if offset + len(data) <= self.end:
            return False
        newest = self._times[-1][0] if self._times else -1
        self._times.extend(each for each in times if each[0] > newest)
        if offset < self.end:
            data = data[self.end - offset :]
            offset = self.end
        if offset > self.end:
            self._chunks.clear()
            self.start = offset
        self._chunks.append((offset, data))
        self.end = offset + len(data)
        while self.end - self.start > KEPT and len(self._chunks) > 1:
            self._chunks.popleft()
            self.start = self._chunks[0][0]
        while len(self._times) > 1 and self._times[1][0] <= self.start:
            self._times.popleft()
        return True

    def take(self, position: int, limit: int) -> bytes:
        """At most ``limit`` bytes from ``position``; none if the window does not have them."""
        if not self.start <= position < self.end:
            return b""
        parts: list[bytes] = []
        for offset, data in self._chunks:
            if limit <= 0:
                break
            if offset + len(data) <= position:
                continue
            part = data[position - offset : position - offset + limit]
            parts.append(part)
            position += len(part)
            limit -= len(part)
        return b"".join(parts)

    def times(self, start: int, end: int) -> tuple[Written, ...]:
        """When these bytes were written; see `LogUpdate`."""
        found = [each for each in self._times if each[0] < end]
        first = max(sum(each[0] <= start for each in found) - 1, 0)
        return tuple(found[first:])


class _Cursor:
    """Where a follower is in one attempt's log."""

    __slots__ = ("follower", "position", "queued", "times", "window")

    def __init__(self, window: LogWindow, follower: LogFollower, position: int) -> None:
        self.window: LogWindow = window
        self.times: tuple[Path, LogTimes] | None = None
        self.follower: LogFollower = follower
        self.position: int = position
        self.queued: bool = False

    def wake(self) -> None:
        if not self.queued:
            self.queued = True
            self.follower.enqueue(self)


class LogFollower:
    """One reader of some attempts' logs. Use it as `JobLogs.following` gives it."""

    def __init__(self, job_logs: JobLogs, wants: Wants, wake: Callable[[], None]) -> None:
        self._logs = job_logs
        self._wake = wake
        self._ready: deque[_Cursor] = deque()
        self.wants: Wants = wants
        self.cursors: dict[Attempt, _Cursor] = {}

    def enqueue(self, cursor: _Cursor) -> None:
        self._ready.append(cursor)
        self._wake()

    @property
    def waiting(self) -> bool:
        """Whether `next` may have something at once."""
        return bool(self._ready)

    async def next(self) -> LogUpdate | None:
        """The next bytes of any followed log, or None when there are none at present.

        Logs take turns, so a chatty task delays the others by one read.
        """
        while self._ready:
            cursor = self._ready.popleft()
            cursor.queued = False
            window = cursor.window
            last = not window.live  # asked before reading: an end that comes meanwhile wakes again
            update = await self._logs.read_followed(cursor)
            if update is not None:
                cursor.wake()
                return update
            if last:
                self._logs.drop(cursor)
        return None


class JobLogs:
    """All logs of one job. Files are read in threads, never on the event loop."""

    def __init__(
        self,
        directory: JobDirectory,
        state: Callable[[], JobState],
        live: LiveState,
        send: Callable[[str, FollowLog], object],
        remote: RemoteLogs | None = None,
    ) -> None:
        """``send`` sends to the agent of a container; ``remote`` has the logs that are not written
        where this process can read them."""
        self._directory = directory
        self._state = state
        self._live = live
        self._send = send
        self._remote = remote
        self._windows: dict[Attempt, tuple[LogWindow, set[_Cursor]]] = {}
        self._followers: set[LogFollower] = set()
        self._read_at: dict[Attempt, float] = {}
        """Running attempts elsewhere that are read: when last."""
        self._holding: set[asyncio.Task[None]] = set()

    # -- reading ---------------------------------------------------------------------------------

    async def read(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart | None:
        """At most ``limit`` bytes from logical offset ``offset``; None if there is no log."""
        path = self._directory.log_path(task, attempt)
        try:
            return await asyncio.to_thread(logs.read, path, offset, limit)
        except FileNotFoundError:
            if self._remote is None:
                return None
        if await self._bring(task, attempt):
            return await asyncio.to_thread(logs.read, path, offset, limit)
        part = await asyncio.to_thread(self._remote.pushed.read, task, attempt, offset, limit)
        if part is None and self._runs(task, attempt):
            return LogPart(0, b"", 0)
        return part

    async def ready(self, task: Task, attempt: int) -> None:
        """Have what is known of the log here, so that `size` is right."""
        if self._remote is not None and not self.file_size(task, attempt):
            await self._bring(task, attempt)

    async def last_line(self, task: Task, attempt: int) -> str | None:
        """The newest whole line, if there is any.

        Raises:
            OSError: the log can't be read now.
        """
        path = self._directory.log_path(task, attempt)
        try:
            lines = await asyncio.to_thread(logs.tail, path, 1)
        except FileNotFoundError:
            return None
        return lines[-1] if lines else None

    def file_size(self, task: Task, attempt: int) -> int:
        """Bytes that can be read; 0 if there is no log."""
        try:
            return logs.size(self._directory.log_path(task, attempt))
        except FileNotFoundError:
            return self._remote.pushed.size(task, attempt) if self._remote is not None else 0
        except OSError as error:  # such as too many open files: the log itself is still written
            log.warning("the log of attempt %d of %s can't be looked at: %s", attempt, task, error)
            return 0

    def size(self, task: Task, attempt: int) -> int:
        """Bytes of an attempt's log that are known of."""
        known = self._windows.get((task, attempt))
        size = self.file_size(task, attempt)
        if self._remote is not None:
            size = max(size, self._reported(task, attempt))
        return max(size, known[0].end) if known is not None else size

    def attempts(self, task: Task) -> list[int]:
        """Attempts with a log, ascending."""
        if self._remote is not None:
            return list(range(1, self.newest_attempt(task) + 1))
        return self._directory.log_attempts(task)

    def newest_attempt(self, task: Task) -> int:
        """The task's present attempt; 0 if it has had none."""
        data = self._state().tasks.get(str(task))
        return data.attempt if data is not None else 0

    # -- following -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def following(
        self, tasks: Iterable[Task], wake: Callable[[], None], wants: Wants, start: Start
    ) -> Iterator[LogFollower]:
        """Follow the logs these tasks have, and those that come while ``wants`` says so.

        ``start`` says at which offset to begin an attempt's log that is there already; one that comes
        later is followed from its beginning. ``wake`` is called when the
        follower may have something.
        """
        follower = LogFollower(self, wants, wake)
        self._followers.add(follower)
        try:
            for task in tasks:
                running = self._running(task)
                have = self.attempts(task)
                if running is not None and running[0] not in have:
                    have.append(running[0])
                for attempt in have:
                    if wants(task, attempt):
                        self._place(follower, task, attempt, start(task, attempt))
            yield follower
        finally:
            self._followers.discard(follower)
            for cursor in list(follower.cursors.values()):
                self.drop(cursor)

    async def read_followed(self, cursor: _Cursor) -> LogUpdate | None:
        """The next bytes for a cursor, which goes on: from the window if that has them, else from the
        file."""
        window, position = cursor.window, cursor.position
        if data := window.take(position, READ):
            return self._in_window(cursor, position, data)
        part = await self.read(window.task, window.attempt, position, READ)
        if part is not None and part.data:
            cursor.position = part.next_offset
            return LogUpdate(
                task=window.task,
                attempt=window.attempt,
                offset=part.offset,
                data=part.data,
                times=await asyncio.to_thread(self._times_of, cursor, part),
            )
        # Without a file, what has left the window is lost to a slow reader.
        if position < window.start and (data := window.take(window.start, READ)):
            return self._in_window(cursor, window.start, data)
        return None

    def _in_window(self, cursor: _Cursor, offset: int, data: bytes) -> LogUpdate:
        window = cursor.window
        cursor.position = end = offset + len(data)
        times = window.times(offset, end)
        return LogUpdate(
            task=window.task, attempt=window.attempt, offset=offset, data=data, times=times
        )

    def _times_of(self, cursor: _Cursor, part: LogPart) -> tuple[Written, ...]:
        window = cursor.window
        path = self._directory.log_path(window.task, window.attempt)
        if self._remote is not None and not path.exists():
            path = self._remote.pushed.path(window.task, window.attempt)
        if cursor.times is None or cursor.times[0] != path:
            cursor.times = path, LogTimes(path)
        return cursor.times[1].between(part.offset, part.next_offset)

    def drop(self, cursor: _Cursor) -> None:
        """The cursor's follower is done with this log."""
        key = (cursor.window.task, cursor.window.attempt)
        cursor.follower.cursors.pop(key, None)
        known = self._windows.get(key)
        if known is None:
            return
        window, cursors = known
        cursors.discard(cursor)
        if not cursors:
            del self._windows[key]
            self._ask(window, on=False)

    def _place(self, follower: LogFollower, task: Task, attempt: int, position: int) -> None:
        known = self._windows.get((task, attempt))
        if known is None:
            window = LogWindow(task, attempt, self.file_size(task, attempt))
            window.live = self._runs(task, attempt)
            known = self._windows[task, attempt] = (window, set())
            self._ask(window, on=True)
        window, cursors = known
        cursor = _Cursor(window, follower, position)
        cursors.add(cursor)
        follower.cursors[task, attempt] = cursor
        cursor.wake()

    def _ask(self, window: LogWindow, *, on: bool) -> None:
        """Ask the agent that writes the log, if there is one, to push it."""
        running = self._running(window.task)
        if running is not None and running[0] == window.attempt:
            self._send(
                running[1],
                FollowLog(task=window.task, attempt=window.attempt, offset=window.end, on=on),
            )

    # -- what happens to attempts ----------------------------------------------------------------

    def started(self, task: Task, attempt: int) -> None:
        """An attempt was told to start: its task's followers follow it."""
        if known := self._windows.get((task, attempt)):
            # Asked for before it began, when its agent had no log to follow yet.
            self._ask(known[0], on=True)
        for follower in self._followers:
            if follower.wants(task, attempt) and (task, attempt) not in follower.cursors:
                self._place(follower, task, attempt, 0)

    def connected(self, container_id: str, task: Task) -> None:
        """An agent came back: ask again for what is followed, from where it broke off."""
        running = self._running(task)
        if running is not None and running[1] == container_id:
            if known := self._windows.get((task, running[0])):
                self._ask(known[0], on=True)

    def chunk(self, chunk: LogChunk) -> None:
        """An agent pushed part of a followed log."""
        known = self._windows.get((chunk.task, chunk.attempt))
        if known is None:
            return
        window, cursors = known
        if self._remote is not None:
            self._remote.pushed.add(
                chunk.task, chunk.attempt, chunk.offset, chunk.data, chunk.times
            )
        if window.push(chunk.offset, chunk.data, chunk.times):
            for cursor in cursors:
                cursor.wake()

    def find_ended(self) -> None:
        """Find followed attempts that are over; their followers read the rest from the file."""
        for window, cursors in self._windows.values():
            if window.live and not self._runs(window.task, window.attempt):
                window.live = False
                for cursor in cursors:
                    cursor.wake()

    def _running(self, task: Task) -> tuple[int, str] | None:
        """A task's running attempt and its container, whose agent writes the log."""
        data = self._state().tasks.get(str(task))
        if data is None or data.state not in _RUNNING or data.container_id is None:
            return None
        return data.attempt, data.container_id

    def _runs(self, task: Task, attempt: int) -> bool:
        running = self._running(task)
        return running is not None and running[0] == attempt

    # -- logs elsewhere --------------------------------------------------------------------------

    async def _bring(self, task: Task, attempt: int) -> bool:
        """Have what is known of a remote log here, where that is quick; whether it is complete, as a
        file of the local copy."""
        assert self._remote is not None
        if not self._runs(task, attempt):
            return await self._remote.bring(task, attempt)
        known = (task, attempt) in self._read_at
        self._read_at[task, attempt] = time.monotonic()
        if not known:
            holding = asyncio.create_task(self._hold(task, attempt))
            self._holding.add(holding)
            holding.add_done_callback(self._holding.discard)
            wanted = self._reported(task, attempt)
            deadline = time.monotonic() + PUSHED_S
            while self.file_size(task, attempt) < wanted and time.monotonic() < deadline:
                await asyncio.sleep(0.02)
        return False

    async def _hold(self, task: Task, attempt: int) -> None:
        """Follow a running attempt for as long as its log is read, so that it is pushed."""
        key = (task, attempt)
        try:
            with self.following(
                [task],
                lambda: None,
                wants=lambda of, number: (of, number) == key,
                start=lambda of, number: 0,
            ):
                while (left_s := self._read_at[key] + HELD_S - time.monotonic()) > 0:
                    await asyncio.sleep(left_s)
        finally:
            self._read_at.pop(key, None)

    def _reported(self, task: Task, attempt: int) -> int:
        """Bytes of the log as its agent told last."""
        live = self._live.of(task, attempt)
        return live.log_size if live is not None else 0


def save_stacks(directory: JobDirectory, stacks: StacksTaken) -> str:
    """Write what an agent could not write itself; returns the path relative to the job directory.

    A few dozen kilobytes, and only when something hangs: no thread is needed.
    """
    if not stacks.text:
        return ""
    path = directory.stacks_path(stacks.task, stacks.attempt)
    try:
        path.parent.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(stacks.text.encode(errors="replace"))
    except OSError as error:
        log.warning("the stacks of %s can't be saved: %s", stacks.task, error)
        return ""
    return str(path.relative_to(directory.path))
