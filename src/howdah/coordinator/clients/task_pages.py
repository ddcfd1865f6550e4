"""Connections to the pages that tasks announce: to the task itself, or not at all."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

from howdah.agent.host.socket_owners import can_be_told, far_uid
from howdah.wire.messages import WebAddress

CONNECT_S = 5.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class PageUnreachable(Exception):
    """The announced program does not answer; the text says how."""


async def connect(page: WebAddress) -> Connection:
    """A connection to a task's page.

    Its agent sees to it that only pages of the task's own are announced. On the coordinator's machine
    the other end is looked up as well: it must be the agent's user's.

    Raises:
        Unreachable: nobody answers there, or somebody else.
    """
    reader, writer = await connected(f"{page.task}'s {page.name}", page.host, page.port)
    link = writer.get_extra_info("socket")
    uid = far_uid(link)
    if page.uid is None or uid == page.uid:
        return reader, writer
    if uid is None and can_be_told(link):
        # It may have left an answer of its own behind, which nobody asked for.
        writer.transport.abort()
        raise PageUnreachable(f"{page.task}'s {page.name} hung up before it was asked for anything")
    if uid is not None:
        writer.transport.abort()
        raise PageUnreachable(
            f"at {page.host}:{page.port}, where {page.task} announced {page.name}, a process of user "
            f"{uid} listens now, which is not the job's"
        )
    return reader, writer


async def connected(what: str, host: str, port: int) -> Connection:
    """A connection to whoever listens there.

    Raises:
        Unreachable: nobody does.
    """
    try:
        async with asyncio.timeout(CONNECT_S):
            return await asyncio.open_connection(host, port)
    except OSError as error:  # TimeoutError is one
        words = error.strerror or str(error) or "no answer"
        raise PageUnreachable(
            f"{what} does not answer at {host}:{port} ({words}); it may still be starting, or have "
            "ended"
        ) from error


def prefix_of(task: object) -> str:
    """Where a task's page is below the job page: no slash at the end."""
    return f"/proxy/{task}"


def entry(page: WebAddress) -> str:
    """Where its owner begins at the page's own port, with the secret it demands."""
    path = (prefix_of(page.task) if page.keeps_prefix else "") + "/" + page.path.lstrip("/")
    if not page.secret:
        return path
    return f"{path}{'&' if '?' in path else '?'}token={quote(page.secret)}"
