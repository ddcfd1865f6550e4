"""Frames and descriptors over a Unix stream socket, without blocking. Both ends use it.

Descriptors are attached to the bytes of the message they belong to; the kernel delivers them no
later than these bytes and in order, so the receiver may simply queue them.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec

from howdah.wire.frames import FrameDecoder, encode

T = TypeVar("T")

_READ_BYTES = 65536
_MAX_DESCRIPTORS = 253
"""Linux passes no more with one message."""
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class Channel(Generic[T]):
    """One end of a connection. The owner watches the socket and calls `receive` and `flush`."""

    def __init__(self, sock: socket.socket, receives: Any) -> None:
        sock.setblocking(False)
        self.socket = sock
        self._decoder: FrameDecoder[T] = FrameDecoder(receives)
        self._out: deque[tuple[bytes, tuple[int, ...]]] = deque()
        self._descriptors: deque[int] = deque()

    def send(self, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> bool:
        """Queue and try to send; ``descriptors`` are copied. True if all has left.

        Raises:
            OSError: the connection is gone.
        """
        copies = tuple(os.dup(descriptor) for descriptor in descriptors)
        self._out.append((encode(message), copies))
        return self.flush()

    def flush(self) -> bool:
        """Send what can be sent now. True if nothing is left.

        Raises:
            OSError: the connection is gone.
        """
        while self._out:
            data, descriptors = self._out[0]
            ancillary = (
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
                if descriptors
                else []
            )
            try:
                sent = self.socket.sendmsg([data], ancillary)
            except BlockingIOError:
                return False
            for descriptor in descriptors:
                os.close(descriptor)
            if sent < len(data):
                self._out[0] = (data[sent:], ())
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
        try:
            data, ancillary, _, _ = self.socket.recvmsg(
                _READ_BYTES, socket.CMSG_LEN(_MAX_DESCRIPTORS * 4), _FLAGS
            )
        except BlockingIOError:
            return [], True
        except OSError:
            return [], False
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._descriptors.extend(numbers)
        return (self._decoder.feed(data), True) if data else ([], False)

    def take_descriptors(self, count: int) -> list[int]:
        """The next descriptors that came; the caller closes them."""
        return [self._descriptors.popleft() for _ in range(min(count, len(self._descriptors)))]

    def close(self) -> None:
        """Close the socket and every descriptor that is still here."""
        for _, descriptors in self._out:
            for descriptor in descriptors:
                os.close(descriptor)
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._out.clear()
        self._descriptors.clear()
        with contextlib.suppress(OSError):
            self.socket.close()


def same_user(sock: socket.socket) -> bool:
    """Whether the peer of a Unix socket runs as this user."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, _ = array.array("i", raw)
        return user == os.getuid()
    # macOS and the BSDs: LOCAL_PEERCRED gives struct xucred, whose second word is the user.
    raw = sock.getsockopt(0, 1, 76)
    return array.array("I", raw[:8])[1] == os.getuid()
