"""Channels: messages over mutually authenticated TLS connections on an asyncio loop.

A `Channel` is an `asyncio.Protocol` that decodes in the read callback: a message costs no task, no
stream and no copy of its own. One task per connection, the handler, takes them with `receive`, or
is not even woken for each with `dispatch`.

Guarantees:

1. A handler only ever sees peers with a certificate of the job's authority, and only messages
   their role may send.
2. A peer that sends what is no message, announces an oversized frame, does not finish its
   handshake or first message in time, or does not read what it is sent, loses its own connection
   and nothing else happens. `Channel.problem` says why; it is logged.
3. Memory a connection can hold is bounded both ways.

Not guaranteed: that a sent message arrives (a connection can break after `send`), or that a peer
whose certificate is refused is told why (TLS 1.3 clients learn of it by a closed connection).
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Generic, TypeVar, cast

import msgspec

from howdah.wire.frames import FrameDecoder, FrameError, encode
from howdah.wire.messages import MAX_FRAME
from howdah.wire.sockets import SHUTDOWN_S, Listener, detect_dead_peers, listen
from howdah.wire.tls import (
    IdentityError,
    PeerRole,
    certificate_name,
    former_certificate_name,
    names_job,
    peer_identity,
)
from howdah.wire.unauthenticated_peers import UnauthenticatedPeer

T = TypeVar("T")

CONNECT_S = 20.0
"""For a connection of ours, handshake included, where the caller has no limit of its own."""
HANDSHAKE_S = 180.0
"""Longer than a peer is ready to wait. 5,000 agents that all come back at once after a take-over need
8 s, on a busy machine a minute: a server that hangs up on those it has not come to makes them come
again, and gets through to none."""
FIRST_FRAME_S = 180.0
"""For a peer's first message, and for each later one that it has begun."""

WRITE_BYTES = {PeerRole.AGENT: 4 * 1024}
WRITE_BYTES_TO_OTHERS = 64 * 1024
"""Written at a time. TLS keeps a buffer as large as a connection's largest write for as long as it
lives, and agents are many: topologies of 1,000 tasks would cost 65 MB on 1,000 connections."""

BACKLOG_BYTES = 16 * 1024 * 1024
"""What may wait to be sent to a peer before it is cut off."""

QUEUE_MESSAGES = 256
QUEUE_BYTES = 2 * MAX_FRAME
"""What may wait for `Channel.receive` before reading pauses until all of it is taken."""

# Loads the codec that `ssl` wants for the first server's name: here it is loaded once for all
# agents that are forked by a parent that has imported this.
"".encode("idna")

_HOSTNAME_MISMATCH = 62
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH: of the job's authority, but of another name."""

_LOG = logging.getLogger(__name__)


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Who is at the other end, from its verified certificate."""

    role: PeerRole
    job: str
    """As its certificate names it: `is_of` knows."""
    host: str = ""
    """Its network address."""

    def is_of(self, job_id: str) -> bool:
        return names_job(self.job, job_id)


class ChannelClosed(ConnectionError):
    """The channel is closed; ``str()`` says why."""


class Channel(asyncio.Protocol, Generic[T]):
    """One connection. Made by `connect` and `serve`."""

    peer: Peer
    near: bool = False
    """Both ends are on this host, as far as their addresses tell."""
    problem: str = ""
    """Why this side ended the connection, or how it broke; empty after an orderly end."""

    def __init__(
        self,
        receives: Any,
        *,
        max_frame: int = MAX_FRAME,
        backlog_bytes: int = BACKLOG_BYTES,
        opened: Callable[[Channel[T]], None] | None = None,
    ) -> None:
        self._receives = receives
        self._max_frame = max_frame
        self._backlog_bytes = backlog_bytes
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._piece = WRITE_BYTES_TO_OTHERS
        self._decoder: FrameDecoder[T]
        self._queue: deque[T] = deque()
        self._queue_bytes = 0  # that came while the queue was not empty
        self._handle: Callable[[T], None] | None = None  # takes messages in the queue's stead
        self._ended = False  # nothing more will be received
        self._arrival: asyncio.Future[None] | None = None  # of a message, or of the end
        self._room: asyncio.Future[None] | None = None  # for writing
        self._reading_paused = False
        self._writing_paused = False
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._frame_s: float | None = None  # for a message, from its first byte to its last
        self._deadline: asyncio.TimerHandle | None = None

    # -- for users -------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Nothing sent from now on can arrive."""
        return self._transport is None or self._transport.is_closing()

    def send(self, message: msgspec.Struct) -> None:
        """Hand the message to the connection; it is sent in the background, in order.

        On a closed channel it does nothing: what was sent before may not have arrived either, so
        the sender has to cope with a break anyway. A peer that does not read is cut off once more
        than the channel's backlog waits for it; use `drain` before sending much.

        Raises:
            FrameError: the message is larger than a frame may be; the channel is unharmed.
        """
        self.send_frame(encode(message, self._max_frame))

    def send_frame(self, frame: bytes) -> None:
        """`send` for what `howdah.wire.frames.encode` gave: one encoding for many channels."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._writing_paused and transport.get_write_buffer_size() > self._backlog_bytes:
            self._fail(
                f"The peer does not read: {transport.get_write_buffer_size()} bytes wait for it,"
                f" more than the limit of {self._backlog_bytes}"
            )
            return
        for start in range(0, len(frame), self._piece):
            transport.write(frame[start : start + self._piece])

    async def drain(self) -> None:
        """Wait until the connection has room for more.

        Raises:
            ChannelClosed: the connection has ended.
        """
        while self._writing_paused and not self.closed:
            if self._room is None:
                self._room = self._loop.create_future()
            await asyncio.shield(self._room)
        if self.closed:
            raise ChannelClosed(self.problem or "The connection has ended")

    async def receive(self, timeout_s: float | None = None) -> T | None:
        """The next message, or None when no more can come (`problem` tells more).

        One task at a time may wait here.

        Raises:
            TimeoutError: none came within ``timeout_s`` seconds.
        """
        while not self._queue:
            if self._ended:
                return None
            await self._next_arrival(timeout_s)
        message = self._queue.popleft()
        if not self._queue:
            self._taken()
        return message

    async def dispatch(self, handle: Callable[[T], None]) -> None:
        """Call ``handle`` for each message from now on, as it arrives, until no more can come.

        It runs in the read callback: no task is woken, which saves a fifth of a heartbeat's cost.

        Raises:
            Exception: what ``handle`` raised; the channel is closed then.
        """
        while self._queue:
            handle(self._queue.popleft())
        self._taken()
        self._handle = handle
        while not self._ended:
            await self._next_arrival(None)

    def close(self) -> None:
        """End the connection after what was sent; nothing more is received."""
        self._end_receiving()
        self._queue.clear()
        # A second time it would lose its connection in Python 3.11.2, and then could not be aborted.
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()

    def abort(self, problem: str = "") -> None:
        """End the connection at once, losing what was not sent yet."""
        self.problem = self.problem or problem
        self._end_receiving()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone, after `close` or by the peer."""
        if self._transport is not None:
            await asyncio.shield(self._lost)

    # -- called by the event loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        address = transport.get_extra_info("peername") or ("",)
        try:
            role, job = peer_identity(transport.get_extra_info("peercert"))
        except IdentityError as error:
            self._fail(str(error))
            return
        types = self._receives
        if isinstance(types, Mapping):
            by_role = cast(Mapping[str, Any], types)
            if role not in by_role:
                self._fail(f"A peer with the role {role} has no business on this port")
                return
            types = by_role[role]
        self._piece = WRITE_BYTES.get(role, WRITE_BYTES_TO_OTHERS)
        self.peer = Peer(role=role, job=job, host=str(address[0]))
        self.near = address[0] == (transport.get_extra_info("sockname") or ("?",))[0]
        self._decoder = FrameDecoder(types, self._max_frame)
        detect_dead_peers(transport.get_extra_info("socket"))
        if self._opened is not None:
            self._opened(self)

    def data_received(self, data: bytes) -> None:
        if self._ended:
            return
        try:
            messages = self._decoder.feed(data)
        except FrameError as error:
            self._fail(str(error))
            return
        if messages and self._deadline is not None:
            self._lift_deadline()
        if self._decoder.pending and self._deadline is None and self._frame_s is not None:
            self._deadline = self._loop.call_later(self._frame_s, self._unfinished, self._frame_s)
        if not messages:
            return
        if self._handle is not None:
            self._hand_over(messages, self._handle)
            return
        self._queue.extend(messages)
        self._queue_bytes += len(data)
        full = len(self._queue) > QUEUE_MESSAGES or self._queue_bytes > QUEUE_BYTES
        if full and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end_receiving()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and not self.problem:
            self.problem = f"The connection broke: {exc}"
        self._end_receiving()
        self.resume_writing()
        if not self._lost.done():
            self._lost.set_result(None)

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._room is not None and not self._room.done():
            self._room.set_result(None)
        self._room = None

    # -- inside ----------------------------------------------------------------------------------

    def expect_frames(self, within_s: float) -> None:
        """Cut the peer off unless its first message has arrived within that time, and if it does not
        finish another within that time of beginning it."""
        self._frame_s = within_s
        problem = f"The peer sent no message within {within_s:g} s"
        self._deadline = self._loop.call_later(within_s, self._fail, problem)

    async def _next_arrival(self, timeout_s: float | None) -> None:
        self._arrival = self._loop.create_future()
        try:
            if timeout_s is None:
                await self._arrival
            else:
                async with asyncio.timeout(timeout_s):
                    await self._arrival
        finally:
            self._arrival = None

    def _hand_over(self, messages: list[T], handle: Callable[[T], None]) -> None:
        try:
            for message in messages:
                if self._ended:
                    return
                handle(message)
        except Exception as error:
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_exception(error)
            self.abort(f"A message could not be handled: {error}")

    def _fail(self, problem: str) -> None:
        address = self._transport and self._transport.get_extra_info("peername")
        _LOG.warning("Connection from %s ended: %s", address, problem)
        self.abort(problem)

    def _unfinished(self, within_s: float) -> None:
        self._deadline = None
        if self._reading_paused:
            # It is this side that does not read.
            self._deadline = self._loop.call_later(within_s, self._unfinished, within_s)
        else:
            self._fail(f"The peer did not finish a message within {within_s:g} s")

    def _lift_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end_receiving(self) -> None:
        self._lift_deadline()
        self._ended = True
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def _taken(self) -> None:
        """The queue is empty."""
        self._queue_bytes = 0
        if self._reading_paused and self._transport is not None:
            self._reading_paused = False
            self._transport.resume_reading()


async def connect(
    host: str,
    port: int,
    ssl_context: ssl.SSLContext,
    *,
    job_id: str,
    receives: Any,
    role: PeerRole = PeerRole.COORDINATOR,
    timeout_s: float = CONNECT_S,
    backlog_bytes: int = BACKLOG_BYTES,
) -> Channel[Any]:
    """A channel to the ``role`` of job ``job_id`` at that address.

    ``receives`` is the message type, or union, that may come.

    Raises:
        OSError: not reachable, not within ``timeout_s`` (`TimeoutError`), or not who it should be
            (`ssl.SSLCertVerificationError`).
    """
    loop = asyncio.get_running_loop()

    async def dial(name: str) -> Channel[Any]:
        channel: Channel[Any] = Channel(receives, backlog_bytes=backlog_bytes)
        await loop.create_connection(
            lambda: channel,
            host,
            port,
            ssl=ssl_context,
            server_hostname=name,
            ssl_handshake_timeout=timeout_s + 1,  # which is not a `TimeoutError`
            ssl_shutdown_timeout=SHUTDOWN_S,
        )
        return channel

    async with asyncio.timeout(timeout_s):
        try:
            channel = await dial(certificate_name(role, job_id))
        except ssl.SSLCertVerificationError as error:
            if error.verify_code != _HOSTNAME_MISMATCH:
                raise
            channel = await dial(former_certificate_name(role, job_id))
    if channel.closed:
        raise ChannelClosed(channel.problem or f"{host}:{port} closed the connection at once")
    return channel


async def serve(
    handler: Callable[[Channel[Any]], Awaitable[None]],
    host: str | None,
    port: int,
    ssl_context: ssl.SSLContext,
    *,
    receives: Any,
    handshake_s: float = HANDSHAKE_S,
    first_frame_s: float = FIRST_FRAME_S,
    backlog_bytes: int = BACKLOG_BYTES,
    most: int | None = None,
    sock: socket.socket | None = None,
) -> Listener:
    """Listen, and run ``handler(channel)`` for each authenticated peer; the channel ends with it.

    ``receives`` is what peers may send: a message type or union, or one for each role
    (``{"agent": FromAgent, "client": FromClient}``), and then other roles are refused.
    ``most``: so many connections at once whose peers have not proven themselves, by default a share of
    the process's descriptors; the oldest is cut off for a newcomer.
    ``sock``: a bound socket to listen on instead of ``host`` and ``port``.
    Closing the server stops listening; channels go on until their handlers return.

    Raises:
        OSError: the address can't be listened on.
    """
    loop = asyncio.get_running_loop()
    handlers: set[asyncio.Task[None]] = set()

    async def run(channel: Channel[Any]) -> None:
        try:
            await handler(channel)
        except Exception:
            _LOG.exception("The handler of a connection from %s failed", channel.peer)
        finally:
            channel.close()

    def opened(peer: UnauthenticatedPeer, channel: Channel[Any]) -> None:
        peer.proven()
        channel.expect_frames(first_frame_s)
        task = loop.create_task(run(channel))
        handlers.add(task)
        task.add_done_callback(handlers.discard)

    def channel(peer: UnauthenticatedPeer) -> Channel[Any]:
        return Channel(
            receives, backlog_bytes=backlog_bytes, opened=functools.partial(opened, peer)
        )

    return await listen(channel, host, port, ssl_context, handshake_s, most, sock)
