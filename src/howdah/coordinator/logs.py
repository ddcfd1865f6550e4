"""Following logs: files of the job directory and what agents push, as one stream of bytes.

History is read from files, the newest bytes come from the agents, offsets join the two. An agent
is asked once for an attempt's log, whoever and however many follow it, and pushes it only
meanwhile. Every reader goes at its own pace: one that falls behind reads the file again and costs
the others nothing.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from howdah.coordinator.feeds import Feed
from howdah.core.messages import Task
from howdah.storage.logs import LogPart
from howdah.wire.messages import FollowLog, LogChunk, LogUpdate

READ = 64 * 1024
"""Bytes read and sent at a time."""

Attempt = tuple[Task, int]
Wants = Callable[[Task, int], bool]
"""Whether a follower wants that attempt's log."""
Start = Callable[[Task, int, bool], int | None]
"""Where to begin a task's attempt that may be its running one, or None: not at all."""


class LogFiles(Protocol):
    """The logs of the job directory."""

    async def read(self, task: Task, attempt: int, offset: int, limit: int) -> LogPart | None:
        """As `howdah.storage.logs.read`; None if there is no such log (yet)."""
        ...

    def size(self, task: Task, attempt: int) -> int:
        """Bytes ever written, as the file has it; 0 if there is none."""
        ...

    def attempts(self, task: Task) -> list[int]:
        """Attempts with a log, ascending."""
        ...


class _Cursor:
    """A follower's place in one attempt's log."""

    __slots__ = ("feed", "follower", "position", "queued")

    def __init__(self, feed: Feed, follower: Follower, position: int) -> None:
        self.feed = feed
        self.follower = follower
        self.position = position
        self.queued = False

    def wake(self) -> None:
        if not self.queued:
            self.queued = True
            self.follower.enqueue(self)


class Follower:
    """One reader of some attempts' logs. Use it as `LogHub.following` gives it."""

    def __init__(self, hub: LogHub, wants: Wants, wake: Callable[[], None]) -> None:
        self._hub = hub
        self._wake = wake
        self._ready: deque[_Cursor] = deque()
        self.wants = wants
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
            feed = cursor.feed
            last = not feed.live  # asked before reading: an end that comes meanwhile wakes again
            part = await self._hub.read(feed, cursor.position)
            if part is not None and part.data:
                cursor.position = part.next_offset
                cursor.wake()
                return LogUpdate(
                    task=feed.task, attempt=feed.attempt, offset=part.offset, data=part.data
                )
            if last:
                self._hub.drop(cursor)
        return None


class LogHub:
    """All followed logs of one job."""

    def __init__(
        self,
        files: LogFiles,
        send: Callable[[str, FollowLog], object],
        holder: Callable[[Task], tuple[int, str] | None],
        *,
        keep: Callable[[LogChunk], None] | None = None,
        reported: Callable[[Task, int], int] | None = None,
    ) -> None:
        """
        Args:
            keep: where files can't be read here while they are written, is given what agents push.
            reported: and tells how long a log was said to be.
        """
        self._keep = keep
        self._reported = reported or (lambda task, attempt: 0)
        self._files = files
        self._send = send
        self._holder = holder
        """A task's running attempt and the container whose agent writes its log, if it has one."""
        self._feeds: dict[Attempt, tuple[Feed, set[_Cursor]]] = {}
        self._followers: set[Follower] = set()

    @contextlib.contextmanager
    def following(
        self, tasks: Iterable[Task], wake: Callable[[], None], wants: Wants, start: Start
    ) -> Iterator[Follower]:
        """Follow the logs these tasks have, and those that come while ``wants`` says so.

        ``start`` says at which offset to begin an attempt's log that is there already (None: not
        at all); one that comes later is followed from its beginning. ``wake`` is called when the
        follower may have something.
        """
        follower = Follower(self, wants, wake)
        self._followers.add(follower)
        try:
            for task in tasks:
                held = self._holder(task)
                newest = held[0] if held is not None else None
                have = self._files.attempts(task)
                if newest is not None and newest not in have:
                    have.append(newest)
                for attempt in have:
                    if wants(task, attempt):
                        offset = start(task, attempt, attempt == newest)
                        if offset is not None:
                            self._place(follower, task, attempt, offset)
            yield follower
        finally:
            self._followers.discard(follower)
            for cursor in list(follower.cursors.values()):
                self.drop(cursor)

    # -- what happens to attempts ---------------------------------------------------------------

    def started(self, task: Task, attempt: int) -> None:
        """An attempt was told to start: whoever follows its task follows it."""
        if known := self._feeds.get((task, attempt)):
            # Asked for before it began, when its agent had no log to follow yet.
            if (held := self._holder(task)) is not None:
                self._ask(known[0], held[1], on=True)
        for follower in self._followers:
            if follower.wants(task, attempt) and (task, attempt) not in follower.cursors:
                self._place(follower, task, attempt, 0)

    def connected(self, container_id: str, task: Task) -> None:
        """An agent came back: ask again for what is followed, from where it broke off."""
        held = self._holder(task)
        if held is None or held[1] != container_id:
            return
        known = self._feeds.get((task, held[0]))
        if known is not None:
            self._ask(known[0], container_id, on=True)

    def chunk(self, chunk: LogChunk) -> None:
        """An agent pushed part of a followed log."""
        known = self._feeds.get((chunk.task, chunk.attempt))
        if known is None:
            return
        feed, cursors = known
        if self._keep is not None:
            self._keep(chunk)
        if feed.push(chunk.offset, chunk.data):
            for cursor in cursors:
                cursor.wake()

    def look(self) -> None:
        """Find followed attempts that are over; their followers read the rest from the file."""
        for feed, cursors in self._feeds.values():
            if feed.live and not self._is_held(feed):
                feed.live = False
                for cursor in cursors:
                    cursor.wake()

    def size(self, task: Task, attempt: int) -> int:
        """Bytes of an attempt's log that are known of."""
        known = self._feeds.get((task, attempt))
        size = max(self._files.size(task, attempt), self._reported(task, attempt))
        return max(size, known[0].end) if known is not None else size

    # -- for followers --------------------------------------------------------------------------

    async def read(self, feed: Feed, position: int) -> LogPart | None:
        """Bytes from ``position``, from the window if it has them, else from the file."""
        if data := feed.take(position, READ):
            return LogPart(offset=position, data=data, next_offset=position + len(data))
        part = await self._files.read(feed.task, feed.attempt, position, READ)
        if part is not None and part.data:
            return part
        # Where no file is at hand, what has left the window is lost to a slow reader.
        if position < feed.start and (data := feed.take(feed.start, READ)):
            return LogPart(offset=feed.start, data=data, next_offset=feed.start + len(data))
        return None

    def drop(self, cursor: _Cursor) -> None:
        """This follower is done with this log."""
        key = (cursor.feed.task, cursor.feed.attempt)
        cursor.follower.cursors.pop(key, None)
        known = self._feeds.get(key)
        if known is None:
            return
        feed, cursors = known
        cursors.discard(cursor)
        if not cursors:
            del self._feeds[key]
            held = self._holder(feed.task)
            if held is not None and held[0] == feed.attempt:
                self._ask(feed, held[1], on=False)

    def _place(self, follower: Follower, task: Task, attempt: int, position: int) -> None:
        known = self._feeds.get((task, attempt))
        if known is None:
            feed = Feed(task, attempt, self._files.size(task, attempt))
            feed.live = self._is_held(feed)
            known = self._feeds[(task, attempt)] = (feed, set())
            held = self._holder(task)
            if feed.live and held is not None:
                self._ask(feed, held[1], on=True)
        feed, cursors = known
        cursor = _Cursor(feed, follower, position)
        cursors.add(cursor)
        follower.cursors[(task, attempt)] = cursor
        cursor.wake()

    def _is_held(self, feed: Feed) -> bool:
        held = self._holder(feed.task)
        return held is not None and held[0] == feed.attempt

    def _ask(self, feed: Feed, container_id: str, *, on: bool) -> None:
        self._send(
            container_id,
            FollowLog(task=feed.task, attempt=feed.attempt, offset=feed.end, on=on),
        )
