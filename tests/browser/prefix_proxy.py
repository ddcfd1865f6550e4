"""A proxy as clusters have them: a path prefix, no streams, and its own way to sign people in."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import socket
import threading
from collections.abc import Iterator
from typing import Any

from tests.unit.web.serving import BEARER

PREFIX = "/proxy/application_1766_0001"
DROPPED = {"cookie", "authorization", "last-event-id", "connection", "host", "accept-encoding"}


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            self._pass_on()

    def _pass_on(self) -> None:
        assert self.path.startswith(PREFIX), self.path
        headers = {n: v for n, v in self.headers.items() if n.lower() not in DROPPED}
        onward = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=15)
        try:
            onward.request("GET", self.path.removeprefix(PREFIX), headers={**headers, **BEARER})
            self.server.open.append(onward)
            answer = onward.getresponse()
            # Like many proxies: nothing is passed on before it is whole.
            body = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Security-Policy", "Cache-Control", "Location"):
                if answer.headers[name] is not None:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        finally:
            onward.close()

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Browsers go away when they like."""


@contextlib.contextmanager
def prefix_proxy(target: int) -> Iterator[str]:
    """The page's address behind such a proxy."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.target = target  # type: ignore[attr-defined]
    server.open = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{PREFIX}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
        # A thread that waits for a stream's end wakes up from this, not from a close.
        for connection in server.open:  # type: ignore[attr-defined]
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(socket.SHUT_RDWR)
