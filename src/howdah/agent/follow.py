"""Pushing a log to the coordinator while somebody follows it.

What is sent is read back from the file, so that a slow connection costs no memory here: its
follower just falls behind. Offsets are the log's own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

from howdah.core.messages import Task
from howdah.storage import logs
from howdah.wire.channel import Channel, ChannelClosed
from howdah.wire.messages import LogChunk

_PART_BYTES = 64 * 1024
_GATHER_S = 0.02
"""After a push, what comes is gathered for this long into the next one."""


class Follower:
    """Pushes one attempt's log over one connection, from an offset on."""

    def __init__(
        self,
        channel: Channel,
        task: Task,
        attempt: int,
        path: Path,
        offset: int,
        end: Callable[[], int | None],
    ) -> None:
        """``end`` tells how long the log is as far as it is written; None: see the file."""
        self._channel = channel
        self._task = task
        self._attempt = attempt
        self._path = path
        self._offset = offset
        self._end = end
        self._grown = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._pushing = asyncio.get_running_loop().create_task(self._push())

    def grown(self) -> None:
        """The log has more."""
        self._caught_up.clear()
        self._grown.set()

    async def caught_up(self) -> None:
        """Wait until all that was there is sent, or can't be."""
        waiting = asyncio.ensure_future(self._caught_up.wait())
        try:
            await asyncio.wait({waiting, self._pushing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()

    def stop(self) -> None:
        """Push no more."""
        self._pushing.cancel()

    async def _push(self) -> None:
        try:
            while True:
                self._grown.clear()
                while (part := self._next()) is not None:
                    message = LogChunk(
                        task=self._task, attempt=self._attempt, offset=part.offset, data=part.data
                    )
                    self._channel.send(message)
                    self._offset = part.next_offset
                    await self._channel.drain()
                    await asyncio.sleep(_GATHER_S if len(part.data) < _PART_BYTES else 0)
                self._caught_up.set()
                await self._grown.wait()
        except ChannelClosed:
            return

    def _next(self) -> logs.LogPart | None:
        end = self._end()
        if end is not None and self._offset >= end:
            return None
        try:
            part = logs.read(self._path, self._offset, _PART_BYTES)
        except OSError:
            return None
        return part if part.data else None


class Followers:
    """Those of all logs of one container, over its present connection."""

    def __init__(self) -> None:
        self._all: dict[tuple[Task, int], Follower] = {}

    def follow(
        self,
        channel: Channel,
        task: Task,
        attempt: int,
        path: Path,
        offset: int,
        end: Callable[[], int | None],
    ) -> None:
        """Push that log from ``offset`` on, instead of what was pushed of it before."""
        self.leave(task, attempt)
        self._all[task, attempt] = Follower(channel, task, attempt, path, offset, end)

    def leave(self, task: Task, attempt: int) -> None:
        """Push that log no more."""
        if (follower := self._all.pop((task, attempt), None)) is not None:
            follower.stop()

    def leave_all(self) -> None:
        """The connection is gone: a new one asks anew."""
        for key in list(self._all):
            self.leave(*key)

    def grown(self, task: Task, attempt: int) -> None:
        """That log has more."""
        if (follower := self._all.get((task, attempt))) is not None:
            follower.grown()

    async def caught_up(self, task: Task, attempt: int, within_s: float) -> None:
        """Wait until all of that log is sent, at most so long."""
        if (follower := self._all.get((task, attempt))) is not None:
            follower.grown()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await follower.caught_up()
