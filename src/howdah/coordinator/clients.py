"""The clients: people's programs that watch the job, ask, and stop it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from howdah.coordinator import tunnels
from howdah.coordinator.watcher import Watcher
from howdah.core.messages import Task
from howdah.wire.channel import Channel
from howdah.wire.messages import (
    PROTOCOL,
    Answer,
    AskStacks,
    AskStatus,
    AskStop,
    ClientHello,
    OpenTunnel,
    Refuse,
    StacksReply,
    StatusUpdate,
    Watch,
    Welcome,
)

log = logging.getLogger(__name__)


class ForClients(Protocol):
    """What clients can have of the coordinator."""

    job_id: str

    def welcome(self) -> Welcome: ...
    def status_json(self) -> bytes: ...
    def watcher(self, channel: Channel, watch: Watch) -> Watcher: ...
    def tunnel_target(self, task: Task | None) -> tuple[str, int]: ...
    async def stop(self, by: str, reason: str, firm: bool) -> None: ...
    async def stacks(self, task: Task) -> str:
        """Raises LookupError or RuntimeError with words for the user."""
        ...


class Clients:
    """All connected clients of one job."""

    def __init__(self, service: ForClients) -> None:
        self._service = service
        self._watching: set[asyncio.Task[None]] = set()
        self._open: set[Channel] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def serve(self, channel: Channel, hello: ClientHello) -> None:
        """Speak with one client until it goes."""
        if reason := self._refusal(channel, hello):
            channel.send(Refuse(reason=reason))
            return
        channel.send(self._service.welcome())
        self._open.add(channel)
        asking: set[asyncio.Task[None]] = set()
        try:
            while (message := await channel.receive()) is not None:
                if isinstance(message, OpenTunnel):
                    await tunnels.serve(channel, message, self._service)
                    return
                task = asyncio.create_task(self._answer(channel, hello, message))
                for group in (asking, self._watching) if isinstance(message, Watch) else (asking,):
                    group.add(task)
                    task.add_done_callback(group.discard)
        finally:
            self._open.discard(channel)
            for task in asking:
                task.cancel()

    async def finish(self, limit_s: float) -> None:
        """The job is over: let watchers have the rest, for so long; then hang up."""
        if self._watching:
            await asyncio.wait(self._watching, timeout=limit_s)
        for channel in list(self._open):
            channel.close()

    def _refusal(self, channel: Channel, hello: ClientHello) -> str:
        if not hello.job_id == channel.peer.job_id == self._service.job_id:
            return f"this is the coordinator of {self._service.job_id}, not of {hello.job_id}"
        if hello.protocol[0] != PROTOCOL[0]:
            return (
                f"the client speaks protocol {hello.protocol[0]}.{hello.protocol[1]}, the "
                f"coordinator {PROTOCOL[0]}.{PROTOCOL[1]}; use the Howdah the job was submitted with"
            )
        return ""

    async def _answer(self, channel: Channel, hello: ClientHello, message: object) -> None:
        try:
            await self._answers(channel, hello, message)
        except ConnectionError:
            pass  # it went away
        except Exception as error:  # a defect of ours must not leave who asked waiting
            log.exception("a %s could not be answered", type(message).__name__)
            channel.send(Refuse(reason=f"the coordinator failed: {type(error).__name__}: {error}"))
            channel.close()

    async def _answers(self, channel: Channel, hello: ClientHello, message: object) -> None:
        service = self._service
        match message:
            case Watch():
                await service.watcher(channel, message).run()
            case AskStatus():
                channel.send(StatusUpdate(status=service.status_json()))
                await channel.drain()
            case AskStop():
                problem = await _problem(
                    service.stop(hello.user or "a client", message.reason, message.firm)
                )
                channel.send(Answer(problem=problem))
                await channel.drain()
            case AskStacks():
                try:
                    reply = StacksReply(task=message.task, text=await service.stacks(message.task))
                except (LookupError, RuntimeError) as error:
                    reply = StacksReply(task=message.task, problem=str(error))
                channel.send(reply)
                await channel.drain()
            case _:
                channel.send(Refuse(reason=f"a client does not send {type(message).__name__} now"))
                channel.close()


async def _problem(request: Awaitable[None]) -> str:
    try:
        await request
    except RuntimeError as error:
        return str(error)
    return ""
