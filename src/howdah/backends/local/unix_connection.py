"""Frames and descriptors over a Unix stream socket, without blocking. Both ends use it.

Descriptors are attached to the bytes of the message they belong to; the kernel delivers them no
later than these bytes and in order, so the receiver may simply queue them.
"""

from __future__ import annotations

import array
import os
import socket
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from howdah.wire.framed import READ_BYTES, FramedConnection
from howdah.wire.frames import encode

T = TypeVar("T")

_MAX_DESCRIPTORS = 253
"""Linux passes no more with one message."""
_FLAGS = getattr(socket, "MSG_CMSG_CLOEXEC", 0)


class UnixConnection(FramedConnection[T]):
    """One end of a connection whose messages may have descriptors with them."""

    def __init__(self, sock: socket.socket, receives: Any) -> None:
        super().__init__(sock, receives)
        self._to_send: deque[tuple[int, ...]] = deque()
        """Of each queued frame."""
        self._received: deque[int] = deque()

    def send(self, message: msgspec.Struct, descriptors: Sequence[int] = ()) -> bool:
        """As `FramedConnection.send`; ``descriptors`` are copied."""
        self._queue(encode(message))
        self._to_send.append(tuple(os.dup(descriptor) for descriptor in descriptors))
        return self.flush()

    def take_descriptors(self, count: int) -> list[int]:
        """The next descriptors that came; the caller closes them."""
        return [self._received.popleft() for _ in range(min(count, len(self._received)))]

    def close(self) -> None:
        """Close the socket and every descriptor that is still here."""
        for descriptor in (*(each for some in self._to_send for each in some), *self._received):
            os.close(descriptor)
        self._to_send.clear()
        self._received.clear()
        self._out.clear()
        super().close()

    def _write(self, data: bytes) -> int:
        descriptors = self._to_send[0]
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            if descriptors
            else []
        )
        sent = self.socket.sendmsg([data], ancillary)
        self._to_send[0] = ()
        for descriptor in descriptors:
            os.close(descriptor)
        if sent == len(data):
            self._to_send.popleft()
        return sent

    def _read(self) -> bytes:
        data, ancillary, _, _ = self.socket.recvmsg(
            READ_BYTES, socket.CMSG_LEN(_MAX_DESCRIPTORS * 4), _FLAGS
        )
        for level, kind, payload in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                numbers = array.array("i")
                numbers.frombytes(payload[: len(payload) - len(payload) % numbers.itemsize])
                self._received.extend(numbers)
        return data


def same_user(sock: socket.socket) -> bool:
    """Whether the peer of a Unix socket runs as this user."""
    if hasattr(socket, "SO_PEERCRED"):
        raw = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, _ = array.array("i", raw)
        return user == os.getuid()
    # macOS and the BSDs: LOCAL_PEERCRED gives struct xucred, whose second word is the user.
    raw = sock.getsockopt(0, 1, 76)
    return array.array("I", raw[:8])[1] == os.getuid()
