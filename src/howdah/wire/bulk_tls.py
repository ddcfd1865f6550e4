"""TLS for connections that carry many megabytes.

A record of TLS has 16 KiB at most. `ssl.SSLSocket` reads each with two system calls and writes each with one, which
wakes its reader. Here a system call moves up to 16 of them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Any

_RECORD_BYTES = 16 << 10
_PIECE = 16 * _RECORD_BYTES


class BulkTls:
    """As `ssl.SSLSocket`, with a `socket` that blocks or not.

    It may hold bytes that its peer has sent: read until BlockingIOError before waiting for more.
    """

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, *, server_hostname: str | None = None
    ) -> None:
        """The side that connects gives ``server_hostname``, the name in the server's certificate."""
        self.socket: socket.socket = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_hostname is None, server_hostname
        )
        self._received = memoryview(bytearray(_RECORD_BYTES))  # more once it knows its peer
        self._encrypted = memoryview(b"")  # what the socket has not taken yet
        self._plain = 0  # bytes of the caller's that are in it

    def do_handshake(self) -> None:
        """Raises BlockingIOError if it must be called again once there is something to read."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._push()
                self._fill()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._push()  # the peer hears why
                raise
            else:
                self._push()
                self._received = memoryview(bytearray(_PIECE))
                return

    def send(self, data: memoryview) -> int:
        """How many bytes went. After BlockingIOError the next call must begin with the same bytes."""
        if not self._encrypted:
            self._plain = self._tls.write(data[:_PIECE])
        self._push()
        return self._plain

    def recv(self, size: int) -> bytes:
        data = bytearray(min(size, _RECORD_BYTES))
        return bytes(data[: self.recv_into(memoryview(data))])

    def recv_into(self, view: memoryview) -> int:
        """As many bytes as have come and fit; 0 at the end."""
        done = 0
        while done < len(view):
            try:
                # The type stubs know of `bytes` only, which it returns without a buffer.
                got: Any = self._tls.read(len(view) - done, view[done:])  # pyright: ignore
            except ssl.SSLWantReadError:
                if done:
                    break
                self._fill()
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                break
            else:
                done += got
                if not got:
                    break
        return done

    def getpeercert(self) -> dict[str, Any] | None:
        return self._tls.getpeercert()

    def fileno(self) -> int:
        return self.socket.fileno()

    def setblocking(self, flag: bool) -> None:
        self.socket.setblocking(flag)

    def close(self) -> None:
        self.socket.close()

    def _push(self) -> None:
        while self._encrypted or self._outgoing.pending:
            self._encrypted = self._encrypted or memoryview(self._outgoing.read())
            self._encrypted = self._encrypted[self.socket.send(self._encrypted) :]

    def _fill(self) -> None:
        if got := self.socket.recv_into(self._received):
            self._incoming.write(self._received[:got])
        else:
            self._incoming.write_eof()
