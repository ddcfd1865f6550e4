"""Connections that prove nothing, in number, held against one port.

usage: python -m benchmarks.strangers HOST PORT COUNT

In turn they say nothing, one byte a second of a TLS handshake, half a handshake, half an HTTP request,
and one request that is refused followed by half another. One that is cut off comes again after some
seconds. Said on standard output when standard input ends: how many connections were made.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import resource
import ssl
import sys

AGAIN_S = 5.0
"""Until one that was cut off comes again: with 10,000 that is up to 2,000 a second."""
DIALLING = 500
"""At once."""


def client_hello() -> bytes:
    """The first flight of a TLS client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    talk = context.wrap_bio(ssl.MemoryBIO(), out)
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return out.read()


_HELLO = client_hello()
_HALF = b"GET /api/v1/job HTTP/1.1\r\nHost: localhost\r\nX-A: "
FIRST = (b"", _HELLO[:1], _HELLO, _HALF, b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n" + _HALF)
SLOW = 1
"""Index of the one that sends a byte a second."""


class Flood(asyncio.Protocol):
    """One of them."""

    def __init__(self, kind: int, over: asyncio.Future[None]) -> None:
        self._kind = kind
        self._over = over
        self._sent = 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        if FIRST[self._kind]:
            transport.write(FIRST[self._kind])
        if self._kind == SLOW:
            self._drip(transport)

    def _drip(self, transport: asyncio.Transport) -> None:
        if not transport.is_closing() and self._sent < len(_HELLO) - 1:
            transport.write(_HELLO[self._sent : self._sent + 1])
            self._sent += 1
            asyncio.get_running_loop().call_later(1.0, self._drip, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(None)


async def main(host: str, port: str, count: str) -> None:
    """Hold them until standard input ends."""
    loop = asyncio.get_running_loop()
    dialling = asyncio.Semaphore(DIALLING)
    made = 0

    async def hold(kind: int) -> None:
        nonlocal made
        await asyncio.sleep(random.random())
        while True:
            over: asyncio.Future[None] = loop.create_future()
            with contextlib.suppress(OSError):
                async with dialling:
                    flood = functools.partial(Flood, kind, over)
                    await loop.create_connection(flood, host, int(port))
                made += 1
                await over
            await asyncio.sleep(AGAIN_S * random.uniform(0.8, 1.2))

    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(0, lambda: ended.done() or ended.set_result(None))
    holding = [loop.create_task(hold(number % len(FIRST))) for number in range(int(count))]
    await ended
    for task in holding:
        task.cancel()
    print(made, flush=True)


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(main(*sys.argv[1:]))
