"""Data connections of a trainer: bytes into given memory, frames out, by blocking calls.

One thread reads; any thread may send a frame or end the connection, which wakes the reader.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import Any

import msgspec

from howdah.wire.decoders import message_decoder
from howdah.wire.frames import HEADER_BYTES, encode
from howdah.wire.messages import MAX_FRAME

SOCKET_BYTES = 4 << 20
"""Of kernel memory asked for: fewer changes between feeder and trainer."""

_HEADER = struct.Struct(">I")


class DataConnection:
    """A Unix socket, whose folder only its user can enter."""

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
            self._socket.sendall(encode(message))
            if then:
                self._socket.sendall(then)

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
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. Only once nobody reads from it."""
        self.closed = True
        self._socket.close()
