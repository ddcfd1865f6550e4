"""The connection to a job's coordinator, and following a job through the death of one.

A coordinator may be killed and replaced at any time; its successor writes its own address into the
job directory. Whoever follows reads that again, says what it has seen, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import time
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import msgspec

from howdah.client import past
from howdah.client.errors import Abandoned, Refused, Unreachable
from howdah.client.liveness import Running, running
from howdah.client.merge import Position, Stream
from howdah.core.events import Task
from howdah.core.states import JobPhase
from howdah.core.view import JobView
from howdah.storage.jobdir import JobDirectory, user_name
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.channel import Channel, ChannelClosed, connect
from howdah.wire.messages import (
    ClientHello,
    LogUpdate,
    Message,
    RecordUpdate,
    Refuse,
    StatusUpdate,
    ToClient,
    Watch,
    Welcome,
)
from howdah.wire.tls import PeerRole, client_context

CONNECT_S = 5.0
"""For one connection: a coordinator that accepts and does not greet is as good as dead."""
LOOK_S = (0.005, 0.25)
"""Pauses between two looks for a coordinator: at first, when one is about to come, and in the end."""
EAGER_S = 1.0
"""How long it is looked for eagerly."""
PATIENCE_S = 1.0
"""Without a coordinator this long, whoever follows is told."""
ABANDONED_S = 5.0
"""A job without coordinator and without node daemon this long is run by nobody."""
FULL = 1 << 20
"""Bytes; a disk with less is full."""
LAST_WORDS_S = 5.0
"""A finished job's coordinator hangs up within this."""

M = TypeVar("M", bound=Message)


class Link(msgspec.Struct, frozen=True):
    """The connection to the coordinator broke, or there is one again."""

    incarnation: int | None
    """Of the coordinator that answers now; None while none does."""


Update = RecordUpdate | LogUpdate | JobView | Link


class Remote:
    """One job's coordinator, whichever it is at the moment."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory
        self._context: ssl.SSLContext | None = None

    async def follow(
        self, position: Position, *, logs: bool = True, tasks: Iterable[Task] = ()
    ) -> AsyncIterator[Update]:
        """Everything after ``position`` as it happens, until the job has ended.

        Records come once and in order, log bytes once and in order within each attempt; the last
        item is the final `JobView`. Not guaranteed: the order between records and logs.

        Raises:
            Unreachable: nobody runs the job any more.
            Refused: the coordinator does not speak to us.
        """
        wanted = tuple(tasks)
        met, away = False, False
        while True:
            reaching = asyncio.ensure_future(self._reach())
            try:
                await asyncio.wait({reaching}, timeout=PATIENCE_S)
                if met and not away and not reaching.done():
                    away = True
                    yield Link(None)
                channel = await reaching
            finally:
                reaching.cancel()
            if channel is None:
                break
            try:
                incarnation = await self._greet(channel)
                met = True
                if away:
                    away = False
                    yield Link(incarnation)
                channel.send(_watch(position, logs, wanted))
                async for update in _updates(channel, position):
                    yield update
            except OSError:
                pass  # it died while we spoke: its successor is looked for
            finally:
                channel.abort()
        for update in past.rest(self.directory, position, logs=logs, tasks=wanted):
            yield update
        final = self.directory.final()
        assert final is not None
        yield final

    async def ask(self, request: Message, reply: type[M], *, within_s: float = 30.0) -> M | None:
        """Send one request and wait for its answer; None if the job has ended instead.

        A coordinator that dies meanwhile is asked again in its successor: requests may be repeated.

        Raises:
            Unreachable: nobody answered within ``within_s``.
            Refused: the coordinator does not speak to us.
        """
        try:
            async with asyncio.timeout(within_s):
                while (channel := await self._reach()) is not None:
                    try:
                        await self._greet(channel)
                        channel.send(request)
                        while (message := await _receive(channel)) is not None:
                            if isinstance(message, reply):
                                return message
                    except OSError:
                        pass  # asked again
                    finally:
                        channel.abort()
                return None
        except TimeoutError:
            raise Unreachable(
                f"the coordinator of {self.directory.job_id} did not answer within {within_s:g}s; "
                "try again, and look into "
                f"{self.directory.logs / 'coordinator.log'} if it stays silent"
            ) from None

    async def _reach(self) -> Channel[ToClient] | None:
        """A connection to the present coordinator, or None once the job has ended."""
        began = time.monotonic()
        abandoned_since: float | None = None
        while self.directory.final() is None:
            address = self.directory.coordinator()
            if address is not None:
                with contextlib.suppress(OSError):
                    return await self._connect(address)
            if running(self.directory) is not Running.NO:
                abandoned_since = None
            elif abandoned_since is None:
                abandoned_since = time.monotonic()
            elif time.monotonic() - abandoned_since > ABANDONED_S:
                raise Abandoned(_abandoned(self.directory))
            await asyncio.sleep(LOOK_S[time.monotonic() - began > EAGER_S])
        return None

    async def _connect(self, address: CoordinatorAddress) -> Channel[ToClient]:
        if self._context is None:
            self._context = client_context(self.directory.secrets, PeerRole.CLIENT)
        return await connect(
            address.host,
            address.port,
            self._context,
            job_id=self.directory.job_id,
            receives=ToClient,
            timeout_s=CONNECT_S,
        )

    async def _greet(self, channel: Channel[ToClient]) -> int:
        """Introduce ourselves; the coordinator's incarnation."""
        channel.send(ClientHello(job_id=self.directory.job_id, user=user_name()))
        answer = await channel.receive(CONNECT_S)
        if isinstance(answer, Refuse):
            raise Refused(f"the coordinator of {self.directory.job_id} says: {answer.reason}")
        if not isinstance(answer, Welcome):
            raise ChannelClosed(channel.problem or "the coordinator did not greet")
        return answer.incarnation


def _watch(position: Position, logs: bool, tasks: tuple[Task, ...]) -> Watch:
    offsets = tuple((s.task, s.attempt, offset) for s, offset in position.offsets.items())
    return Watch(after_seq=position.seq, logs=logs, tasks=tasks, offsets=offsets)


async def _updates(channel: Channel[ToClient], position: Position) -> AsyncIterator[Update]:
    """What the coordinator sends until it hangs up, without what has been seen."""
    limit_s = None
    while (message := await _receive(channel, limit_s)) is not None:
        if isinstance(message, RecordUpdate):
            if position.is_new_record(message.seq):
                yield message
        elif isinstance(message, LogUpdate):
            stream = Stream(message.task, message.attempt)
            offset, data = position.new_bytes(stream, message.offset, message.data)
            if data:
                yield msgspec.structs.replace(message, offset=offset, data=data)
        elif isinstance(message, StatusUpdate):
            view = msgspec.json.decode(message.status, type=JobView)
            if view.phase == JobPhase.FINISHED.value:
                limit_s = LAST_WORDS_S  # and the last word is the job directory's
            else:
                yield view


async def _receive(channel: Channel[ToClient], limit_s: float | None = None) -> ToClient | None:
    """The next message; a refusal is raised."""
    message = await channel.receive(limit_s)
    if isinstance(message, Refuse):
        raise Refused(f"the coordinator says: {message.reason}")
    return message


def _abandoned(directory: JobDirectory) -> str:
    resume = " --resume" if directory.job().checkpoint is not None else ""
    rerun = f"howdah rerun {directory.job_id}{resume}"
    return (
        f"nobody runs {directory.job_id} any more: neither its coordinator nor its node daemon is "
        f"alive ({_likely(directory)}). To go on where it was: howdah attach --revive "
        f"{directory.job_id}; to begin anew: {rerun}. What it left is in {directory.path}"
    )


def _likely(directory: JobDirectory) -> str:
    """Why both may have gone. What runs a job ends when it can't write the journal."""
    free = shutil.disk_usage(directory.path).free
    if free < FULL:
        return f"the disk is full: {free >> 10} KiB are free; make room first"
    return "did the machine restart?"
