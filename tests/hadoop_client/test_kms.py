"""Key Management Servers that are none, or break off."""

from __future__ import annotations

import socketserver
import threading
from typing import Any

import pytest

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConnectFailed
from howdah.hadoop.security import gss, kms
from howdah.hadoop.security.login import Login
from howdah.hadoop.security.providers import TokenRequest


class _Ticket:
    """Proves who we are to whoever asks."""

    def __init__(self, *server: Any) -> None:
        pass

    def step(self, token: bytes) -> bytes:
        return b"proof"


@pytest.mark.parametrize(
    "answer",
    [b"what?\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", b""],
    ids=["no-http", "broken-off", "nothing"],
)
def test_a_key_server_that_answers_with_something_else_is_named(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(answer)

    monkeypatch.setattr(gss, "GssContext", _Ticket)
    request = TokenRequest(Login("ada", "ada@HERE"), Configuration({}), "ada", {})
    with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_address[1]}"
        with pytest.raises(ConnectFailed, match=place):
            kms.tokens(request, [f"kms://http@{place}/kms"])
        server.shutdown()
