"""The agent: what it is told and what it says, over whatever connection there is."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from howdah.agent.attempt import Attempt
from howdah.agent.children import Children
from howdah.agent.connection import (
    CallbackListener,
    Connector,
    CoordinatorConnection,
    NoCoordinator,
)
from howdah.agent.container import ContainerContext
from howdah.agent.copies import LogCopies
from howdah.agent.launch import AgentLaunch
from howdah.agent.watchdog import Watchdog
from howdah.agent.workfolder import substitute
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
from howdah.storage import runtime
from howdah.storage.files import write_atomically
from howdah.wire.channel import ChannelClosed
from howdah.wire.frames import FrameError
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    AgentNote,
    DialExec,
    ExecHello,
    FollowLog,
    Heartbeat,
    LeaseRenewed,
    Moved,
    NewCredentials,
    Prepare,
    Refuse,
    Shutdown,
    Start,
    ToExec,
)

TOKEN_FILE = "HADOOP_TOKEN_FILE_LOCATION"
log: logging.Logger = logging.getLogger(__name__)

ORDERLY, REFUSED, ORPHANED = 0, 1, 3
"""Exit codes: told to go; the coordinator does not want us; no coordinator for the lease."""
TERMINATED = 128 + signal.SIGTERM
"""Exit code: ended from outside. A NodeManager that ends a container over its memory forgets why if
the container's process ends with any other code (``ContainerImpl``, exit events while killing)."""

_GOODBYE_S = 2.0
_COPYING_S = 25.0
"""For copies of logs when the agent goes; a coordinator waits for it a little longer."""
_RENEWALS = 10
_RENEWAL_S = 10.0
"""An agent asks so often within its lease whether it was heard, and once in so many seconds."""

_Repeated = (StacksTaken, AgentNote, CheckpointSaved, Heartbeat)
"""What no hello can make up for: said again until it is kept. Of heartbeats it is an attempt's last, with
what its programs reported at their end; the others are followed by newer ones."""


class _Ending(NamedTuple):
    """Why and how the agent ends."""

    code: int
    grace_s: float = 0.0
    """For its programs."""
    save_s: float = 0.0
    """And then for what they left."""


_SIGNALLED = _Ending(TERMINATED, 5.0, 5.0)
_ORPHANED = _Ending(ORPHANED, 1.0, 5.0)


class Agent:
    """One container's agent; `run` is its whole life."""

    def __init__(self, launch: AgentLaunch, watchdog: Watchdog) -> None:
        self._launch = launch
        self._watchdog = watchdog
        self._loop = asyncio.get_running_loop()
        self._children = Children(self._loop)
        self._listener = CallbackListener(launch, watchdog, self._coordinator_moved)
        self._connector = Connector(launch, self._hello, self._listener.listen)
        self._moved: asyncio.Future[None] = self._loop.create_future()
        """Done once a newer coordinator has said where it is: redial."""
        self._container = ContainerContext(
            launch,
            self._children,
            watchdog,
            runtime.private_folder(runtime.base()),
            self.say,
            lambda: self._connector.host,
        )
        self._log_copies = LogCopies(self._container)
        self._attempt: Attempt | None = None
        self._dropped: dict[Task, int] = {}
        """Attempts that were given up before they came; they must not come any more."""
        self._connection: CoordinatorConnection | None = None
        self._asked_at: float | None = None
        """When it asked to be heard; None once it was."""
        self._said: deque[tuple[float, Any]] = deque(maxlen=200)
        """What a next coordinator may not know yet, and when it was said."""
        self._beat_s = launch.beat_s
        self._shutdown: asyncio.Future[_Ending] = self._loop.create_future()
        """Done once the agent is told to end."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on: dict[type[Any], Callable[[Any], None]] = {
            Prepare: self._prepare,
            Start: self._start,
            StopTask: self._stop,
            DumpStacks: self._take_stacks,
            NotifyCheckpoint: self._request_checkpoint,
            FollowLog: self._follow,
            NewCredentials: self._replace_credentials,
            DialExec: self._exec,
            LeaseRenewed: self._heard,
            Shutdown: lambda order: self._end(_Ending(ORDERLY, order.grace_s, order.grace_s)),
        }

    async def run(self) -> int:
        """Serve coordinators until told to go, refused, or orphaned; returns the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._end, _SIGNALLED)
        self._loop.add_signal_handler(signal.SIGHUP, lambda: None)
        self._children.watch(self._watchdog.pid, self._watchdog_ended)
        heartbeats = self._loop.create_task(self._heartbeats())
        try:
            ending = await self._serve()
            await self._leave(ending)
        finally:
            heartbeats.cancel()
            self._listener.close()
            if self._connection is not None:
                self._connection.channel.close()
            self._children.close()
        return ending.code

    # -- the connection --------------------------------------------------------------------------

    async def _serve(self) -> _Ending:
        while True:
            if self._moved.done():
                self._moved = self._loop.create_future()
            connecting = self._loop.create_task(self._connector.connect())
            await self._until(connecting)
            if not connecting.done():
                connecting.cancel()
                await asyncio.wait({connecting})
                if self._shutdown.done():
                    return self._shutdown.result()
                continue
            found = connecting.result()
            if found is NoCoordinator.REFUSED:
                log.error("refused: %s", self._connector.problem)
                return _Ending(REFUSED)
            if found is NoCoordinator.LEASE:
                log.error(
                    "not heard by a coordinator for %g s, its lease: %s",
                    self._connector.lease_s,
                    self._connector.problem,
                )
                return _ORPHANED
            assert isinstance(found, CoordinatorConnection)
            refused = await self._speak(found)
            if self._shutdown.done():
                return self._shutdown.result()
            if refused:
                log.error("sent away: %s", refused)
                return _Ending(REFUSED)
            self._disconnected(found)

    async def _speak(self, connection: CoordinatorConnection) -> str:
        """Obey over one connection until it ends; returns why we are not wanted, if so."""
        self._connection = connection
        self._beat_s = connection.welcome.beat_s
        if connection.welcome.time is not None:
            self._container.ahead_s = connection.welcome.time - time.time()
        self._asked_at = None
        self._say_again()
        while True:
            receiving = self._loop.create_task(connection.channel.receive())
            await self._until(receiving, None if connection.near else self._connector)
            lease_over = not receiving.done()
            if lease_over or self._shutdown.done() or self._moved.done():
                receiving.cancel()
                return ""
            command = receiving.result()
            if command is None:
                return ""
            if isinstance(command, Refuse):
                return command.reason
            if (obey := self._on.get(type(command))) is not None:
                obey(command)

    async def _until(self, task: asyncio.Task[Any], leased: Connector | None = None) -> None:
        """Wait for that, for the shutdown, for a newer coordinator, or for the end of the lease."""
        events = {task, self._shutdown, self._moved}
        done: set[Any] = set()
        while not done and (leased is None or leased.lease_left > 0):
            limit_s = None if leased is None else leased.lease_left
            done, _ = await asyncio.wait(
                events, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
            )

    def _coordinator_moved(self, moved: Moved) -> None:
        if self._connector.moved(moved, connected=self._connection is not None):
            log.info("coordinator %d dials from %s:%d", moved.incarnation, moved.host, moved.port)
            if not self._moved.done():
                self._moved.set_result(None)

    def _disconnected(self, connection: CoordinatorConnection) -> None:
        why = connection.channel.problem or "closed by the coordinator"
        log.info("connection lost: %s", why)
        connection.channel.close()
        if connection.near:
            self._connector.heard_at = self._loop.time()  # it broke as soon as its other end did
        self._connection = None
        self._container.followers.leave_all()

    def _hello(self, host: str) -> AgentHello:
        return AgentHello(
            protocol=PROTOCOL,
            job_id=self._launch.job_id,
            container_id=self._launch.container_id,
            host=host,
            pid=os.getpid(),
            listen=self._listener.address,
            held=self._attempt.held() if self._attempt is not None else None,
            secret=self._launch.secret,
        )

    def say(self, message: Any) -> None:
        """Tell the coordinator. What can't arrive now is made up for at the next hello."""
        if isinstance(message, _Repeated):
            self._said.append((self._loop.time(), message))
        self._send(message)

    def _send(self, message: Any) -> None:
        if self._connection is None:
            return
        try:
            self._connection.channel.send(message)
        except FrameError as error:
            log.error("a message could not be sent: %s", error)

    def _say_again(self) -> None:
        assert self._connection is not None
        if self._attempt is not None:
            self._attempt.reconnected()
        for _, message in self._said:
            self._connection.channel.send(message)

    async def _heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            if self._connection is None:
                continue
            beat = self._attempt.heartbeat() if self._attempt is not None else Heartbeat()
            now = self._loop.time()
            pause_s = _RENEWAL_S
            if not self._connection.near:
                pause_s = min(self._connector.lease_s / _RENEWALS, pause_s)
            if self._asked_at is None and now >= self._connector.heard_at + pause_s:
                self._asked_at = now
                beat = replace(beat, renew=True)
            self._send(beat)

    def _heard(self, renewed: LeaseRenewed) -> None:
        if self._asked_at is None:
            return
        self._connector.heard_at = self._asked_at
        while renewed.kept and self._said and self._said[0][0] < self._asked_at:
            self._said.popleft()
        self._asked_at = None

    # -- commands --------------------------------------------------------------------------------

    def _prepare(self, prepare: Prepare) -> None:
        now = self._attempt
        if now is not None and now.task == prepare.task:
            if prepare.attempt == now.attempt:
                now.tell_again()
                return
            if prepare.attempt < now.attempt:
                return
        if self._dropped.get(prepare.task, 0) >= prepare.attempt:
            self._say_dropped(prepare.task, prepare.attempt)
            return
        if now is not None and now.exit is None:
            now.stop(0.0, 0.0)
        prepare = substitute(prepare, self._launch.work_dir)
        self._attempt = Attempt(self._container, prepare, self._attempt_over, before=now)
        if now is not None:
            # Objects of an attempt refer to each other: without this, those of dozens pile up.
            gc.collect()

    def _attempt_over(self, attempt: Attempt) -> None:
        self._log_copies.begin(attempt.task, attempt.attempt)

    def _start(self, start: Start) -> None:
        attempt = self._find(start)
        if attempt is not None:
            # Peers are thousands of addresses, and none is below the container's folder.
            here = substitute(replace(start, peers=()), self._launch.work_dir)
            attempt.start(replace(here, peers=start.peers))

    def _stop(self, stop: StopTask) -> None:
        attempt = self._find(stop)
        if attempt is not None:
            attempt.stop(stop.grace_s, stop.save_s)
            return
        # Lost on its way here, or long over: it will not run, and the coordinator must not wait.
        self._dropped[stop.task] = max(self._dropped.get(stop.task, 0), stop.attempt)
        self._say_dropped(stop.task, stop.attempt)

    def _say_dropped(self, task: Task, attempt: int) -> None:
        exit = Exit(
            signal=signal.SIGTERM, stopped=True, detail="the agent does not hold this attempt"
        )
        self.say(TaskExited(task=task, attempt=attempt, exit=exit))

    def _take_stacks(self, dump: DumpStacks) -> None:
        attempt = self._find(dump)
        if attempt is None:
            problem = "the agent does not hold this attempt"
            self.say(StacksTaken(task=dump.task, attempt=dump.attempt, problem=problem))
            return
        taking = self._loop.create_task(self._stacks(attempt))
        self._tasks.add(taking)
        taking.add_done_callback(self._tasks.discard)

    async def _stacks(self, attempt: Attempt) -> None:
        try:
            self.say(await attempt.take_stacks())
        except Exception as error:  # a defect must not leave the coordinator waiting
            log.exception("stacks could not be taken")
            problem = f"{type(error).__name__}: {error}"
            self.say(StacksTaken(task=attempt.task, attempt=attempt.attempt, problem=problem))

    def _exec(self, dial: DialExec) -> None:
        serving = self._loop.create_task(self._serve_exec(dial))
        self._tasks.add(serving)
        serving.add_done_callback(self._tasks.discard)

    async def _serve_exec(self, dial: DialExec) -> None:
        def environment() -> dict[str, str] | str:
            attempt = self._find(dial)
            return attempt.environment() if attempt else f"{dial.task} has no program running now"

        try:
            channel = await self._connector.another(ToExec)
        except OSError as error:
            log.warning("no connection for a command beside %s: %s", dial.task, error)
            return
        try:
            channel.send(ExecHello(job_id=self._launch.job_id, exec_id=dial.exec_id))
            await self._container.execs.serve(channel, environment, dial.exec_id)
        except (OSError, TimeoutError) as error:
            log.warning("a command beside %s: %s", dial.task, error)
        except Exception:
            log.exception("a command beside %s failed in the agent", dial.task)
        finally:
            channel.close()

    def _request_checkpoint(self, notice: NotifyCheckpoint) -> None:
        attempt = self._find(notice)
        if attempt is not None:
            attempt.request_checkpoint(notice.reason)

    def _replace_credentials(self, credentials: NewCredentials) -> None:
        """Programs, and what copies for us, read the file when they connect."""
        place = os.environ.get(TOKEN_FILE)
        if place is None:
            return
        try:
            write_atomically(Path(place), credentials.file)
        except OSError as error:
            log.warning("new tokens cannot be written to %s: %s", place, error)

    def _follow(self, follow: FollowLog) -> None:
        followers = self._container.followers
        if not follow.on:
            followers.leave(follow.task, follow.attempt)
            return
        assert self._connection is not None
        attempt = self._find(follow)
        followers.follow(
            self._connection.channel,
            follow.task,
            follow.attempt,
            self._container.log_path(follow.task, follow.attempt),
            follow.offset,
            attempt.log_end if attempt is not None else lambda: None,
        )

    def _find(self, command: Any) -> Attempt | None:
        now = self._attempt
        if now is not None and now.task == command.task and now.attempt == command.attempt:
            return now
        return None

    # -- the end ---------------------------------------------------------------------------------

    def _end(self, ending: _Ending) -> None:
        """The agent is to go. Said again, with less grace: that counts."""
        if not self._shutdown.done():
            self._shutdown.set_result(ending)
        elif self._attempt is not None:
            self._attempt.stop(ending.grace_s, ending.save_s)

    async def _leave(self, ending: _Ending) -> None:
        """End what runs, say how it ended, hang up."""
        if self._attempt is not None:
            if self._attempt.exit is None:
                self._attempt.stop(ending.grace_s, ending.save_s)
            await self._attempt.over()
        if self._tasks:  # the ends of commands beside it
            await asyncio.wait(self._tasks, timeout=_GOODBYE_S)
        await self._log_copies.done(_COPYING_S)
        if self._connection is not None:
            channel = self._connection.channel
            with contextlib.suppress(TimeoutError, ChannelClosed):
                async with asyncio.timeout(_GOODBYE_S):
                    await channel.drain()
                    channel.close()
                    await channel.wait_closed()
        gone = asyncio.Event()
        self._children.watch(self._watchdog.pid, lambda _: gone.set())
        self._watchdog.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await gone.wait()

    def _watchdog_ended(self, status: int) -> None:
        log.warning("the watchdog ended with status %d; another one takes its place", status)
        self._watchdog.begin()
        self._children.watch(self._watchdog.pid, self._watchdog_ended)
