"""The web app's HTTP server: uvicorn inside the coordinator's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from howdah.coordinator.web.app import JobApp
from howdah.coordinator.web.proxy import WebSockets
from howdah.coordinator.web.security import PEER, AnswerBrokeOff
from howdah.wire.descriptors import unauthenticated_at_a_port
from howdah.wire.sockets import Listener
from howdah.wire.unauthenticated_peers import UnauthenticatedPeer, UnauthenticatedPeers

HEAD_S = 15.0
"""A connection must have sent a request's head within this: the first from its beginning, later ones
from their first byte. Those of unauthenticated peers end with it in any case."""

HEAD_MAX = 32 * 1024
"""Bytes of a request's head."""

KEEP_ALIVE_S = 30
CLOSE_S = 2.0
"""Requests that are still being answered at the end are given this long."""


class WebServer:
    """A running server. `close` ends it."""

    def __init__(
        self, app: JobApp, inner: _Uvicorn, websockets: WebSockets, sock: socket.socket
    ) -> None:
        self.host: str
        self.port: int
        self.host, self.port = sock.getsockname()[:2]
        self._app = app
        self._inner = inner
        self._websockets = websockets
        self._sock = sock
        self._run: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Take no more connections, end the streams, let answers be finished. Harmless twice."""
        self._app.close_streams()
        self._websockets.close()
        self._inner.end()
        if self._run is not None:
            await self._run

    async def start(self) -> None:
        """Serve; returns once connections are accepted."""
        self._run = asyncio.create_task(self._inner.serve(sockets=[self._sock]), name="http")
        up = asyncio.ensure_future(self._inner.up.wait())
        await asyncio.wait({up, self._run}, return_when=asyncio.FIRST_COMPLETED)
        if self._run.done():
            up.cancel()
            self._run.result()


async def serve(app: JobApp, sock: socket.socket) -> WebServer:
    """Serve the app (from `create_app`) on a listening socket, which the server closes."""
    websockets = app.websockets()
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws=websockets.protocol,  # type: ignore[arg-type]
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(CLOSE_S),
        h11_max_incomplete_event_size=HEAD_MAX,
    )
    logging.getLogger("uvicorn.error").addFilter(_worth_telling)
    server = WebServer(app, _Uvicorn(config), websockets, sock)
    await server.start()
    return server


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers and its ten wake-ups a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self._over = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self.server_state.ending = True  # type: ignore[attr-defined]
        self._over.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: signals are the coordinator's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's, but unauthenticated peers get only so much."""
        loop = asyncio.get_running_loop()

        async def take(peer: UnauthenticatedPeer) -> None:
            protocol = functools.partial(
                _Protocol,
                peer,
                config=self.config,
                server_state=self.server_state,
                app_state=self.lifespan.state,
                _loop=loop,
            )
            await loop.connect_accepted_socket(protocol, peer.sock)

        # A request's head comes at once with its connection: nobody needs time undisturbed.
        unauthenticated = UnauthenticatedPeers(unauthenticated_at_a_port(), undisturbed_s=0.0)
        self.servers = [Listener(sockets or (), take, unauthenticated, silent_s=HEAD_S)]  # type: ignore[list-item]
        self.started = True

    async def main_loop(self) -> None:
        self.up.set()
        await self._over.wait()


class _Protocol(H11Protocol):
    """Connections that do not finish their requests are not kept."""

    def __init__(self, peer: UnauthenticatedPeer, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Whatever handlers the program has: an access log would hold the tickets of one-time links.
        self.access_log = False
        self.ws_protocol_class = functools.partial(  # type: ignore[assignment]
            self.config.ws_protocol_class,  # type: ignore[arg-type]
            peer=peer,
        )
        self._peer = peer
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if getattr(self.server_state, "ending", False):
            # Accepted just when the server ended: it would never be closed.
            self.transport.abort()
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.gone()
        self._heard()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._between_requests() and self._waiting is None:
            self._wait()
        super().data_received(data)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before:
            self.scope[PEER] = self._peer  # type: ignore[typeddict-unknown-key]
            self._heard()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._peer.is_proven and self._waiting is None:
            self._wait()

    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD_S, self._give_up)

    def _heard(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        self._waiting = None
        if self._between_requests() and self.transport.get_protocol() is self:
            self.transport.abort()


def _worth_telling(record: logging.LogRecord) -> bool:
    """Malformed requests and connections that break off are not logged."""
    if record.levelno < logging.ERROR:
        return False
    problem = record.exc_info[1] if record.exc_info else None
    return not isinstance(problem, AnswerBrokeOff)
