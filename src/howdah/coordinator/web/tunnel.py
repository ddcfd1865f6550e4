"""Websockets of proxied programs (notebooks need them): bytes passed on both ways, unread.

The HTTP server hands over a connection whose request asks for an upgrade. The request is let in by
the same rules as any other, its head is rewritten as `proxy` rewrites it, and from then on the two
sides talk by themselves. No websocket library is needed for that.
"""

from __future__ import annotations

import asyncio
import contextlib
from urllib.parse import unquote

from howdah.coordinator.web import proxy, security
from howdah.coordinator.web.gate import Gate
from howdah.wire.messages import WebAddress

HEAD_S = 30.0
_KEPT = ("connection", "upgrade")


class Tunnels:
    """All open tunnels of a server.

    Args:
        gate: lets requests in.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._open: set[asyncio.Task[None]] = set()

    def protocol(self, **_: object) -> asyncio.StreamReaderProtocol:
        """What the HTTP server gives the connection to; it then feeds the request's head again."""
        reader = asyncio.StreamReader(limit=proxy.HEAD_MAX)
        return asyncio.StreamReaderProtocol(reader, self._start)

    def close(self) -> None:
        """End them all."""
        for task in self._open:
            task.cancel()

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._run(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A peer that vanishes ends its own tunnel only.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            try:
                async with asyncio.timeout(HEAD_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                await self._connect(head, reader, writer)
            except security.Refusal as refusal:
                writer.write(_answer(refusal.status, refusal.message))
                await writer.drain()
            finally:
                writer.close()

    async def _connect(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        request, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = request.split(" ", 2)
        pairs = [
            (name.strip().encode("latin-1"), value.strip().encode("latin-1"))
            for name, _, value in (line.partition(":") for line in lines if line)
        ]
        self._gate.admit(security.headers_of(pairs), method, stream=True)
        task, rest, address = self._target(target)
        path, _, query = rest.partition("?")
        peer = writer.get_extra_info("peername")
        passed = proxy.upward_headers(pairs, client=str(peer[0]) if peer else "", keep=_KEPT)
        try:
            async with asyncio.timeout(proxy.CONNECT_S):
                far_reader, far_writer = await asyncio.open_connection(address.host, address.port)
        except (OSError, TimeoutError) as problem:
            raise security.Refusal(
                502, f"{task} does not answer at {address.host}:{address.port}"
            ) from problem
        try:
            up = proxy.target_path(path, query, task, address)
            far_writer.write(f"{method} {up} HTTP/1.1\r\n".encode("latin-1"))
            far_writer.writelines(name + b": " + value + b"\r\n" for name, value in passed)
            far_writer.write(b"\r\n")
            await _both_ways((reader, writer), (far_reader, far_writer))
        finally:
            far_writer.close()

    def _target(self, target: str) -> tuple[str, str, WebAddress]:
        path, mark, query = target.partition("?")
        root, _, below = path.lstrip("/").partition("/")
        name, slash, rest = below.partition("/")
        task = unquote(name)
        address = self._gate.source.web_targets().get(task)
        if root != "proxy" or address is None:
            raise security.Refusal(404, f"there is no websocket at {path[:200]!r}")
        return task, slash + rest + mark + query, address


async def _both_ways(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Pass bytes on until either side ends."""
    sides = {
        asyncio.ensure_future(_pass_on(near[0], far[1])),
        asyncio.ensure_future(_pass_on(far[0], near[1])),
    }
    try:
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for side in sides:
            side.cancel()
        await asyncio.gather(*sides, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(proxy.CHUNK):
        writer.write(data)
        await writer.drain()


def _answer(status: int, text: str) -> bytes:
    body = text.encode()
    return (
        f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode("latin-1") + body
