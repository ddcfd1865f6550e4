"""Where feeders bring rows: a Unix socket for those of this host. Those of others speak mutual TLS with a process
beside this one (`tls_proxy`), which brings them there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from howdah.backends.local.runtime_paths import LONGEST_PATH, runtime_folder
from howdah.spark.feed import tls_proxy
from howdah.spark.feed.connections import SOCKET_BYTES, DataConnection
from howdah.spark.feed.messages import Begin, TrainerLoad
from howdah.storage import runtime
from howdah.wire.addresses import bind_within
from howdah.wire.sockets import NO_FILES_S
from howdah.wire.unauthenticated_peers import Seldom

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
        folder: Path,
        secrets: Path,
        job_id: str,
        host: str,
        ports: tuple[int, int] | None,
    ) -> None:
        """``first`` is said to whoever is let in. ``folder``: private, for the socket; ``secrets``: of the job's agents; ``host``: address to
        listen on, all if empty; ``ports``: the range its port is taken from, any if None.

        Raises:
            BackendError: there is no folder for the socket.
            OSError: nothing can be listened on.
        """
        self._take = take
        self._first = first
        self._secrets = secrets
        self._job_id = job_id
        self._closed = False
        self._lock = threading.Lock()
        self._connections: set[DataConnection] = set()
        self._path = _socket_path(folder, name)
        self.socket: str = str(self._path)
        """Path of the Unix socket."""
        self._here = self._listen_here()
        try:
            self._far = self._listen_far(host, ports)
        except OSError:
            self._here.close()
            raise
        self.port: int = self._far.getsockname()[1]
        self._accept_errors, self._proxy_errors = Seldom(), Seldom()
        self._proxy: subprocess.Popen[bytes] | None = None
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._admitting = threading.Thread(target=self._run, name="howdah-feed", daemon=True)
        self._admitting.start()

    def close(self) -> None:
        """End listening and every connection."""
        self._closed = True
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.end()
        with contextlib.suppress(RuntimeError):  # it was closed before
            self._loop.call_soon_threadsafe(self._over.set)
        self._admitting.join(CLOSE_S)
        self._path.unlink(missing_ok=True)

    def _listen_here(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._path.unlink(missing_ok=True)
            runtime.retry_with_folder(partial(listener.bind, self.socket))
            self._path.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
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
        return listener

    # -- in the thread that accepts --------------------------------------------------------------

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._admit())

    async def _admit(self) -> None:
        with self._here, self._far:
            self._loop.add_reader(self._here, self._accept_here)
            self._loop.add_reader(self._far, self._start_proxy)
            await self._over.wait()
            self._loop.remove_reader(self._here)
            self._loop.remove_reader(self._far)
        self._end_proxy(tls_proxy.LAST_S)

    def _accept_here(self) -> None:
        try:
            sock, _ = self._here.accept()
        except OSError as error:
            if self._accept_errors.now():
                _LOG.warning("Feeders can't be accepted at present: %s", error)
            self._loop.remove_reader(self._here)
            self._loop.call_later(NO_FILES_S, self._loop.add_reader, self._here, self._accept_here)
        else:
            self._let_in(DataConnection(sock))

    def _start_proxy(self) -> None:
        """Somebody has come from another host."""
        self._loop.remove_reader(self._far)
        try:
            proxy = tls_proxy.start(self._far, self._secrets, self._job_id, self.socket)
        except OSError as error:
            if self._proxy_errors.now():
                _LOG.warning("Feeders of other hosts can't be accepted at present: %s", error)
            self._await_far()
        else:
            assert proxy.stdout is not None
            self._proxy = proxy
            self._loop.add_reader(proxy.stdout, self._on_proxy_end, proxy.stdout)

    def _on_proxy_end(self, output: IO[bytes]) -> None:
        if os.read(output.fileno(), 4096):
            return
        self._end_proxy()
        if self._proxy_errors.now():
            _LOG.warning(
                "The process that takes rows from other hosts has ended; it is started again"
            )
        self._await_far()

    def _end_proxy(self, last_s: float = 0.0) -> None:
        """``last_s``: for what it has not passed on yet."""
        if self._proxy is None:
            return
        assert self._proxy.stdout is not None
        self._loop.remove_reader(self._proxy.stdout)
        with self._proxy as proxy:
            with contextlib.suppress(subprocess.TimeoutExpired):
                proxy.communicate(b"over", last_s)
            proxy.kill()
        self._proxy = None

    def _await_far(self) -> None:
        self._loop.call_later(NO_FILES_S, self._loop.add_reader, self._far, self._start_proxy)

    # -- a connection ----------------------------------------------------------------------------

    def _let_in(self, connection: DataConnection) -> None:
        threading.Thread(
            target=self._serve, args=(connection,), name="howdah-rows", daemon=True
        ).start()

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


def _socket_path(folder: Path, name: str) -> Path:
    """In the container's own folder, which goes with it, if the path is short enough."""
    if os.access(folder, os.W_OK):
        path = folder / name
        if len(os.fsencode(path)) <= LONGEST_PATH:
            return path
    return runtime_folder() / name
