"""Authorities, servers and peers for the tests of channels."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, TypeVar

from howdah.wire import authority
from howdah.wire.channel import Channel, connect, serve
from howdah.wire.messages import AgentHello, FromAgent, FromClient, Heartbeat, ToAgent, Welcome
from howdah.wire.tls import PeerRole, client_context, server_context

JOB = "digits-20261121-143502-k3f9"
OTHER_JOB = "digits-20261121-143502-zzzz"

RECEIVES = {PeerRole.AGENT: FromAgent, PeerRole.CLIENT: FromClient}

DEADLINE_S = 20.0

T = TypeVar("T")


@cache
def secrets_of(job_id: str, run: str = "") -> Path:
    """The secrets of a job, made once a test run; ``run`` makes another authority for the id."""
    folder = Path(mkdtemp(prefix="hwt-wire-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    authority.create(job_id, folder / "secrets")
    return folder / "secrets"


def hello(pid: int = 1) -> AgentHello:
    return AgentHello(job_id=JOB, container_id="c1", host="here", pid=pid)


def run(body: Awaitable[T]) -> T:
    """Run a test's body on a fresh loop, with a deadline."""

    async def main() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await body

    return asyncio.run(main())


async def greet(channel: Channel[Any]) -> None:
    """A coordinator's simplest handler: welcomes, then answers each beat by its attempt."""
    first = await channel.receive()
    channel.send(Welcome(incarnation=getattr(first, "pid", 0)))
    while (message := await channel.receive()) is not None:
        if isinstance(message, Heartbeat):
            channel.send(Welcome(incarnation=message.attempt))


@contextlib.asynccontextmanager
async def serving(
    handler: Callable[[Channel[Any]], Awaitable[None]] = greet, **options: Any
) -> AsyncIterator[int]:
    """The port of a coordinator of `JOB`."""
    options.setdefault("receives", RECEIVES)
    server = await serve(handler, "127.0.0.1", 0, server_context(secrets_of(JOB)), **options)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def agent(port: int, **options: Any) -> Channel[Any]:
    """An agent of `JOB`."""
    options.setdefault("receives", ToAgent)
    context = client_context(secrets_of(JOB), "agent")
    return await connect("127.0.0.1", port, context, job_id=JOB, **options)


async def lives(channel: Channel[Any], number: int = 7) -> bool:
    """Whether messages still go both ways on a channel that `greet` serves."""
    channel.send(Heartbeat(attempt=number))
    answer = await channel.receive(timeout_s=DEADLINE_S)
    return isinstance(answer, Welcome) and answer.incarnation == number
