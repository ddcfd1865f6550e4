"""What a program behind the proxy can do to the job page's session."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from howdah.core.messages import Task
from howdah.wire.messages import WebAddress
from tests.unit.web.serving import BEARER, Served, serving
from tests.unit.web.upstream import Program, head_of, program, raw_program

OURS = (
    "howdah-job=1",
    "=howdah-job=1",
    "= howdah-job=1",
    "==howdah-job=1",
    " =\thowdah-job=1; Path=/",
    "howdah-job",
)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


def announce(served: Served, port: int) -> None:
    address = WebAddress(
        task=Task("worker", 0), attempt=1, name="Page", host="127.0.0.1", port=port
    )
    served.do(lambda job: job.link("worker:0", address))


@pytest.mark.parametrize("cookie", OURS)
def test_a_program_sets_no_cookie_by_our_names(served: Served, cookie: str) -> None:
    """Finding 13: A program sets a cookie with the name of a job page's, or one without a name
    whose value looks like it when the browser sends it back. Neither gets through."""

    def answer(request: Program) -> None:
        request.answer(200, b"", {"Set-Cookie": f"a=b\n{cookie}"})

    with program(page=answer) as port:
        announce(served, port)
        found = served.get("/proxy/worker:0/page").headers.get_all("Set-Cookie")
        assert found == ["a=b"]


def upgraded(served: Served, answer: bytes) -> tuple[bytes, list[bytes]]:
    """What a browser gets that asks for a websocket and then sends a request, and what of that the
    program gets."""
    got: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        head_of(connection)
        connection.sendall(answer)
        while data := connection.recv(65536):
            got.append(data)

    with (
        raw_program(talk) as port,
        socket.create_connection(("127.0.0.1", served.port), timeout=10) as browser,
    ):
        announce(served, port)
        token = BEARER["Authorization"]
        browser.sendall(
            f"GET /proxy/worker:0/ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nAuthorization: {token}\r\n\r\n".encode()
        )
        back = b""
        while b"\r\n\r\n" not in back:
            back += browser.recv(65536)
        try:
            browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nCookie: howdah-job=1\r\n\r\n")
            browser.shutdown(socket.SHUT_WR)
            while data := browser.recv(65536):
                back += data
        except OSError:
            pass
    return back, got


@pytest.mark.parametrize("cookie", OURS)
def test_a_websockets_answer_sets_no_cookie_by_our_names(served: Served, cookie: str) -> None:
    """Finding 13: A program sets such a cookie in the answer that opens a websocket. It is filtered
    like any other answer."""
    head = (
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: x\r\nSet-Cookie: a=b\r\nset-cookie: {cookie}\r\n"
        'Clear-Site-Data: "cookies"\r\n\r\nframes'
    )
    back, _ = upgraded(served, head.encode())
    answer, _, rest = back.partition(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"upgrade: websocket" in answer
    assert b"sec-websocket-accept: x" in answer
    assert b"set-cookie: a=b" in answer
    assert b"howdah-" not in answer
    assert b"clear-site-data" not in answer.lower()
    assert rest.startswith(b"frames")


def test_a_websockets_answer_hides_no_header_behind_a_lone_line_feed(served: Served) -> None:
    """A program hides a header in another one's value, behind a line feed alone. It is not passed
    on."""
    answer = b"HTTP/1.1 101 Switching Protocols\r\nX: a\nSet-Cookie: howdah-job=1\r\n\r\n"
    back, _ = upgraded(served, answer)
    assert back.startswith(b"HTTP/1.1 502 ")
    assert b"howdah-job" not in back


def test_a_refused_websocket_gives_the_program_no_later_request(served: Served) -> None:
    """A program answers an upgrade with an ordinary answer, to get the browser's next request on
    that connection, which has the session cookie. The connection ends instead."""
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: howdah-job=1\r\n\r\nok"
    back, got = upgraded(served, answer)
    assert back.startswith(b"HTTP/1.1 502 ")
    assert b"howdah-job" not in back
    assert b"howdah-job" not in b"".join(got)
