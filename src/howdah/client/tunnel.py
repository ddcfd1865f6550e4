"""A port of this machine that leads to a page of a job, through the job's coordinator.

For people who reach the coordinator and nothing else of the cluster. Everything goes over the
client's mTLS connection; the port listens on this machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from howdah.client.errors import HowdahError, Refused
from howdah.client.remote import Remote
from howdah.core.messages import Task
from howdah.storage.jobdir import JobDirectory
from howdah.wire.carrying import carry
from howdah.wire.channel import Channel
from howdah.wire.messages import Answer, OpenTunnel

log = logging.getLogger(__name__)

LOCAL = "127.0.0.1"
ANSWER_S = 15.0


class NoPage(Refused):
    """The task has announced no page (yet), or it does not answer."""


@contextlib.asynccontextmanager
async def tunnel(directory: JobDirectory, task: Task | None, port: int = 0) -> AsyncIterator[int]:
    """Serve a port of this machine that leads to the task's page (None: the job page).

    Gives the port, ``port`` itself where it is not 0. A coordinator that dies meanwhile ends the
    open connections; new ones go through its successor.

    Raises:
        OSError: the port cannot be listened on.
    """
    remote = Remote(directory)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            channel = await _open(remote, task)
            try:
                await carry(channel, reader, writer)
            finally:
                channel.abort()
        except (HowdahError, OSError) as error:
            log.info("a tunnelled connection ended: %s", error)
        finally:
            writer.close()

    server = await asyncio.start_server(connection, LOCAL, port)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def check(directory: JobDirectory, task: Task | None) -> None:
    """See that a tunnel to the task's page (None: the job page) would lead somewhere.

    Raises:
        NoPage: there is none, or it does not answer.
        HowdahError: the job has ended, or has no coordinator.
    """
    (await _open(Remote(directory), task)).abort()


async def wait_for_page(directory: JobDirectory, task: Task, pause_s: float = 0.3) -> None:
    """Wait until the task's page answers.

    Raises:
        HowdahError: the job ended before, or has no coordinator.
    """
    while True:
        try:
            await check(directory, task)
            return
        except (NoPage, OSError):
            await asyncio.sleep(pause_s)


async def _open(remote: Remote, task: Task | None) -> Channel:
    channel = await remote.open()
    if channel is None:
        raise Refused(f"{remote.directory.job_id} has ended")
    try:
        channel.send(OpenTunnel(task=task))
        answer = await channel.receive(ANSWER_S)
        if not isinstance(answer, Answer):
            raise ConnectionError(channel.problem or "the coordinator gave no answer")
        if answer.problem:
            raise NoPage(answer.problem)
    except BaseException:
        channel.abort()
        raise
    return channel
