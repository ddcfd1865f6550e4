"""A port of this machine that leads to a page of a job, through the job's coordinator.

For people who reach the coordinator and nothing else of the cluster. Everything goes over the
client's mTLS connection. The port listens on this machine only, and on Linux serves programs of its
own user (and root) alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator

from howdah.agent.host.processes import HAS_PROC
from howdah.agent.host.socket_owners import far_uid
from howdah.client.errors import HowdahError, Refused
from howdah.client.following.remote import Remote
from howdah.core.messages import Task
from howdah.storage.jobdir import JobDirectory
from howdah.wire.channel import Channel
from howdah.wire.messages import Answer, OpenTunnel
from howdah.wire.tcp_relay import relay

log: logging.Logger = logging.getLogger(__name__)

LOCAL = "127.0.0.1"
LOOPBACK = frozenset({LOCAL, "::1", "localhost"})
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
    open_: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(connection(reader, writer))
        open_.add(task)
        task.add_done_callback(open_.discard)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A program that has hung up already is nobody's, and waits for no answer.
        uid = far_uid(writer.get_extra_info("socket"))
        if HAS_PROC and uid not in (0, os.getuid()):
            log.warning("a program of user %s connected to the tunnel and was refused", uid)
            writer.transport.abort()
            return
        try:
            channel, _ = await _open(remote, task)
            try:
                await relay(channel, reader, writer)
            finally:
                channel.abort()
        except (HowdahError, OSError) as error:
            log.info("a tunnelled connection ended: %s", error)
        finally:
            writer.close()

    server = await asyncio.start_server(accept, LOCAL, port)
    try:
        async with server:
            yield server.sockets[0].getsockname()[1]
    finally:
        # One may wait for a coordinator that never comes.
        for each in open_:
            each.cancel()


async def check(directory: JobDirectory, task: Task | None) -> str:
    """Where to begin at the end of a tunnel to the task's page (None: the job page): a path, with
    what lets its owner in.

    Raises:
        NoPage: there is none, or it does not answer.
        HowdahError: the job has ended, or has no coordinator.
    """
    channel, path = await _open(Remote(directory), task)
    channel.abort()
    return path


async def wait_for_page(directory: JobDirectory, task: Task, pause_s: float = 0.3) -> str:
    """Wait until the task's page answers; where to begin, as `check` gives it.

    Raises:
        HowdahError: the job ended before, or has no coordinator.
    """
    while True:
        try:
            return await check(directory, task)
        except (NoPage, OSError):
            await asyncio.sleep(pause_s)


async def _open(remote: Remote, task: Task | None) -> tuple[Channel, str]:
    channel = await remote.open()
    if channel is None:
        job_id = remote.directory.job_id
        raise Refused(
            f"{job_id} has ended, and its pages with it; `howdah page {job_id}` shows what is kept"
        )
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
    return channel, answer.path


def local_base(job_id: str, port: int) -> str:
    """The address of a port of this machine that serves one job.

    Cookies know hosts and no ports: below a host name of its own (browsers take all of ``.localhost``
    for this machine, RFC 6761 6.3) a job's cookies go to that job alone. A job id is a DNS label.
    """
    return f"http://{job_id}.localhost:{port}"


def page_base(job_id: str, host: str, port: int) -> str:
    """The address of a job's page, where its coordinator is at that host and port."""
    if host in LOOPBACK:
        return local_base(job_id, port)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
