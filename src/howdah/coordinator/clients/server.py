"""The clients: people's programs that watch the job, ask, stop it, tunnel to its pages, run commands."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from howdah.coordinator.clients import task_pages
from howdah.coordinator.clients.execs import ExecRelay
from howdah.coordinator.clients.live_job import LiveJob
from howdah.coordinator.driver import JobOver
from howdah.coordinator.job_logs import LogFollower
from howdah.wire.channel import Channel
from howdah.wire.messages import (
    PROTOCOL,
    Answer,
    AskStacks,
    AskStatus,
    AskStop,
    ClientHello,
    OpenExec,
    OpenTunnel,
    Refuse,
    StacksReply,
    StatusUpdate,
    Watch,
    Welcome,
)
from howdah.wire.tcp_relay import relay

log: logging.Logger = logging.getLogger(__name__)

RECORDS = 200
"""Records sent before the connection is waited for."""
TUNNELS_S = 2.0
"""For what tunnels still carry when the pages they lead to have ended."""
LOGS = 16
"""Log reads sent before records and status have their turn again."""


class Clients:
    """All connected clients of one job."""

    def __init__(self, job: LiveJob, execs: ExecRelay, welcome: Callable[[], Welcome]) -> None:
        self._job = job
        self._execs = execs
        self._welcome = welcome
        self._watching: set[asyncio.Task[None]] = set()
        self._tunnels: set[asyncio.Task[None]] = set()
        self._open: set[Channel] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, channel: Channel[Any], hello: ClientHello) -> None:
        if reason := self._refusal(channel, hello):
            channel.send(Refuse(reason=reason))
            return
        channel.send(self._welcome())
        self._open.add(channel)
        asking: set[asyncio.Task[None]] = set()
        try:
            while (message := await channel.receive()) is not None:
                if isinstance(message, OpenTunnel):
                    carrying = asyncio.create_task(tunnel(channel, message, self._job))
                    self._tunnels.add(carrying)
                    carrying.add_done_callback(self._tunnels.discard)
                    await carrying
                    return
                if isinstance(message, OpenExec):
                    await self._execs.serve(channel, hello, message)
                    return
                task = asyncio.create_task(self._answer(channel, hello, message))
                for group in (asking, self._watching) if isinstance(message, Watch) else (asking,):
                    group.add(task)
                    task.add_done_callback(group.discard)
        finally:
            self._open.discard(channel)
            for task in asking:
                task.cancel()

    async def finish(self, limit_s: float, page: Sequence[asyncio.Task[None]]) -> None:
        """The job is over: let watchers have the rest, for so long, and end its ``page``; then hang up.

        Readers of the page may come through tunnels: they have the rest, too.
        """
        for task in page:
            task.cancel()
        if rest := {*self._watching, *page}:
            await asyncio.wait(rest, timeout=limit_s)
        if self._tunnels:
            await asyncio.wait(self._tunnels, timeout=TUNNELS_S)
        for channel in list(self._open):
            channel.close()

    def _refusal(self, channel: Channel[Any], hello: ClientHello) -> str:
        job_id = self._job.job_id
        if hello.job_id != job_id or not channel.peer.is_of(job_id):
            return f"this is the coordinator of {job_id}, not of {hello.job_id}"
        if hello.protocol[0] != PROTOCOL[0]:
            return (
                f"the client speaks protocol {hello.protocol[0]}.{hello.protocol[1]}, the "
                f"coordinator {PROTOCOL[0]}.{PROTOCOL[1]}; use the Howdah the job was submitted with"
            )
        return ""

    async def _stop(self, hello: ClientHello, message: AskStop) -> str:
        """Why the job will not be stopped; one that has ended stays as it is, which is no problem."""
        try:
            await self._job.stop(
                message.by or hello.user or "a client", message.reason, message.firm
            )
        except JobOver as error:
            return "" if self._job.view().outcome is not None else str(error)
        return ""

    async def _answer(self, channel: Channel[Any], hello: ClientHello, message: object) -> None:
        try:
            await self._answers(channel, hello, message)
        except ConnectionError:
            pass  # it went away
        except Exception as error:  # a defect of ours must not leave a client waiting
            log.exception("a %s could not be answered", type(message).__name__)
            channel.send(Refuse(reason=f"the coordinator failed: {type(error).__name__}: {error}"))
            channel.close()

    async def _answers(self, channel: Channel[Any], hello: ClientHello, message: object) -> None:
        job = self._job
        match message:
            case Watch():
                await Watcher(channel, message, job).run()
            case AskStatus():
                await job.read_last_lines()
                channel.send(StatusUpdate(status=job.status.json()))
                await channel.drain()
            case AskStop():
                channel.send(Answer(problem=await self._stop(hello, message)))
                await channel.drain()
            case AskStacks():
                try:
                    reply = StacksReply(task=message.task, text=await job.stacks(message.task))
                except (LookupError, RuntimeError) as error:
                    reply = StacksReply(task=message.task, problem=str(error))
                channel.send(reply)
                await channel.drain()
            case _:
                channel.send(Refuse(reason=f"a client does not send {type(message).__name__} now"))
                channel.close()


class Watcher:
    """Serves one `Watch` request: every record once, logs, and the status document now and then.

    It takes what it sends from the event log, the logs and the status at its own pace and waits for
    its connection to take it: a slow client holds nothing in memory and delays no other.
    """

    def __init__(self, channel: Channel[Any], watch: Watch, job: LiveJob) -> None:
        self._channel = channel
        self._watch = watch
        self._job = job
        self._wake = asyncio.Event()
        self._seq = watch.after_seq
        self._version = -1
        self._next_status = 0.0

    async def run(self) -> None:
        """Send until everything of a finished job has been sent."""
        wake = self._wake.set
        with (
            self._job.events.grown.calling(wake),
            self._job.status.changed.calling(wake),
            self._follow() as follower,
        ):
            while True:
                # Read before anything is sent: what comes after this is sent in one more round.
                finished = self._job.finished.is_set()
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
        updates = self._job.events.after(self._seq, RECORDS)
        for update in updates:
            self._channel.send(update)
            self._seq = update.seq
        if updates:
            await self._channel.drain()
        return bool(updates)

    async def _some_logs(self, follower: LogFollower) -> bool:
        for _ in range(LOGS):
            update = await follower.next()
            if update is None:
                return follower.waiting
            self._channel.send(update)
            await self._channel.drain()
        return True

    async def _status_if_due(self) -> float | None:
        """Send the status if it changed; how long until it may be sent, None if it is sent."""
        if self._version == self._job.status.version:
            return None
        wait_s = self._next_status - asyncio.get_running_loop().time()
        if wait_s > 0:
            return wait_s
        await self._send_status()
        return None

    async def _send_status(self) -> None:
        status = self._job.status
        self._version = status.version
        self._channel.send(StatusUpdate(status=status.json()))
        await self._channel.drain()
        self._next_status = asyncio.get_running_loop().time() + status.pace_s

    async def _sleep(self, limit_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()

    def _follow(self) -> contextlib.AbstractContextManager[LogFollower | None]:
        watch, logs = self._watch, self._job.logs
        if not watch.logs:
            return contextlib.nullcontext()
        offsets = {(task, attempt): offset for task, attempt, offset in watch.offsets}

        wanted = frozenset(watch.tasks)
        return logs.following(
            watch.tasks or self._job.tasks(),
            self._wake.set,
            wants=lambda task, attempt: not wanted or task in wanted,
            start=lambda task, attempt: offsets.get((task, attempt), 0),
        )


async def tunnel(channel: Channel[Any], wanted: OpenTunnel, job: LiveJob) -> None:
    """Carry a client's connection to a page of the job, until both sides have ended.

    For people who reach the coordinator and nothing else of the cluster, and for pages that have no
    lock of their own. Only announced pages and the job page are reached, never an address a client
    names. One connection of a client is one TCP connection; an empty `TunnelData` is its end.
    """
    try:
        if wanted.task is None:
            reader, writer = await task_pages.connected("the job page", *job.own_address())
            path = "/"
        else:
            page = job.page_of(wanted.task)
            reader, writer = await task_pages.connect(page)
            path = task_pages.entry(page)
    except (LookupError, task_pages.PageUnreachable) as error:
        await _refuse_tunnel(channel, str(error.args[0]))
        return
    channel.send(Answer(path=path))
    await relay(channel, reader, writer)


async def _refuse_tunnel(channel: Channel[Any], problem: str) -> None:
    channel.send(Answer(problem=problem))
    await channel.drain()
