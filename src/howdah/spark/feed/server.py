"""Where feeders bring rows: a Unix socket for those of this host, mutual TLS for others."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from howdah.backends.local.places import LONGEST_PATH, runtime_folder
from howdah.spark.feed.connections import SOCKET_BYTES, Connection, secured
from howdah.spark.feed.messages import Begin, Load
from howdah.wire.tls import IdentityError, peer_identity

HANDSHAKE_S = 20.0
BACKLOG = 512
ACCEPT_AGAIN_S = 0.1

Take = Callable[[Begin, Connection], None]

_LOG = logging.getLogger(__name__)


class Server:
    """Listens from its making to `close`; a thread a connection."""

    def __init__(
        self,
        take: Take,
        first: Load,
        *,
        name: str,
        folder: Path | None = None,
        context: ssl.SSLContext | None = None,
        job_id: str = "",
        host: str = "",
    ) -> None:
        """``first`` is said to whoever is let in. ``folder``: private, for the socket; ``host``: interface to listen on, all if empty.

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
        self._connections: set[Connection] = set()
        self.path = _socket_path(folder, name)
        self.port = 0
        self._listeners = [self._listen_here()]
        if context is not None:
            self._listeners.append(self._listen_far(host))
        for listener in self._listeners:
            threading.Thread(
                target=self._accept, args=(listener,), name="howdah-feed", daemon=True
            ).start()

    @property
    def socket(self) -> str:
        """Path of the Unix socket."""
        return str(self.path)

    def close(self) -> None:
        """End listening and every connection."""
        self._closed = True
        for listener in self._listeners:
            # A thread that waits in accept() is woken by this, not by close().
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
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

    def _listen_far(self, host: str) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            # Before listening: the window of accepted connections is set by it.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BYTES)
            listener.bind((host, 0))
            listener.listen(BACKLOG)
        except OSError:
            listener.close()
            raise
        self.port = listener.getsockname()[1]
        return listener

    def _accept(self, listener: socket.socket) -> None:
        while not self._closed:
            try:
                accepted, _ = listener.accept()
            except OSError:
                if self._closed:
                    return
                time.sleep(ACCEPT_AGAIN_S)  # no files are left, perhaps: others will close some
                continue
            threading.Thread(
                target=self._serve, args=(accepted,), name="howdah-rows", daemon=True
            ).start()

    def _serve(self, accepted: socket.socket) -> None:
        try:
            connection = self._connection(accepted)
        except (OSError, IdentityError) as error:
            _LOG.warning("A feeder was not let in: %s", error)
            return
        with self._lock:
            self._connections.add(connection)
        try:
            if self._closed:
                return
            connection.send(self._first)
            self._take(connection.receive(Begin), connection)
        except (EOFError, OSError, msgspec.DecodeError) as error:
            # A feeder that chose another trainer, or has ended: the master hears of it from Spark.
            _LOG.debug("A feeder's connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _connection(self, accepted: socket.socket) -> Connection:
        if accepted.family == socket.AF_UNIX or self._context is None:
            return Connection(accepted)
        connection = secured(accepted, self._context, HANDSHAKE_S)
        try:
            _, job_id = peer_identity(connection.certificate())
            if job_id != self._job_id:
                raise IdentityError(f"The peer belongs to the job {job_id}")
        except IdentityError:
            connection.close()
            raise
        return connection


def _socket_path(folder: Path | None, name: str) -> Path:
    """In the container's own folder, which goes with it, if the path is short enough."""
    if folder is not None and os.access(folder, os.W_OK):
        path = folder / name
        if len(os.fsencode(path)) <= LONGEST_PATH:
            return path
    return runtime_folder() / name
