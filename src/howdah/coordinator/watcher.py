"""One client that watches: every record once, logs, and the status document now and then.

It takes what it sends from where everybody reads (story, logs, status) at its own pace and waits
for its connection to take it: a slow client holds nothing in memory and stalls nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from howdah.coordinator.logs import Follower, LogHub
from howdah.coordinator.status import Status
from howdah.coordinator.story import Story
from howdah.core.messages import Task
from howdah.wire.channel import Channel
from howdah.wire.messages import StatusUpdate, Watch

RECORDS = 200
"""Records sent before the connection is waited for."""
LOGS = 16
"""Log reads sent before records and status have their turn again."""


class Watcher:
    """Serves one `Watch` request until the job is over or the task is cancelled."""

    def __init__(
        self,
        channel: Channel,
        watch: Watch,
        story: Story,
        status: Status,
        logs: LogHub,
        tasks: Callable[[], Iterable[Task]],
        finished: asyncio.Event,
    ) -> None:
        self._channel = channel
        self._watch = watch
        self._story = story
        self._status = status
        self._logs = logs
        self._tasks = tasks
        self._finished = finished
        self._wake = asyncio.Event()
        self._seq = watch.after_seq
        self._version = -1
        self._next_status = 0.0

    async def run(self) -> None:
        """Send until everything of a finished job has been sent."""
        wake = self._wake.set
        with (
            self._story.grown.calling(wake),
            self._status.changed.calling(wake),
            self._follow() as follower,
        ):
            while True:
                # Read before anything is sent: what comes after this is sent in one more round.
                finished = self._finished.is_set()
                self._wake.clear()
                more = await self._records()
                if follower is not None:
                    more = await self._some_logs(follower) or more
                if (finished or self._watch.until_now) and not more:
                    await self._send_status()
                    return
                if self._watch.until_now:
                    continue
                due_s = await self._status_if_due()
                if not more:
                    await self._sleep(due_s)

    async def _records(self) -> bool:
        updates = self._story.after(self._seq, RECORDS)
        for update in updates:
            self._channel.send(update)
            self._seq = update.seq
        if updates:
            await self._channel.drain()
        return bool(updates)

    async def _some_logs(self, follower: Follower) -> bool:
        for _ in range(LOGS):
            update = await follower.next()
            if update is None:
                return follower.waiting
            self._channel.send(update)
            await self._channel.drain()
        return True

    async def _status_if_due(self) -> float | None:
        """Send the status if it changed; how long until it may be sent, None if it is sent."""
        if self._version == self._status.version:
            return None
        wait_s = self._next_status - asyncio.get_running_loop().time()
        if wait_s > 0:
            return wait_s
        await self._send_status()
        return None

    async def _send_status(self) -> None:
        self._version = self._status.version
        self._channel.send(StatusUpdate(status=self._status.json()))
        await self._channel.drain()
        self._next_status = asyncio.get_running_loop().time() + self._status.pace_s

    async def _sleep(self, limit_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    def _follow(self) -> contextlib.AbstractContextManager[Follower | None]:
        watch = self._watch
        if not watch.logs:
            return contextlib.nullcontext()
        offsets = {(task, attempt): offset for task, attempt, offset in watch.offsets}

        def start(task: Task, attempt: int, running: bool) -> int | None:
            if (task, attempt) in offsets:
                return offsets[task, attempt]
            if watch.from_start:
                return 0
            return self._logs.size(task, attempt) if running else None

        wanted = frozenset(watch.tasks)
        return self._logs.following(
            watch.tasks or self._tasks(),
            self._wake.set,
            wants=lambda task, attempt: not wanted or task in wanted,
            start=start,
        )
