"""Listening sockets with asyncio's own TLS, at a fraction of its memory and open to anybody.

asyncio keeps a buffer of 256 KiB for each TLS connection: 250 MB at 1,000 agents, of which a heartbeat
uses some hundred bytes. Here all connections of a server read into one buffer, for on a selector
loop a read and its decryption are one uninterrupted step.

asyncio also accepts whatever comes, and gives it a transport at once. Here a connection gets one with
its first bytes, and how many may be there unproven is bounded (`howdah.wire.unauthenticated_peers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from asyncio import sslproto
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any

from howdah.wire.bulk_tls import BulkTls
from howdah.wire.descriptors import unauthenticated_at_a_port
from howdah.wire.unauthenticated_peers import Seldom, UnauthenticatedPeer, UnauthenticatedPeers

LISTEN_BACKLOG = 4096
"""All agents come back at once after a take-over."""

ACCEPTED_AT_ONCE = 8
"""Connections taken from the backlog before handshakes under way have their turn. Taking all would
let thousands of handshakes go on side by side, and on a busy machine every one of them ends too
late. So they end one after the other, and steadily."""

NO_ROOM_S = 0.05
"""Between two looks whether a newcomer can be let in."""
NO_FILES_S = 1.0
"""After the system has refused a connection: descriptors or memory are short."""

SHUTDOWN_S = 2.0
"""How long a closing connection waits for the peer's own goodbye."""

_RECORD_BYTES = 16 * 1024
"""The largest TLS record."""

_READ_BYTES = 256 * 1024

_LOG = logging.getLogger(__name__)


async def listen(
    protocol: Callable[[UnauthenticatedPeer], asyncio.Protocol],
    host: str | None,
    port: int,
    ssl_context: ssl.SSLContext,
    handshake_s: float,
    most: int | None = None,
    sock: socket.socket | None = None,
) -> Listener:
    """``loop.create_server(protocol, host, port, ssl=ssl_context, …)`` with less memory.

    ``protocol`` is given the peer it is to speak with, and says when that has proven itself.
    ``most`` unauthenticated at once, by default a share of the descriptors. ``sock`` is a bound socket to
    listen on instead of an address.

    Raises:
        OSError: the address can't be listened on.
    """
    loop = asyncio.get_running_loop()
    buffer = bytearray(_READ_BYTES)

    def secured(peer: UnauthenticatedPeer) -> asyncio.BaseProtocol:
        return _SharedBufferTls(buffer, peer, loop, protocol(peer), ssl_context, handshake_s)

    async def plainly(peer: UnauthenticatedPeer) -> None:
        await loop.connect_accepted_socket(
            lambda: protocol(peer),
            peer.sock,
            ssl=ssl_context,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=SHUTDOWN_S,
        )

    async def cheaply(peer: UnauthenticatedPeer) -> None:
        await loop.connect_accepted_socket(lambda: secured(peer), peer.sock)

    unauthenticated = UnauthenticatedPeers(unauthenticated_at_a_port() if most is None else most)
    with socket.socket() as nothing:
        try:
            secured(UnauthenticatedPeers(1).arrived(nothing))
        except (AttributeError, TypeError):
            # The asyncio of another Python is made differently inside: its memory is all that is lost.
            take = plainly
        else:
            take = cheaply
    sockets = [sock] if sock is not None else await _bound(host, port)
    return Listener(sockets, take, unauthenticated, silent_s=handshake_s)


async def _bound(host: str | None, port: int) -> list[socket.socket]:
    """The sockets asyncio would listen on."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    try:
        return [socket.socket(fileno=os.dup(each.fileno())) for each in server.sockets]
    finally:
        server.close()


class Listener:
    """Accepts connections from its making to `close`; those go on until their own ends."""

    def __init__(
        self,
        sockets: Iterable[socket.socket],
        take: Callable[[UnauthenticatedPeer], Coroutine[Any, Any, None]],
        unauthenticated: UnauthenticatedPeers,
        *,
        silent_s: float,
    ) -> None:
        """``take`` gives a connection that has begun to speak its transport and protocol. One that
        says nothing for ``silent_s`` is cut off.

        Raises:
            OSError: the kernel does not let it listen.
        """
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._unauthenticated = unauthenticated
        self._silent_s = silent_s
        self._waiting: dict[UnauthenticatedPeer, asyncio.TimerHandle] = {}
        self._taking: set[asyncio.Task[None]] = set()
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._seldom = Seldom()
        self._closed = False
        self.sockets: tuple[socket.socket, ...] = tuple(sockets)
        for sock in self.sockets:
            sock.listen(LISTEN_BACKLOG)
            sock.setblocking(False)
            self._loop.add_reader(sock, self._accept, sock)

    def close(self) -> None:
        """Accept nothing more, and cut off those that have said nothing yet. Harmless twice."""
        if self._closed:
            return
        self._closed = True
        for pause in self._pauses.values():
            pause.cancel()
        for sock in self.sockets:
            self._loop.remove_reader(sock)
            sock.close()
        for peer in list(self._waiting):
            self._drop(peer)

    def is_serving(self) -> bool:
        """As of `asyncio.Server`: whether it accepts connections."""
        return not self._closed

    async def wait_closed(self) -> None:
        """As of `asyncio.Server`: nothing is to be waited for."""

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._unauthenticated.has_room():
                self._pause(listening, NO_ROOM_S)
                return
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if self._seldom.now():
                    _LOG.warning("Connections can't be accepted at present: %s", error)
                self._pause(listening, NO_FILES_S)
                return
            sock.setblocking(False)
            peer = self._unauthenticated.arrived(sock)
            # Most have their first bytes with them.
            if not self._has_spoken(peer):
                self._waiting[peer] = self._loop.call_later(self._silent_s, self._drop, peer)
                self._loop.add_reader(sock, self._has_spoken, peer)

    def _pause(self, listening: socket.socket, pause_s: float) -> None:
        self._loop.remove_reader(listening)
        self._pauses[listening] = self._loop.call_later(pause_s, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        self._loop.add_reader(listening, self._accept, listening)

    def _has_spoken(self, peer: UnauthenticatedPeer) -> bool:
        """Whether more than silence came from it; it is taken or dropped then."""
        try:
            begun = peer.sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            begun = b""
        if not begun:
            self._drop(peer)
            return True
        self._no_longer_waits(peer)
        self._unauthenticated.begun(peer)
        task = self._loop.create_task(self._taken(peer))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)
        return True

    async def _taken(self, peer: UnauthenticatedPeer) -> None:
        try:
            await self._take(peer)
        except OSError:  # its handshake failed, or it is gone
            peer.gone()
            peer.sock.close()

    def _drop(self, peer: UnauthenticatedPeer) -> None:
        self._no_longer_waits(peer)
        peer.gone()
        peer.sock.close()

    def _no_longer_waits(self, peer: UnauthenticatedPeer) -> None:
        if (timer := self._waiting.pop(peer, None)) is not None:
            timer.cancel()
            self._loop.remove_reader(peer.sock)


class _SharedBufferTls(sslproto.SSLProtocol):
    """TLS over an accepted connection, the way asyncio itself puts it there.

    If the attributes set here should mean nothing to some other asyncio, it just uses its own.
    """

    max_size = _RECORD_BYTES  # of the buffer made at first, and of each decryption

    def __init__(
        self,
        buffer: bytearray,
        peer: UnauthenticatedPeer,
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
        self._peer = peer

    def connection_lost(self, exc: BaseException | None) -> None:
        self._peer.gone()
        super().connection_lost(exc)


class NoAnswer(TimeoutError):
    """Something accepts the connection and then says nothing: it is stopped, or busy."""


def dial_tls(
    address: tuple[str, int], context: ssl.SSLContext, name: str, timeout_s: float
) -> ssl.SSLSocket:
    """Connect, waiting so long at each step. ``name`` is the one in the server's certificate.

    Raises:
        NoAnswer: it did not prove in time who it is.
        OSError: nobody listens there, or it is not who it should be.
    """
    with _dialled(address, timeout_s) as sock:
        detect_dead_peers(sock)
        return context.wrap_socket(sock, server_hostname=name)


def dial_bulk_tls(
    address: tuple[str, int], context: ssl.SSLContext, name: str, timeout_s: float
) -> BulkTls:
    """As `dial_tls`, for many megabytes that the peer may hold back."""
    with _dialled(address, timeout_s) as sock:
        detect_dead_peers(sock, held_back=True)
        tls = BulkTls(sock, context, server_hostname=name)
        tls.do_handshake()
        return tls


@contextlib.contextmanager
def _dialled(address: tuple[str, int], timeout_s: float) -> Generator[socket.socket]:
    """A connection that is closed if what is done with it fails."""
    sock = socket.create_connection(address, timeout=timeout_s)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield sock
    except BaseException as error:
        sock.close()
        if isinstance(error, TimeoutError):
            raise NoAnswer(f"no answer in {timeout_s:g} s after it was connected to") from error
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
