"""Frames over a non-blocking stream socket, plain or TLS, for event loops other than asyncio's."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections import deque
from typing import Any, Generic, TypeVar

import msgspec

from howdah.wire.frames import FrameDecoder, encode

T = TypeVar("T")

READ_BYTES = 65536
_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class FramedConnection(Generic[T]):
    """One end of a connection. The owner watches `socket` and calls `receive` and `flush`."""

    def __init__(self, sock: socket.socket, receives: Any) -> None:
        """``receives`` is the message type, or union of types, that may come."""
        sock.setblocking(False)
        self.socket = sock
        self.pending_bytes: int = 0
        """Handed to `send` and not sent yet."""
        self._decoder: FrameDecoder[T] = FrameDecoder(receives)
        self._out: deque[bytes] = deque()

    def send(self, message: msgspec.Struct) -> bool:
        """Queue a message and try to send. True if all has left.

        Raises:
            OSError: the connection is gone.
        """
        self._queue(encode(message))
        return self.flush()

    def flush(self) -> bool:
        """Send what can be sent now. True if nothing is left.

        Raises:
            OSError: the connection is gone.
        """
        while self._out:
            try:
                sent = self._write(self._out[0])
            except _WOULD_BLOCK:
                return False
            self.pending_bytes -= sent
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
            else:
                self._out.popleft()
        return True

    def flush_now(self, timeout_s: float = 1.0) -> bool:
        """Send everything, waiting if need be. False if the peer does not take it."""
        try:
            self.socket.settimeout(timeout_s)
            return self.flush()
        except OSError:
            return False

    def receive(self) -> tuple[list[T], bool]:
        """Messages that have come, and whether the peer is still there.

        Raises:
            FrameError: the peer does not speak this protocol.
        """
        found: list[T] = []
        while True:
            try:
                data = self._read()
            except _WOULD_BLOCK:
                return found, True
            except OSError:
                return found, False
            if not data:
                return found, False
            found += self._decoder.feed(data)

    def close(self) -> None:
        """Close the socket. What is still queued is not sent."""
        with contextlib.suppress(OSError):
            self.socket.close()

    def _queue(self, frame: bytes) -> None:
        self._out.append(frame)
        self.pending_bytes += len(frame)

    def _write(self, data: bytes) -> int:
        return self.socket.send(data)

    def _read(self) -> bytes:
        return self.socket.recv(READ_BYTES)
