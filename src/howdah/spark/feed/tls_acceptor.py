"""The door of a trainer's feed server: one thread accepts, and leads all TLS handshakes side by side.

A training process is not made to hold a thread, or a TLS state, for a connection that has proven
nothing. How many of those there may be, and which is cut off for a newcomer, is in
`howdah.wire.unauthenticated_peers`.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import ssl
import time
from collections.abc import Callable, Sequence

from howdah.spark.feed.connections import DataConnection
from howdah.wire.sockets import ACCEPTED_AT_ONCE, NO_FILES_S, NO_ROOM_S
from howdah.wire.tls import IdentityError
from howdah.wire.unauthenticated_peers import Seldom, UnauthenticatedPeer, UnauthenticatedPeers

HANDSHAKE_S = 20.0
"""From a connection's beginning to its proof."""
UNAUTHENTICATED = 64
LOOK_S = 1.0
"""Between two looks for handshakes that take too long."""

_LOG = logging.getLogger(__name__)


class TlsAcceptor:
    """Serves listening sockets from `run` to `close`."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        context: ssl.SSLContext | None,
        let_in: Callable[[DataConnection], None],
        prove: Callable[[ssl.SSLSocket], None],
    ) -> None:
        """``let_in`` is given connections of this host, over Unix sockets; ``prove`` those whose
        handshake is done: it raises `IdentityError` or OSError for a peer it does not let in.
        Neither may block."""
        self._listeners = listeners
        self._context = context
        self._let_in = let_in
        self._prove = prove
        self._unauthenticated = UnauthenticatedPeers(UNAUTHENTICATED)
        self._arrivals: dict[UnauthenticatedPeer, float] = {}
        self._selector = selectors.DefaultSelector()
        self._wakes, self._wake = socket.socketpair()
        self._paused_until = 0.0
        self._accept_errors, self._refusals = Seldom(), Seldom()

    def close(self) -> None:
        """End listening, and cut off those that have proven nothing. Harmless twice."""
        self._wake.close()

    def run(self) -> None:
        """Until `close`."""
        self._selector.register(self._wakes, selectors.EVENT_READ)
        self._listen()
        try:
            while True:
                for key, _ in self._selector.select(self._pause_s()):
                    if key.fileobj is self._wakes:
                        return
                    if isinstance(key.data, UnauthenticatedPeer):
                        self._step(key.data)
                    elif isinstance(key.fileobj, socket.socket):
                        self._accept(key.fileobj)
                self._look()
        finally:
            for sock in (*self._listeners, self._wakes):
                sock.close()
            for peer in list(self._arrivals):
                self._drop(peer)
            self._selector.close()

    def _pause_s(self) -> float | None:
        if self._paused_until:
            return max(self._paused_until - time.monotonic(), 0.0)
        return LOOK_S if self._arrivals else None

    def _listen(self) -> None:
        self._paused_until = 0.0
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)

    def _pause(self, pause_s: float) -> None:
        if not self._paused_until:
            for listener in self._listeners:
                self._selector.unregister(listener)
        self._paused_until = time.monotonic() + pause_s

    def _look(self) -> None:
        now = time.monotonic()
        if self._paused_until and now >= self._paused_until:
            self._listen()
        while self._arrivals:
            oldest = next(iter(self._arrivals))
            if now - self._arrivals[oldest] < HANDSHAKE_S:
                return
            self._drop(oldest)

    def _accept(self, listener: socket.socket) -> None:
        if self._paused_until:
            return
        far = listener.family != socket.AF_UNIX and self._context is not None
        for _ in range(ACCEPTED_AT_ONCE):
            if far and not self._unauthenticated.has_room():
                self._pause(NO_ROOM_S)
                return
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                if self._accept_errors.now():
                    _LOG.warning("Feeders can't be accepted at present: %s", error)
                self._pause(NO_FILES_S)
                return
            if not far:
                self._let_in(DataConnection(sock))
                continue
            sock.setblocking(False)
            peer = self._unauthenticated.arrived(sock)
            self._arrivals[peer] = time.monotonic()
            self._selector.register(sock, selectors.EVENT_READ, peer)

    def _step(self, peer: UnauthenticatedPeer) -> None:
        if peer not in self._arrivals:
            return
        try:
            sock = peer.sock
            if not isinstance(sock, ssl.SSLSocket):
                sock = self._begin(peer)
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(peer.sock, selectors.EVENT_READ, peer)
        except ssl.SSLWantWriteError:
            self._selector.modify(peer.sock, selectors.EVENT_WRITE, peer)
        except OSError as error:
            self._refuse(peer, error)
        else:
            self._let_go(peer)
            try:
                self._prove(sock)
            except (OSError, IdentityError) as error:
                self._refuse(peer, error)

    def _begin(self, peer: UnauthenticatedPeer) -> ssl.SSLSocket:
        assert self._context is not None
        self._selector.unregister(peer.sock)
        peer.sock = sock = self._context.wrap_socket(
            peer.sock, server_side=True, do_handshake_on_connect=False
        )
        self._unauthenticated.begun(peer)
        self._selector.register(sock, selectors.EVENT_READ, peer)
        return sock

    def _refuse(self, peer: UnauthenticatedPeer, error: Exception) -> None:
        if self._refusals.now():
            _LOG.warning("A feeder was not let in: %s", error)
        self._drop(peer)

    def _drop(self, peer: UnauthenticatedPeer) -> None:
        self._let_go(peer)
        peer.sock.close()

    def _let_go(self, peer: UnauthenticatedPeer) -> None:
        self._arrivals.pop(peer, None)
        peer.gone()
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(peer.sock)
