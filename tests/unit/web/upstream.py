"""A stand-in for a task's web program: a tiny HTTP server that tells what it was sent."""

from __future__ import annotations

import contextlib
import http.server
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

Handler = Callable[["Program"], None]


class Program(http.server.BaseHTTPRequestHandler):
    """Answers by the handlers of its server; unknown paths tell the request back as JSON."""

    protocol_version = "HTTP/1.1"
    server: Any

    def handle_one_request(self) -> None:
        # A browser that goes away is no error here.
        with contextlib.suppress(ConnectionError):
            super().handle_one_request()

    def _any(self) -> None:
        body = self.read_body()
        path = self.path.partition("?")[0]
        handler = self.server.handlers.get(path)
        if handler is not None:
            handler(self)
            return
        told = {
            "method": self.command,
            "path": self.path,
            "headers": {name.lower(): value for name, value in self.headers.items()},
            "body": body.decode("latin-1"),
        }
        self.answer(200, msgspec.json.encode(told), {"Content-Type": "application/json"})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = do_PATCH = _any

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts: list[bytes] = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            for each in value.split("\n"):
                self.send_header(name, each)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    handlers: dict[str, Handler]


@contextlib.contextmanager
def program(**handlers: Handler) -> Iterator[int]:
    """The port of a running program; keywords are paths without their slash."""
    server = _Server(("127.0.0.1", 0), Program)
    server.handlers = {f"/{path}": handler for path, handler in handlers.items()}
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


@contextlib.contextmanager
def raw_program(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a program that talks over one connection as it likes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(10)
                talk(connection)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        with contextlib.suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


def head_of(connection: socket.socket) -> bytes:
    """Bytes up to the end of a head."""
    data = b""
    while b"\r\n\r\n" not in data:
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return data
