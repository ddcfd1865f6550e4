"""The rendezvous server, over real connections, as Horovod's processes use it."""

from __future__ import annotations

import http.client
import importlib.util
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from howdah.frameworks.programs import HELPERS

Ask = Callable[..., tuple[int, bytes]]


@pytest.fixture
def ask() -> Iterator[Ask]:
    place = Path(HELPERS) / "horovod_main.py"
    spec = importlib.util.spec_from_file_location("horovod_main", place)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = {"global_": 2, "local_a": 1}
    with module.RendezvousServer(("127.0.0.1", 0), sizes) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()

        def ask(method: str, path: str, body: bytes | None = None, **headers: str):
            connection = http.client.HTTPConnection(*server.server_address[:2], timeout=5)
            try:
                connection.request(method, path, body, headers)
                answer = connection.getresponse()
                return answer.status, answer.read()
            finally:
                connection.close()

        ask.address = server.server_address[:2]  # type: ignore[attr-defined]
        yield ask
        server.shutdown()
        thread.join()


def test_a_value_is_not_found_until_somebody_has_put_it(ask: Ask):
    assert ask("GET", "/global_/0") == (404, b"")
    assert ask("PUT", "/global_/0", b"\x00address\xff") == (200, b"")
    assert ask("GET", "/global_/0") == (200, b"\x00address\xff")


def test_scopes_do_not_mix(ask: Ask):
    ask("PUT", "/local_a/0", b"a")
    assert ask("GET", "/cross_0/0")[0] == 404


def test_a_value_may_be_empty_and_may_be_replaced(ask: Ask):
    ask("PUT", "/global_/0", b"old")
    ask("PUT", "/global_/0", b"")
    assert ask("GET", "/global_/0") == (200, b"")


def test_a_scope_is_kept_until_all_have_finished_with_it(ask: Ask):
    ask("PUT", "/global_/0", b"a")
    ask("PUT", "/global_/1", b"b")
    assert ask("DELETE", "/global_/0")[0] == 200
    assert ask("DELETE", "/global_/0")[0] == 200  # the same process, again
    assert ask("GET", "/global_/0") == (200, b"a")
    ask("DELETE", "/global_/1")
    assert ask("GET", "/global_/0")[0] == 404
    assert ask("GET", "/global_/1")[0] == 404


def test_the_same_processes_may_meet_again(ask: Ask):
    for address in (b"first", b"second"):
        ask("PUT", "/global_/0", address)
        assert ask("GET", "/global_/0") == (200, address)
        for rank in (0, 1):
            ask("DELETE", f"/global_/{rank}")


def test_a_scope_nobody_announced_loses_the_key_at_once(ask: Ask):
    ask("PUT", "/process_set_1/0", b"a")
    ask("PUT", "/process_set_1/1", b"b")
    ask("DELETE", "/process_set_1/0")
    assert ask("GET", "/process_set_1/0")[0] == 404
    assert ask("GET", "/process_set_1/1") == (200, b"b")


@pytest.mark.parametrize("path", ["/", "/global_", "/global_/", "//0", "/a/b/c", "x"])
@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_a_path_that_is_no_scope_and_key_is_refused(ask: Ask, method: str, path: str):
    assert ask(method, path, b"")[0] == 400


def test_a_value_without_a_sensible_length_is_refused(ask: Ask):
    headers = {"Content-Length": "many"}
    assert ask("PUT", "/global_/0", **headers)[0] == 411
    headers = {"Content-Length": str(10**12)}
    assert ask("PUT", "/global_/0", **headers)[0] == 413


def test_half_a_value_is_not_kept(ask: Ask):
    with socket.create_connection(ask.address, timeout=5) as peer:  # type: ignore[attr-defined]
        peer.sendall(b"PUT /global_/0 HTTP/1.0\r\nContent-Length: 100\r\n\r\nhalf")
        peer.shutdown(socket.SHUT_WR)
        assert peer.recv(100) == b""
    assert ask("GET", "/global_/0")[0] == 404
