"""Stand-ins for coordinators: real TLS channels, and a script of what they say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from howdah.core.messages import Record, Task
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress, JobMeta
from howdah.wire import authority
from howdah.wire.channel import Channel, serve
from howdah.wire.messages import (
    ClientHello,
    FromClient,
    LogUpdate,
    Message,
    RecordUpdate,
    StatusUpdate,
    Welcome,
)
from howdah.wire.status import JobView
from howdah.wire.tls import server_context

JOB_ID = "digits-20270115-080000-k3f9"
WORKER = Task("worker", 0)

VIEW = JobView(
    job_id=JOB_ID,
    name="digits",
    framework="command",
    user="ada",
    backend="local",
    phase="running",
)
FINAL = msgspec.structs.replace(
    VIEW, phase="finished", outcome="succeeded", exit_code=0, finished=2.0
)


def job_directory(folder: Path) -> JobDirectory:
    """A complete job directory, secrets and all, that nobody runs."""
    directory = JobDirectory(folder / JOB_ID)
    job = Job(name="digits", command="true", roles={"worker": Role(instances=2)})
    meta = JobMeta(job_id=JOB_ID, user="ada", backend="local", submitted=time.time())
    directory.create(job, meta)
    authority.create(JOB_ID, directory.secrets)
    return directory


def record(seq: int, text: str = "") -> RecordUpdate:
    return RecordUpdate(seq=seq, time=float(seq), record=Record(kind="test", text=text or str(seq)))


def log(offset: int, data: bytes, task: Task = WORKER, attempt: int = 1) -> LogUpdate:
    return LogUpdate(task=task, attempt=attempt, offset=offset, data=data)


def status(view: JobView = VIEW) -> StatusUpdate:
    return StatusUpdate(status=msgspec.json.encode(view))


class Client:
    """The client's end as the stand-in sees it."""

    def __init__(self, channel: Channel[Any]) -> None:
        self._channel = channel

    async def receive(self) -> Any:
        return await self._channel.receive(10)

    async def say(self, *messages: Message) -> None:
        for message in messages:
            self._channel.send(message)
            await self._channel.drain()

    async def until_gone(self) -> None:
        while await self._channel.receive() is not None:
            pass


@contextlib.asynccontextmanager
async def coordinator(
    directory: JobDirectory,
    serve_client: Callable[[Client], Awaitable[None]],
    *,
    incarnation: int = 1,
    greet: bool = True,
    http_port: int = 0,
    ahead_s: float = 0.0,
) -> AsyncIterator[None]:
    """A coordinator at the job directory's address; each client is greeted and then served.

    ``ahead_s``: how far its clock is ahead of the client's.
    """

    async def handle(channel: Channel[Any]) -> None:
        client = Client(channel)
        hello = await client.receive()
        assert isinstance(hello, ClientHello) and hello.job_id == JOB_ID
        if greet:
            await client.say(Welcome(incarnation=incarnation, time=time.time() + ahead_s))
        await serve_client(client)

    context = server_context(directory.secrets, "coordinator")
    server = await serve(handle, "127.0.0.1", 0, context, receives={"client": FromClient})
    port = server.sockets[0].getsockname()[1]
    directory.write_coordinator(
        CoordinatorAddress(
            incarnation=incarnation,
            host="127.0.0.1",
            port=port,
            http_port=http_port,
            pid=os.getpid(),
        )
    )
    try:
        yield
    finally:
        server.close()
        await asyncio.sleep(0)
