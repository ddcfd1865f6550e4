"""Accepted connections whose peers have not proven who they are.

They are few, so that those who can prove it always find room, and they are cut off for newcomers,
so that an honest newcomer always gets in:

1. A peer that has sent nothing yet costs its socket and nothing else.
2. When there is no room, the oldest silent peer is cut off, as long as those are more than a
   quarter of all.
3. Otherwise the oldest that has begun to speak is cut off, once it has had its undisturbed time: an
   honest peer whose handshake is under way on a busy machine is not cut off by others like it.
4. Otherwise newcomers wait in the kernel's queue.

A peer that has proven itself is no longer counted here and never makes room for one.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time

SILENT_SHARE = 4
"""One connection in so many is for connections that have sent nothing yet."""

UNDISTURBED_S = 5.0
"""For a handshake that has begun. A busy machine with thousands of agents needs a second for one."""

QUIET_S = 60.0
"""Between two log lines about the same trouble."""

_LOG = logging.getLogger(__name__)


class UnauthenticatedPeer:
    """One accepted connection, until it has proven itself or is gone."""

    __slots__ = ("_crowd", "is_proven", "sock")

    def __init__(self, sock: socket.socket, crowd: UnauthenticatedPeers) -> None:
        self.sock: socket.socket = sock
        self._crowd = crowd
        self.is_proven: bool = False

    def proven(self) -> None:
        """Its peer is known now: it keeps its connection. Harmless twice."""
        self.is_proven = True
        self._crowd.forget(self)

    def gone(self) -> None:
        """Its connection has ended. Harmless twice."""
        self._crowd.forget(self)

    def cut_off(self) -> None:
        """Whatever reads from it sees its end."""
        with contextlib.suppress(OSError):
            # Not an SSLSocket's own, which forgets its state under a handshake.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class UnauthenticatedPeers:
    """All of one port."""

    def __init__(self, most: int, undisturbed_s: float = UNDISTURBED_S) -> None:
        """At most ``most`` at once."""
        self._most = most
        self._undisturbed_s = undisturbed_s
        # In the order of arrival.
        self._silent: dict[UnauthenticatedPeer, None] = {}
        self._begun: dict[UnauthenticatedPeer, float] = {}
        self._seldom = Seldom()

    def __len__(self) -> int:
        return len(self._silent) + len(self._begun)

    def has_room(self) -> bool:
        """Whether one more may come now; another may be cut off for it."""
        if len(self) < self._most:
            return True
        if len(self._silent) > self._most // SILENT_SHARE:
            self._cut_off(next(iter(self._silent)))
            return True
        oldest, since = next(iter(self._begun.items()))
        if oldest.sock.fileno() < 0 or time.monotonic() - since >= self._undisturbed_s:
            self._cut_off(oldest)
            return True
        return False

    def arrived(self, sock: socket.socket) -> UnauthenticatedPeer:
        """A connection was accepted; nothing has come from it yet."""
        peer = UnauthenticatedPeer(sock, self)
        self._silent[peer] = None
        return peer

    def begun(self, peer: UnauthenticatedPeer) -> None:
        """Its first bytes have come."""
        if peer in self._silent:
            del self._silent[peer]
            self._begun[peer] = time.monotonic()

    def forget(self, peer: UnauthenticatedPeer) -> None:
        """It is proven, or gone."""
        self._silent.pop(peer, None)
        self._begun.pop(peer, None)

    def _cut_off(self, peer: UnauthenticatedPeer) -> None:
        self.forget(peer)
        peer.cut_off()
        if self._seldom.now():
            _LOG.warning(
                "%d connections have proven nothing yet; the oldest are cut off for newcomers",
                self._most,
            )


class Seldom:
    """Lets one log line through now and then: a flood of connections is none of the log."""

    def __init__(self, every_s: float = QUIET_S) -> None:
        self._every_s = every_s
        self._next = 0.0

    def now(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._every_s
        return True
