"""The agent: what it is told and what it tells, over whatever connection there is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
from collections import deque
from collections.abc import Callable
from typing import Any

from howdah.agent import here
from howdah.agent.attempt import Attempt
from howdah.agent.children import Children
from howdah.agent.connection import Connector, End, Link
from howdah.agent.container import Container
from howdah.agent.doorbell import Doorbell
from howdah.agent.guard import Guard
from howdah.agent.launch import AgentLaunch
from howdah.agent.reports import socket_folder
from howdah.core.messages import (
    CheckpointSaved,
    DumpStacks,
    Exit,
    NotifyCheckpoint,
    StacksTaken,
    StopTask,
    Task,
    TaskExited,
)
from howdah.wire.channel import ChannelClosed
from howdah.wire.frames import FrameError
from howdah.wire.messages import (
    AgentHello,
    AgentNote,
    FollowLog,
    Heartbeat,
    Moved,
    Prepare,
    Refuse,
    Shutdown,
    Start,
)

log = logging.getLogger(__name__)

ORDERLY, REFUSED, ORPHANED = 0, 1, 3
"""Exit codes: told to go; the coordinator does not want us; no coordinator for the lease."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code: ended from outside. A NodeManager that ends a container over its memory forgets why if
the container's process ends with any other code (``ContainerImpl``, exit events while killing)."""

_SIGNAL_GRACE_S = 5.0
"""For the programs, and then for what they left, when the agent is ended by SIGTERM."""
_ORPHAN_GRACE_S = 1.0
_GOODBYE_S = 2.0
_COPYING_S = 25.0
"""For copies of logs when the agent goes; a coordinator waits for it a little longer."""
_DOUBT_S = 5.0
"""What was sent so shortly before a connection broke may not have arrived."""

_Repeated = (StacksTaken, AgentNote, CheckpointSaved)
"""What no hello can make up for."""


class Agent:
    """One container's agent; `run` is its whole life."""

    def __init__(self, launch: AgentLaunch, guard: Guard) -> None:
        self._launch = launch
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._children = Children(self._loop)
        self._doorbell = Doorbell(launch, guard, self._coordinator_moved)
        self._connector = Connector(launch, self._hello, self._doorbell.listen)
        self._moved: asyncio.Future[None] = self._loop.create_future()
        """Done once a newer coordinator has said where it is: go there."""
        self._container = Container(
            launch,
            self._children,
            guard,
            socket_folder(),
            self.say,
            lambda: self._connector.host,
        )
        self._attempt: Attempt | None = None
        self._dropped: dict[Task, int] = {}
        """Attempts that were given up before they came; they must not come any more."""
        self._link: Link | None = None
        self._orderly = ORDERLY
        """The exit code once it was told to end, by whoever it was."""
        self._said: deque[tuple[float, Any]] = deque(maxlen=200)
        self._beat_s = launch.beat_s
        self._farewell: asyncio.Future[float] = self._loop.create_future()
        """Set to a grace once the agent is to end."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on: dict[type[Any], Callable[[Any], None]] = {
            Prepare: self._prepare,
            Start: self._start,
            StopTask: self._stop,
            DumpStacks: self._take_stacks,
            NotifyCheckpoint: self._request_checkpoint,
            FollowLog: self._follow,
            Shutdown: lambda order: self._end(order.grace_s),
        }

    async def run(self) -> int:
        """Serve coordinators until told to go, refused, or orphaned; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._terminated)
        self._loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._watch_guard()
        beats = self._loop.create_task(self._beats())
        try:
            code, grace_s = await self._serve()
            await self._leave(grace_s)
        finally:
            beats.cancel()
            self._doorbell.close()
            if self._link is not None:
                self._link.channel.close()
            self._children.close()
        return code

    # -- the connection --------------------------------------------------------------------------

    async def _serve(self) -> tuple[int, float]:
        """Until the end: exit code and grace for what runs."""
        while True:
            if self._moved.done():
                self._moved = self._loop.create_future()
            connecting = self._loop.create_task(self._connector.connect())
            await self._until(connecting)
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait({connecting})
                if self._farewell.done():
                    return self._orderly, self._farewell.result()
                continue
            found = connecting.result()
            if found is End.REFUSED:
                log.error("refused: %s", self._connector.problem)
                return REFUSED, 0.0
            if found is End.LEASE:
                log.error(
                    "no coordinator for %g s, its lease: %s",
                    self._connector.lease_s,
                    self._connector.problem,
                )
                return ORPHANED, _ORPHAN_GRACE_S
            assert isinstance(found, Link)
            refused = await self._speak(found)
            if self._farewell.done():
                return self._orderly, self._farewell.result()
            if refused:
                log.error("sent away: %s", refused)
                return REFUSED, 0.0
            self._part()

    async def _speak(self, link: Link) -> str:
        """Take orders over one connection until it ends; returns why we are not wanted, if so."""
        self._link = link
        self._beat_s = link.welcome.beat_s
        self._say_again()
        while True:
            receiving = self._loop.create_task(link.channel.receive())
            await self._until(receiving)
            if self._farewell.done() or self._moved.done():
                receiving.cancel()
                return ""
            order = receiving.result()
            if order is None:
                return ""
            if isinstance(order, Refuse):
                return order.reason
            if (take := self._on.get(type(order))) is not None:
                take(order)

    async def _until(self, task: asyncio.Task[Any]) -> None:
        """Wait for that, for the farewell, or for a newer coordinator."""
        news = {task, self._farewell, self._moved}
        await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)

    def _coordinator_moved(self, news: Moved) -> None:
        if self._connector.moved(news, connected=self._link is not None):
            log.info("coordinator %d calls from %s:%d", news.incarnation, news.host, news.port)
            if not self._moved.done():
                self._moved.set_result(None)

    def _part(self) -> None:
        """The connection is gone."""
        assert self._link is not None
        log.info("connection lost: %s", self._link.channel.problem or "closed by the coordinator")
        self._link.channel.close()
        self._link = None
        self._container.followers.leave_all()
        self._connector.lost()

    def _hello(self, host: str) -> AgentHello:
        return AgentHello(
            job_id=self._launch.job_id,
            container_id=self._launch.container_id,
            host=host,
            pid=os.getpid(),
            listen=self._doorbell.address,
            held=self._attempt.held() if self._attempt is not None else None,
        )

    def say(self, message: Any) -> None:
        """Tell the coordinator. What can't arrive now is made up for at the next hello."""
        if isinstance(message, _Repeated):
            self._said.append((self._loop.time(), message))
        if self._link is None:
            return
        try:
            self._link.channel.send(message)
        except FrameError as error:
            log.error("a message could not be sent: %s", error)

    def _say_again(self) -> None:
        assert self._link is not None
        if self._attempt is not None:
            self._attempt.reconnected()
        doubtful = self._connector.since_lost(_DOUBT_S)
        for when, message in self._said:
            if when >= doubtful:
                self._link.channel.send(message)

    async def _beats(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            if self._link is not None:
                self.say(self._attempt.beat() if self._attempt is not None else Heartbeat())

    # -- orders ----------------------------------------------------------------------------------

    def _prepare(self, order: Prepare) -> None:
        now = self._attempt
        if now is not None and now.task == order.task:
            if order.attempt == now.attempt:
                now.tell_again()
                return
            if order.attempt < now.attempt:
                return
        if self._dropped.get(order.task, 0) >= order.attempt:
            self._say_dropped(order.task, order.attempt)
            return
        if now is not None and now.exit is None:
            now.stop(0.0, 0.0)
        order = here.in_prepare(order, self._launch.work_dir)
        self._attempt = Attempt(self._container, order, before=now)
        # Objects of an attempt refer to each other: without this, those of dozens pile up.
        gc.collect()

    def _start(self, order: Start) -> None:
        attempt = self._find(order)
        if attempt is not None:
            attempt.start(here.in_start(order, self._launch.work_dir))

    def _stop(self, order: StopTask) -> None:
        attempt = self._find(order)
        if attempt is not None:
            attempt.stop(order.grace_s, order.save_s)
            return
        # Lost on its way here, or long over: it will not run, and who asks must not wait.
        self._dropped[order.task] = max(self._dropped.get(order.task, 0), order.attempt)
        self._say_dropped(order.task, order.attempt)

    def _say_dropped(self, task: Task, attempt: int) -> None:
        exit = Exit(
            signal=signal.SIGTERM, stopped=True, detail="the agent does not hold this attempt"
        )
        self.say(TaskExited(task=task, attempt=attempt, exit=exit))

    def _take_stacks(self, order: DumpStacks) -> None:
        attempt = self._find(order)
        if attempt is None:
            problem = "the agent does not hold this attempt"
            self.say(StacksTaken(task=order.task, attempt=order.attempt, problem=problem))
            return
        self._spawn(self._stacks(attempt))

    async def _stacks(self, attempt: Attempt) -> None:
        try:
            self.say(await attempt.take_stacks())
        except Exception as error:  # a defect must not leave who asked waiting
            log.exception("stacks could not be taken")
            problem = f"{type(error).__name__}: {error}"
            self.say(StacksTaken(task=attempt.task, attempt=attempt.attempt, problem=problem))

    def _request_checkpoint(self, order: NotifyCheckpoint) -> None:
        attempt = self._find(order)
        if attempt is not None:
            attempt.request_checkpoint(order.reason)

    def _follow(self, order: FollowLog) -> None:
        followers = self._container.followers
        if not order.on:
            followers.leave(order.task, order.attempt)
            return
        assert self._link is not None
        attempt = self._find(order)
        followers.follow(
            self._link.channel,
            order.task,
            order.attempt,
            self._container.log_path(order.task, order.attempt),
            order.offset,
            attempt.log_end if attempt is not None else lambda: None,
        )

    def _find(self, order: Any) -> Attempt | None:
        now = self._attempt
        if now is not None and now.task == order.task and now.attempt == order.attempt:
            return now
        return None

    # -- the end ---------------------------------------------------------------------------------

    def _terminated(self) -> None:
        """Somebody else than the coordinator wants the agent to end."""
        if not self._farewell.done():
            self._orderly = TERMINATED
        self._end(_SIGNAL_GRACE_S)

    def _end(self, grace_s: float) -> None:
        """The agent is to go. Said again, with less grace: that counts."""
        if not self._farewell.done():
            self._farewell.set_result(grace_s)
        elif self._attempt is not None:
            self._attempt.stop(grace_s, grace_s)

    async def _leave(self, grace_s: float) -> None:
        """End what runs, say how it ended, hang up."""
        if self._attempt is not None:
            if self._attempt.exit is None:
                self._attempt.stop(grace_s, grace_s)
            await self._attempt.over()
        await self._container.log_copies.done(_COPYING_S)
        if self._link is not None:
            channel = self._link.channel
            with contextlib.suppress(TimeoutError, ChannelClosed):
                async with asyncio.timeout(_GOODBYE_S):
                    await channel.drain()
                    channel.close()
                    await channel.wait_closed()
        pid = self._guard.pid
        gone = asyncio.Event()
        self._children.watch(pid, lambda _: gone.set())
        self._guard.dismiss()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await gone.wait()

    def _watch_guard(self) -> None:
        self._children.watch(self._guard.pid, self._guard_ended)

    def _guard_ended(self, status: int) -> None:
        log.warning("the guard ended with status %d; another one takes its place", status)
        self._guard.begin()
        self._watch_guard()

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
