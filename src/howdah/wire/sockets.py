"""Listening sockets with asyncio's own TLS, at a fraction of its memory.

asyncio keeps a buffer of 256 KiB for each TLS connection: 250 MB at 1,000 agents, of which a beat
uses some hundred bytes. Here all connections of a server read into one buffer, for on a selector
loop a read and its decryption are one uninterrupted step.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable
from typing import Any, cast

LISTEN_BACKLOG = 1024
"""All agents come back at once after a take-over."""

ACCEPTED_AT_ONCE = 8
"""Connections taken from the backlog before handshakes under way have their turn. Taking all would
let thousands of handshakes go on side by side, and on a busy machine every one of them ends too
late. So they end one after the other, and steadily."""

SHUTDOWN_S = 2.0
"""How long a closing connection waits for the peer's own goodbye."""

_RECORD_BYTES = 16 * 1024
"""The largest TLS record."""

_READ_BYTES = 256 * 1024


async def listen(
    protocol: Callable[[], asyncio.Protocol],
    host: str | None,
    port: int,
    ssl_context: ssl.SSLContext,
    handshake_s: float,
    most: int | None = None,
    sock: socket.socket | None = None,
) -> asyncio.Server:
    """``loop.create_server(protocol, host, port, ssl=ssl_context, …)`` with less memory.

    With ``most`` connections, handshakes included, whoever comes is cut off. ``sock`` is a bound
    socket to listen on instead of an address.

    Raises:
        OSError: the address can't be listened on.
    """
    loop = asyncio.get_running_loop()
    buffer = bytearray(_READ_BYTES)
    crowd = _Crowd(most)
    where: dict[str, Any] = {"host": host, "port": port} if sock is None else {"sock": sock}

    def secured() -> asyncio.BaseProtocol:
        return _SharedBufferTls(buffer, crowd, loop, protocol(), ssl_context, handshake_s)

    try:
        secured()
    except (AttributeError, TypeError):
        # The asyncio of another Python is made differently inside: its memory is all that is lost.
        server = await loop.create_server(
            protocol,
            **where,
            ssl=ssl_context,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=SHUTDOWN_S,
            backlog=ACCEPTED_AT_ONCE,
        )
    else:
        server = await loop.create_server(secured, **where, backlog=ACCEPTED_AT_ONCE)
    # asyncio has one number for both; the kernel's queue is to be long.
    for each in server.sockets:
        with socket.socket(fileno=os.dup(each.fileno())) as same:
            same.listen(LISTEN_BACKLOG)
    return server


class _Crowd:
    """How many connections a server has, and may have."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._here: set[object] = set()

    def enter(self, who: object) -> bool:
        """Whether there is room for one more."""
        if self._most is not None and len(self._here) >= self._most:
            return False
        self._here.add(who)
        return True

    def leave(self, who: object) -> None:
        self._here.discard(who)


class _SharedBufferTls(sslproto.SSLProtocol):
    """TLS over an accepted connection, the way asyncio itself puts it there.

    If the attributes set here should mean nothing to some other asyncio, it just uses its own.
    """

    max_size = _RECORD_BYTES  # of the buffer made at first, and of each decryption

    def __init__(
        self,
        buffer: bytearray,
        crowd: _Crowd,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.Protocol,
        ssl_context: ssl.SSLContext,
        handshake_s: float,
    ) -> None:
        # The type stubs know neither a missing waiter nor fractions of seconds.
        arguments: dict[str, Any] = {
            "waiter": None,
            "server_side": True,
            "ssl_handshake_timeout": handshake_s,
            "ssl_shutdown_timeout": SHUTDOWN_S,
        }
        super().__init__(loop, protocol, ssl_context, **arguments)
        self._ssl_buffer = buffer
        self._ssl_buffer_view = memoryview(buffer)
        self._crowd = crowd

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._crowd.enter(self):
            super().connection_made(transport)
        else:
            cast(asyncio.Transport, transport).abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._crowd.leave(self)
        super().connection_lost(exc)


def dial_tls(
    address: tuple[str, int],
    context: ssl.SSLContext,
    name: str,
    timeout_s: float,
    *,
    held_back: bool = False,
) -> ssl.SSLSocket:
    """Connect, waiting so long at each step. ``name`` is the one in the server's certificate.

    ``held_back`` as for `detect_dead_peers`.

    Raises:
        OSError: nobody listens there, or it is not who it should be.
    """
    sock = socket.create_connection(address, timeout=timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        detect_dead_peers(sock, held_back=held_back)
        return context.wrap_socket(sock, server_hostname=name)
    except BaseException:
        sock.close()
        raise


def detect_dead_peers(sock: socket.socket | None, *, held_back: bool = False) -> None:
    """A host that vanished is noticed within some 20 s, also when nothing is sent to it.

    ``held_back``: a peer that is there may let what it is sent wait for as long as it likes. One
    that vanished while something was sent to it is then noticed by the system's own limit only, a
    quarter of an hour on Linux: it has one limit for both.
    """
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE if held_back else (*_KEEP_ALIVE, _UNREAD):
        option = getattr(socket, name, None)  # not every system has all of them
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


_KEEP_ALIVE = (
    ("TCP_KEEPIDLE", 10),
    ("TCP_KEEPINTVL", 5),
    ("TCP_KEEPCNT", 2),
)
_UNREAD = ("TCP_USER_TIMEOUT", 20_000)
"""Milliseconds for which data may be unacknowledged, or unsent because the peer does not read."""
