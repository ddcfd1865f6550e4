"""Data connections of a trainer: bytes into given memory, frames out, by blocking calls.

One thread reads; any thread may send a frame or end the connection, which wakes the reader.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
from typing import Any

import msgspec

from howdah.wire.decoders import message_decoder
from howdah.wire.frames import HEADER_BYTES, encode
from howdah.wire.messages import MAX_FRAME
from howdah.wire.sockets import detect_dead_peers

SOCKET_BYTES = 4 << 20
"""Of kernel memory asked for: fewer changes between feeder and trainer."""

_HEADER = struct.Struct(">I")


class DataConnection:
    """A plain stream socket: a Unix socket, whose folder only its user can enter."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._lock = threading.Lock()
        self.closed: bool = False
        sock.setblocking(True)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)

    def read_into(self, view: memoryview) -> None:
        """Fill the view.

        Raises:
            EOFError: the peer ended the connection, or `end` was called.
            OSError: it broke, or `end` was called.
        """
        while view:
            got = self._socket.recv_into(view, 0, socket.MSG_WAITALL)
            if not got:
                raise EOFError
            view = view[got:]

    def send(self, message: msgspec.Struct, then: Any = b"") -> None:
        """One frame, and the bytes that follow it.

        Raises:
            OSError: the connection is broken.
        """
        with self._lock:
            self._send(encode(message))
            if then:
                self._send(then)

    def receive(self, types: Any) -> Any:
        """The next frame, of one of these types.

        Raises:
            EOFError, OSError: the connection has ended.
            msgspec.DecodeError: it is no such message.
        """
        header = bytearray(HEADER_BYTES)
        self.read_into(memoryview(header))
        (size,) = _HEADER.unpack(header)
        if size > MAX_FRAME:
            raise msgspec.DecodeError(f"a frame of {size} bytes")
        body = bytearray(size)
        self.read_into(memoryview(body))
        return message_decoder(types).decode(body)

    def end(self) -> None:
        """Wake whoever reads or writes, and the peer."""
        self.closed = True
        with contextlib.suppress(OSError):
            # Not SSLSocket's own, which forgets its state under a reader.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. Only once nobody reads from it."""
        self.closed = True
        self._socket.close()

    def _send(self, data: Any) -> None:
        self._socket.sendall(data)


class SecureConnection(DataConnection):
    """Mutual TLS over TCP. OpenSSL's state is not for two threads: every call holds a lock."""

    _socket: ssl.SSLSocket

    def __init__(self, sock: ssl.SSLSocket) -> None:
        super().__init__(sock)
        # Spark may let answers wait for hours, as the program may let rows.
        detect_dead_peers(sock, held_back=True)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setblocking(False)
        self._tls = threading.Lock()

    def read_into(self, view: memoryview) -> None:
        while view:
            try:
                with self._tls:
                    got = self._socket.recv_into(view)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
                continue
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
                continue
            except ssl.SSLError as error:
                raise EOFError from error
            if not got:
                raise EOFError
            view = view[got:]

    def _send(self, data: Any) -> None:
        view = memoryview(data).cast("B")
        while view:
            try:
                with self._tls:
                    sent = self._socket.send(view[: 1 << 16])
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT)
            else:
                view = view[sent:]

    def _wait(self, event: int) -> None:
        if self.closed:
            raise ConnectionAbortedError("the connection was ended")
        poll = select.poll()
        poll.register(self._socket, event)
        poll.poll(1000)
