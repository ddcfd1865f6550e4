"""Serve Horovod's gloo rendezvous on this task's port. Any Python 3.8+; standard library only.

A key-value store over HTTP, as Horovod's own launcher serves (``horovod/runner/http``):

* ``PUT /scope/key``: keep the body.
* ``GET /scope/key``: the body, or 404 while nobody has put it. Processes ask again every 10 ms.
* ``DELETE /scope/key``: that process has finished with the scope. Once all that take part in a known
  scope have, it is emptied, so that the same processes can meet again (``hvd.shutdown();
  hvd.init()``). Of a scope nobody announced, the key is removed at once.

HOROVOD_SCOPES (JSON) has the number of processes of each known scope.
"""

import json
import os
import socket
import socketserver
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

LONGEST_VALUE = 16 * 1024 * 1024
"""Bytes; addresses are a few hundred for each process."""
QUIET_S = 10
"""Seconds a connection may be silent."""


class RendezvousStore:
    """Values by scope and key, and who has finished with a scope."""

    def __init__(self, sizes: dict) -> None:
        self._sizes = sizes
        self._values = {}
        self._finished = {}
        self._lock = threading.Lock()

    def get(self, scope: str, key: str) -> Any:
        with self._lock:
            return self._values.get(scope, {}).get(key)

    def put(self, scope: str, key: str, value: bytes) -> None:
        with self._lock:
            self._values.setdefault(scope, {})[key] = value

    def finish(self, scope: str, key: str) -> None:
        with self._lock:
            if scope not in self._sizes:
                values = self._values.get(scope, {})
                values.pop(key, None)
                if not values:
                    self._values.pop(scope, None)
                return
            finished = self._finished.setdefault(scope, set())
            finished.add(key)
            if len(finished) >= self._sizes[scope]:
                self._values.pop(scope, None)
                del self._finished[scope]


class Handler(BaseHTTPRequestHandler):
    timeout = QUIET_S
    store: RendezvousStore
    """Set on a subclass of each server's own."""

    def do_GET(self) -> None:
        place = self.place()
        if place is None:
            return
        value = self.store.get(*place)
        if value is None:
            self.answer(404)
        else:
            self.answer(200, value)

    def do_PUT(self) -> None:
        place = self.place()
        if place is None:
            return
        try:
            length = int(self.headers["Content-Length"])
        except (TypeError, ValueError):
            self.answer(411)
            return
        if not 0 <= length <= LONGEST_VALUE:
            self.answer(413)
            return
        value = self.rfile.read(length)
        if len(value) == length:
            self.store.put(place[0], place[1], value)
            self.answer(200)

    def do_DELETE(self) -> None:
        place = self.place()
        if place is not None:
            self.store.finish(*place)
            self.answer(200)

    def place(self) -> Any:
        """Scope and key of the request; answers 400 and is None if there are none."""
        parts = self.path.split("/")
        if len(parts) == 3 and parts[0] == "" and parts[1] and parts[2]:
            return parts[1], parts[2]
        self.answer(400)
        return None

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Thousands of requests ask for what is not there yet: none is worth a line."""


class RendezvousServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, address: tuple, sizes: dict) -> None:
        self.address_family = socket.getaddrinfo(address[0], None)[0][0]
        super().__init__(address, type("Handler", (Handler,), {"store": RendezvousStore(sizes)}))

    def server_bind(self) -> None:
        # HTTPServer's own would ask the name service who we are, which can take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]


def main() -> None:
    host, port = os.environ["HOWDAH_HOST"], int(os.environ["HOWDAH_PORT"])
    with RendezvousServer((host, port), json.loads(os.environ["HOROVOD_SCOPES"])) as server:
        count = os.environ["HOWDAH_WORLD_SIZE"]
        print(f"rendezvous for {count} processes on {host}:{port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
