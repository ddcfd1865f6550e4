"""The reverse proxy to pages that tasks announce."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from howdah.coordinator.web import proxy
from howdah.core.messages import Task
from howdah.wire.messages import WebAddress
from tests.unit.web.fake_job import TOKEN
from tests.unit.web.serving import BEARER, Served, wait_until
from tests.unit.web.upstream import Program, head_of, program, raw_program


def announced(port: int, *, keeps_prefix: bool = False) -> WebAddress:
    return WebAddress(
        task=Task("tensorboard", 0),
        attempt=1,
        name="TensorBoard",
        host="127.0.0.1",
        port=port,
        keeps_prefix=keeps_prefix,
    )


def announce(served: Served, port: int, *, keeps_prefix: bool = False) -> None:
    served.do(
        lambda job: job.targets.update(
            {"tensorboard:0": announced(port, keeps_prefix=keeps_prefix)}
        )
    )


def saying(data: bytes) -> Callable[[socket.socket], None]:
    """A program that answers with these bytes, whatever it is asked."""

    def talk(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(data)

    return talk


@contextmanager
def asking(served: Served) -> Iterator[socket.socket]:
    """A connection on which the program's page has been asked for."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as browser:
        browser.sendall(
            b"GET /proxy/tensorboard:0/ HTTP/1.1\r\nHost: localhost\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
        )
        yield browser


def test_the_path_is_kept_or_cut_as_announced(served: Served) -> None:
    with program() as port:
        announce(served, port)
        told = served.get("/proxy/tensorboard:0/data/a%20b?x=1&y=%2F").json()
        assert told["path"] == "/data/a%20b?x=1&y=%2F"
        announce(served, port, keeps_prefix=True)
        told = served.get("/proxy/tensorboard%3A0/data/a%20b?x=1").json()
        assert told["path"] == "/proxy/tensorboard:0/data/a%20b?x=1"


def test_a_page_without_its_slash_gets_one_in_the_browser(served: Served) -> None:
    with program() as port:
        announce(served, port)
        answer = served.get("/proxy/tensorboard:0")
        assert b'url=./tensorboard:0/"' in answer.body


def test_secrets_and_connection_headers_stay_here(served: Served) -> None:
    cookie = served.log_in()["Cookie"]
    headers = {
        "Cookie": f"{cookie}; theirs=1; howdah-other-job=2",
        "Authorization": f"Bearer {TOKEN}",
        "Connection": "keep-alive, X-Internal",
        "X-Internal": "1",
        "Keep-Alive": "timeout=5",
        "Proxy-Authorization": "Basic abc",
        "TE": "trailers",
        "X-Forwarded-For": "6.6.6.6",
        "X-Custom": "kept",
        "Accept-Encoding": "br",
    }
    with program() as port:
        announce(served, port)
        told = served.get("/proxy/tensorboard:0/", headers=headers).json()["headers"]
    assert told["cookie"] == "theirs=1"
    assert told["x-custom"] == "kept"
    assert told["accept-encoding"] == "br"
    assert told["host"] == f"127.0.0.1:{served.port}"
    assert told["x-forwarded-for"] == "127.0.0.1"
    assert told["connection"] == "close"
    assert not {"authorization", "proxy-authorization", "x-internal", "te", "keep-alive"} & set(
        told
    )
    assert TOKEN not in str(told)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_bodies_go_through_with_or_without_a_length(served: Served, method: str) -> None:
    body = b"0123456789" * 50_000
    with program() as port:
        announce(served, port)
        told = served.ask(method, "/proxy/tensorboard:0/x", body=body).json()
        assert (told["method"], told["body"]) == (method, body.decode())
        parts = iter([b"one", b"", b"two" * 1000])
        told = served.ask(
            method,
            "/proxy/tensorboard:0/x",
            body=(part for part in parts if part),
            headers={**BEARER, "Transfer-Encoding": "chunked"},
            encode_chunked=True,
        ).json()
        assert told["body"] == "one" + "two" * 1000


def test_answers_of_all_kinds_come_back(served: Served) -> None:
    def big(request: Program) -> None:
        request.answer(200, b"z" * 3_000_000, {"Content-Type": "text/x", "X-A": "1\n2"})

    def empty(request: Program) -> None:
        request.send_response(204)
        request.end_headers()

    def unchanged(request: Program) -> None:
        request.send_response(304)
        request.send_header("ETag", '"a"')
        request.end_headers()

    def failing(request: Program) -> None:
        request.answer(500, b"own words")

    with program(big=big, empty=empty, unchanged=unchanged, failing=failing) as port:
        announce(served, port)
        answer = served.get("/proxy/tensorboard:0/big")
        assert (answer.status, len(answer.body)) == (200, 3_000_000)
        assert answer.headers.get_all("X-A") == ["1", "2"]
        assert served.ask("HEAD", "/proxy/tensorboard:0/big").headers["Content-Length"] == "3000000"
        assert served.get("/proxy/tensorboard:0/empty").status == 204
        assert served.get("/proxy/tensorboard:0/unchanged").headers["ETag"] == '"a"'
        answer = served.get("/proxy/tensorboard:0/failing")
        assert (answer.status, answer.body) == (500, b"own words")


def test_an_answer_without_a_length_ends_with_its_connection(served: Served) -> None:
    said = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it"
    with raw_program(saying(said)) as port:
        announce(served, port)
        assert served.get("/proxy/tensorboard:0/").body == b"all of it"


def test_a_stream_comes_through_as_it_is_written(served: Served) -> None:
    go_on = threading.Event()

    def talk(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        assert go_on.wait(10)
        connection.sendall(b"6\r\nsecond\r\n0\r\n\r\n")

    with raw_program(talk) as port:
        announce(served, port)
        with asking(served) as browser:
            data = b""
            while b"first" not in data:
                data += browser.recv(4096)
            go_on.set()
            while b"second" not in data:
                data += browser.recv(4096)


def test_the_program_hears_when_the_browser_leaves(served: Served) -> None:
    gone = threading.Event()

    def talk(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        if connection.recv(10) == b"":
            gone.set()

    with raw_program(talk) as port:
        announce(served, port)
        with asking(served) as browser:
            assert browser.recv(4096)
        assert gone.wait(10)


def test_an_early_answer_ends_an_upload(served: Served) -> None:
    def talk(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 413 No\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass

    with raw_program(talk) as port:
        announce(served, port)
        answer = served.ask("POST", "/proxy/tensorboard:0/", body=b"x" * 100_000)
        assert (answer.status, answer.body) == (413, b"big")


def test_only_announced_programs_are_reached(served: Served) -> None:
    with program() as port:
        announce(served, port)
        for path in (
            "/proxy/worker:0/",
            f"/proxy/127.0.0.1:{port}/",
            f"/proxy/http:%2F%2F127.0.0.1:{port}/",
            "/proxy/tensorboard:00/",
            "/proxy//",
        ):
            assert served.get(path).status == 404, path
        answer = served.get("/proxy/worker:0/")
        assert "tensorboard:0" in answer.error


def test_a_request_for_another_host_is_not_passed_on(served: Served) -> None:
    with program() as port:
        announce(served, port)
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as browser:
            browser.sendall(
                f"GET http://127.0.0.1:{port}/secret HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            assert browser.recv(4096).startswith(b"HTTP/1.1 404")


def test_a_program_that_is_not_there_is_named_and_tried_again(served: Served) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    announce(served, port)
    answer = served.get("/proxy/tensorboard:0/")
    assert answer.status == 502
    assert f"127.0.0.1:{port}".encode() in answer.body
    assert b'http-equiv="refresh"' in answer.body
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "garbage", [b"", b"\x16\x03\x01\x02\x00 this is TLS", b"HTTP/1.1 abc\r\n\r\n"]
)
def test_a_program_that_speaks_no_http_is_an_error_of_its_own(
    served: Served, garbage: bytes
) -> None:
    with raw_program(saying(garbage)) as port:
        announce(served, port)
        assert served.get("/proxy/tensorboard:0/").status == 502


def test_an_answer_that_breaks_off_breaks_off_here_too(served: Served) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
    with raw_program(saying(half)) as port:
        announce(served, port)
        with asking(served) as browser:
            data = b""
            while part := browser.recv(4096):
                data += part
        assert data.endswith(b"half")


def test_an_endless_head_is_not_read_for_ever(served: Served) -> None:
    with raw_program(saying(b"HTTP/1.1 200 OK\r\nX-A: " + b"x" * 1_000_000)) as port:
        announce(served, port)
        assert served.get("/proxy/tensorboard:0/").status == 502


def test_a_program_cannot_set_our_cookies_nor_take_our_pages_over(served: Served) -> None:
    cookies = "\n".join(
        [
            "theirs=1; Path=/; HttpOnly",
            "deep=2; Path=/sub; Domain=example.org",
            f"howdah-{served.job.head.job_id}=stolen; Path=/",
            "plain=3",
        ]
    )

    def page(request: Program) -> None:
        headers = {
            "Set-Cookie": cookies,
            "Service-Worker-Allowed": "/",
            "Clear-Site-Data": '"cookies"',
            "Content-Security-Policy": "default-src 'self'",
            "Connection": "close, X-Odd",
            "X-Odd": "1",
        }
        request.answer(200, b"page", headers)

    with program(page=page) as port:
        announce(served, port)
        headers = served.get("/proxy/tensorboard:0/page").headers
        assert headers.get_all("Set-Cookie") == [
            "theirs=1; Path=/proxy/tensorboard:0/; HttpOnly",
            "deep=2; Path=/proxy/tensorboard:0/sub",
            "plain=3",
        ]
        for name in ("Service-Worker-Allowed", "Clear-Site-Data", "X-Odd"):
            assert headers[name] is None
        assert headers.get_all("Content-Security-Policy") == ["default-src 'self'"]
        assert headers["X-Frame-Options"] == "SAMEORIGIN"


AT = proxy.ProxyTarget("page.example:81", "/proxy/tensorboard:0/a/b")


@pytest.mark.parametrize(
    ("location", "kept", "cut"),
    [
        ("/proxy/tensorboard:0/login?next=%2F", "../login?next=%2F", None),
        ("/login", "../login", "../login"),
        ("/", "../", "../"),
        ("/a/c", "c", "c"),
        ("/a/", "./", "./"),
        ("c/d", "c/d", "c/d"),
        ("?x=1", "?x=1", "?x=1"),
        ("http://127.0.0.1:6006/a/c#f", "c#f", "c#f"),
        ("http://page.example:81/a/c", "c", "c"),
        ("https://elsewhere.example/a", "https://elsewhere.example/a", None),
        ("//elsewhere.example/a", "//elsewhere.example/a", None),
        ("/a/x:y", "./x:y", "./x:y"),
    ],
)
def test_redirects_become_relative(location: str, kept: str, cut: str | None) -> None:
    for keeps_prefix, wanted in ((True, kept), (False, cut)):
        if wanted is not None:
            address = announced(6006, keeps_prefix=keeps_prefix)
            found = proxy.relocated(location, at=AT, task="tensorboard:0", address=address)
            assert found == wanted


# -- websockets --------------------------------------------------------------------------------------

UPGRADE = (
    "GET /proxy/tensorboard:0/api/kernels?token=a HTTP/1.1\r\nHost: localhost:{port}\r\n"
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{more}\r\n"
)


def test_a_websocket_is_passed_on_both_ways(served: Served) -> None:
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        heads.append(head_of(connection))
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\nhello"
        )
        while data := connection.recv(65536):
            connection.sendall(data.upper())

    cookie = served.log_in()["Cookie"]
    with raw_program(talk) as port:
        announce(served, port)
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as browser:
            more = f"Cookie: {cookie}; a=b\r\nOrigin: http://localhost:{served.port}\r\n"
            browser.sendall(UPGRADE.format(port=served.port, more=more).encode())
            data = b""
            while not data.endswith(b"hello"):
                data += browser.recv(4096)
            assert data.startswith(b"HTTP/1.1 101")
            for _ in range(20):
                browser.sendall(b"frame" * 10_000)
                back = b""
                while len(back) < 50_000:
                    back += browser.recv(65536)
                assert back == b"FRAME" * 10_000
    head = heads[0].decode().lower()
    assert head.startswith("get /api/kernels?token=a http/1.1\r\n")
    assert "upgrade: websocket" in head
    assert "cookie: a=b\r\n" in head
    assert "howdah-" not in head


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ("", 401),
        ("Authorization: Bearer wrong\r\n", 401),
        ("Cookie: {cookie}\r\nOrigin: http://evil.example\r\n", 403),
        ("Cookie: {cookie}\r\nSec-Fetch-Site: cross-site\r\n", 403),
    ],
)
def test_a_websocket_of_a_stranger_is_refused(served: Served, more: str, status: int) -> None:
    cookie = served.log_in()["Cookie"]
    reached = threading.Event()
    with raw_program(lambda connection: reached.set()) as port:
        announce(served, port)
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as browser:
            browser.sendall(
                UPGRADE.format(port=served.port, more=more.format(cookie=cookie)).encode()
            )
            assert browser.recv(4096).startswith(f"HTTP/1.1 {status}".encode())
        assert not reached.is_set()


def test_a_websocket_elsewhere_is_refused(served: Served) -> None:
    for path in ("/", "/api/v1/stream", "/proxy/worker:0/", "/proxyx/tensorboard:0/"):
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as browser:
            more = f"Authorization: Bearer {TOKEN}\r\n"
            request = UPGRADE.format(port=served.port, more=more)
            browser.sendall(
                request.replace("/proxy/tensorboard:0/api/kernels?token=a", path).encode()
            )
            assert browser.recv(4096).startswith(b"HTTP/1.1 404")


def test_open_websockets_end_with_the_server(served: Served) -> None:
    def talk(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\n\r\nhello")
        assert connection.recv(10) == b""

    with raw_program(talk) as port:
        announce(served, port)
        with socket.create_connection(("127.0.0.1", served.port), timeout=10) as browser:
            more = f"Authorization: Bearer {TOKEN}\r\n"
            browser.sendall(UPGRADE.format(port=served.port, more=more).encode())
            data = b""
            while not data.endswith(b"hello"):
                data += browser.recv(4096)
            served.run(served.server.close())
            assert browser.recv(10) == b""
    wait_until(lambda: not served.job.listeners, "no listeners")
