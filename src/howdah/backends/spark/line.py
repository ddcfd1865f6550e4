"""A holder's TLS connection on a `howdah.backends.local.loop.Loop`, without blocking."""

from __future__ import annotations

import contextlib
import ssl
from collections import deque
from typing import Any, Generic, TypeVar

import msgspec

from howdah.wire.frames import FrameDecoder, encode
from howdah.wire.sockets import dial_tls

T = TypeVar("T")

_READ_BYTES = 65536


class Line(Generic[T]):
    """One connection. The owner watches `socket` and calls `receive` and `flush`."""

    def __init__(self, sock: ssl.SSLSocket, receives: Any) -> None:
        sock.setblocking(False)
        self.socket = sock
        self._decoder: FrameDecoder[T] = FrameDecoder(receives)
        self._out: deque[bytes] = deque()
        self.waiting_bytes = 0
        """Handed to `send` and not sent yet."""

    def send(self, message: msgspec.Struct) -> bool:
        """Queue and try to send. True if all has left.

        Raises:
            OSError: the connection is gone.
        """
        frame = encode(message)
        self._out.append(frame)
        self.waiting_bytes += len(frame)
        return self.flush()

    def flush(self) -> bool:
        """Send what can be sent now. True if nothing is left.

        Raises:
            OSError: the connection is gone.
        """
        while self._out:
            try:
                sent = self.socket.send(self._out[0])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return False
            self.waiting_bytes -= sent
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
            else:
                self._out.popleft()
        return True

    def receive(self) -> tuple[list[T], bool]:
        """Messages that have come, and whether the peer is still there.

        Raises:
            FrameError: the peer does not speak this protocol.
        """
        found: list[T] = []
        while True:
            try:
                data = self.socket.recv(_READ_BYTES)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return found, True
            except OSError:
                return found, False
            if not data:
                return found, False
            found += self._decoder.feed(data)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.socket.close()


def dial(
    address: tuple[str, int],
    context: ssl.SSLContext,
    name: str,
    receives: Any,
    timeout_s: float,
) -> Line[Any]:
    """Connect, waiting so long. ``name`` is the one in the server's certificate.

    Raises:
        OSError: nobody listens there, or it is not who it should be.
    """
    return Line(dial_tls(address, context, name, timeout_s), receives)
