"""Tunnels: a client's connection carried to a page of the job, over the client's own mTLS.

For people who reach the coordinator and nothing else of the cluster, and for pages that have no
lock of their own. Only announced pages and the job page are reached, never an address a client
names. One connection of a client is one TCP connection; an empty `TunnelData` is its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import urlsplit

from howdah.core.messages import Task
from howdah.wire.carrying import carry
from howdah.wire.channel import Channel
from howdah.wire.messages import Answer, OpenTunnel, WebAddress

CONNECT_S = 10.0


class Targets(Protocol):
    """Where pages are."""

    def tunnel_target(self, task: Task | None) -> tuple[str, int]:
        """Address of the task's announced page, or of the job page.

        Raises:
            LookupError: there is none, with words for the user.
        """
        ...


def target(
    pages: Mapping[Task, WebAddress], page: str | None, task: Task | None
) -> tuple[str, int]:
    """The address of a task's announced page, or of the job page at the URL ``page``.

    Raises:
        LookupError: there is none (yet), with words for the user.
    """
    if task is None:
        parts = urlsplit(page or "")
        if parts.hostname is None or parts.port is None:
            raise LookupError("the job page is not up yet; try again in a moment")
        return parts.hostname, parts.port
    address = pages.get(task)
    if address is None:
        known = ", ".join(str(each) for each in sorted(pages)) or "none so far"
        raise LookupError(f"{task} has announced no page; tasks that have: {known}")
    return address.host, address.port


async def serve(channel: Channel, wanted: OpenTunnel, targets: Targets) -> None:
    """Answer the request, then carry bytes both ways until both sides have ended."""
    try:
        host, port = targets.tunnel_target(wanted.task)
    except LookupError as error:
        await _refuse(channel, str(error.args[0]))
        return
    try:
        async with asyncio.timeout(CONNECT_S):
            reader, writer = await asyncio.open_connection(host, port)
    except OSError as error:  # TimeoutError is one
        what = wanted.task or "the job page"
        words = error.strerror or str(error) or type(error).__name__
        await _refuse(channel, f"{what} does not answer at {host}:{port}: {words}")
        return
    channel.send(Answer())
    await carry(channel, reader, writer)


async def _refuse(channel: Channel, problem: str) -> None:
    channel.send(Answer(problem=problem))
    await channel.drain()
