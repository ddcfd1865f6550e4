"""Where feeders bring rows: a Unix socket for those of this host, mutual TLS for others."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from howdah.backends.local.runtime_paths import LONGEST_PATH, runtime_folder
from howdah.spark.feed.connections import SOCKET_BYTES, DataConnection, SecureConnection
from howdah.spark.feed.messages import Begin, TrainerLoad
from howdah.spark.feed.tls_acceptor import TlsAcceptor
from howdah.wire.addresses import bind_within
from howdah.wire.tls import IdentityError, PeerRole, names_job, peer_identity

BACKLOG = 512
CLOSE_S = 10.0

Take = Callable[[Begin, DataConnection], None]

_LOG = logging.getLogger(__name__)


class FeedServer:
    """Listens from its making to `close`; a thread for each connection of a proven peer."""

    def __init__(
        self,
        take: Take,
        first: TrainerLoad,
        *,
        name: str,
        folder: Path | None = None,
        context: ssl.SSLContext | None = None,
        job_id: str = "",
        host: str = "",
        ports: tuple[int, int] | None = None,
    ) -> None:
        """``first`` is said to whoever is let in. ``folder``: private, for the socket; ``host``: address to
        listen on, all if empty; ``ports``: the range its port is taken from, any if None.

        Raises:
            BackendError: there is no folder for the socket.
            OSError: nothing can be listened on.
        """
        self._take = take
        self._first = first
        self._context = context
        self._job_id = job_id
        self._closed = False
        self._lock = threading.Lock()
        self._connections: set[DataConnection] = set()
        self.path: Path = _socket_path(folder, name)
        self.port: int = 0
        listeners = [self._listen_here()]
        if context is not None:
            listeners.append(self._listen_far(host, ports))
        self._door = TlsAcceptor(listeners, context, self._let_in, self._prove)
        self._admitting = threading.Thread(target=self._door.run, name="howdah-feed", daemon=True)
        self._admitting.start()

    @property
    def socket(self) -> str:
        """Path of the Unix socket."""
        return str(self.path)

    def close(self) -> None:
        """End listening and every connection."""
        self._closed = True
        self._door.close()
        self._admitting.join(CLOSE_S)
        self.path.unlink(missing_ok=True)
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.end()

    def _listen_here(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.path.unlink(missing_ok=True)
            listener.bind(str(self.path))
            self.path.chmod(0o600)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        return listener

    def _listen_far(self, host: str, ports: tuple[int, int] | None) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Before listening: the window of accepted connections is set by it.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
            bind_within(listener, host, ports)
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        return listener

    def _serve(self, connection: DataConnection) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            if self._closed:
                return
            connection.send(self._first)
            self._take(connection.receive(Begin), connection)
        except (EOFError, OSError, msgspec.DecodeError) as error:
            # A feeder that chose another trainer, or has ended: the controller hears of it from Spark.
            _LOG.debug("A feeder's connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _let_in(self, connection: DataConnection) -> None:
        threading.Thread(
            target=self._serve, args=(connection,), name="howdah-rows", daemon=True
        ).start()

    def _prove(self, tls: ssl.SSLSocket) -> None:
        """Let a peer in whose handshake is done.

        Raises:
            IdentityError: it belongs to another job, or is no feeder.
            OSError: it is gone.
        """
        role, job = peer_identity(tls.getpeercert())
        if role is not PeerRole.FEEDER:
            raise IdentityError(
                f"The peer is a {role} of the job; rows are taken from feeders only"
            )
        if not names_job(job, self._job_id):
            raise IdentityError("The peer belongs to another job")
        self._let_in(SecureConnection(tls))


def _socket_path(folder: Path | None, name: str) -> Path:
    """In the container's own folder, which goes with it, if the path is short enough."""
    if folder is not None and os.access(folder, os.W_OK):
        path = folder / name
        if len(os.fsencode(path)) <= LONGEST_PATH:
            return path
    return runtime_folder() / name
