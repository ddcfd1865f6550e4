"""What a team's portal passes on of the answers of a job's coordinator, which may be anybody's program."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from howdah.portal import live_answers
from howdah.wire import tickets

TOKEN = "token-of-the-job"
NOW = 1_795_269_769.0
HOSTILE = (
    b"Content-Type: text/html\r\nSet-Cookie: _oauth2_proxy=stolen\r\nContent-Security-Policy: default-src *\r\n"
    b'Location: http://evil.example/\r\nContent-Encoding: gzip\r\nClear-Site-Data: "*"\r\n'
    b"Access-Control-Allow-Origin: *\r\nRefresh: 0; url=http://evil.example/\r\n"
    b'ETag: "0-1"\r\nContent-Disposition: inline; filename="x.html"\r\nContent-Length: 9\r\n\r\n<script/>'
)


def asked(
    answer: bytes, path: str = "/api/v1/job", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> tuple[bytes, list[dict[str, Any]]]:
    """What came to the coordinator, and what went to the reader."""
    sent: list[dict[str, Any]] = []
    heard = b""

    async def coordinator(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        heard = await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async def receive() -> dict[str, Any]:
        if not received:
            received.append(1)
            return {"type": "http.request"}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    received: list[int] = []
    scope = {
        "type": "http",
        "method": "GET",
        "query_string": b"a=1",
        "raw_path": path.encode(),
        "client": ("10.1.2.3", 4),
        "headers": list(headers),
    }

    async def work() -> None:
        server = await asyncio.start_server(coordinator, "127.0.0.1")
        async with server:
            media = live_answers.kind(path)
            assert media is not None
            await live_answers.ask(
                scope, receive, send, path=path, media=media,
                port=server.sockets[0].getsockname()[1], token=TOKEN, now=NOW,
            )  # fmt: skip

    asyncio.run(work())
    return heard, sent


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/api/v1/job", b"application/json"),
        ("/api/v1/logs/worker:0/raw", b"text/plain"),
        ("/api/v1/stream", b"text/event-stream"),
    ],
)
def test_a_browser_takes_an_answer_for_nothing_but_what_was_asked_for(
    path: str, media: bytes
) -> None:
    _, (start, *bodies) = asked(b"HTTP/1.1 200 OK\r\n" + HOSTILE, path)
    own = dict(start["headers"])
    assert own.pop(b"x-accel-buffering", b"no") == b"no"
    assert own == {b"content-type": media, b"etag": b'"0-1"'}
    assert b"".join(each["body"] for each in bodies if "body" in each) == b"<script/>"
    _, (start, *_) = asked(b"HTTP/1.1 404 Not Found\r\n" + HOSTILE, path)
    assert dict(start["headers"])[b"content-type"] == b"application/json"


@pytest.mark.parametrize("status", [201, 204, 301, 302, 401, 403, 407, 421, 500, 511])
def test_what_no_answer_to_a_reader_can_be_is_not_passed_on(status: int) -> None:
    words = "older Howdah" if status in (401, 403) else f"answered {status}"
    with pytest.raises(live_answers.NoAnswer, match=words) as refused:
        asked(b"HTTP/1.1 %d What\r\n" % status + HOSTILE)
    assert isinstance(refused.value, live_answers.NotLetIn) == (status in (401, 403))


def test_nothing_of_a_readers_request_reaches_the_coordinator_but_what_is_asked() -> None:
    given = (
        (b"host", b"jobs.example"),
        (b"cookie", b"_oauth2_proxy=session"),
        (b"authorization", b"Bearer mine"),
        (b"x-forwarded-user", b"vera"),
        (b"x-forwarded-access-token", b"secret"),
        (b"if-none-match", b'"0-1"'),
    )
    heard, _ = asked(b"HTTP/1.1 200 OK\r\n" + HOSTILE, headers=given)
    line, *rest = heard.decode().strip().split("\r\n")
    headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in rest)}
    assert line == "GET /api/v1/job?a=1 HTTP/1.1"
    assert headers.keys() <= {
        "host", "if-none-match", "authorization", "x-forwarded-for", "connection"
    }  # fmt: skip
    scheme, _, shown = headers["authorization"].partition(" ")
    assert (
        scheme == "Bearer"
        and tickets.pass_is_good(shown, TOKEN, NOW)
        and TOKEN not in heard.decode()
    )
    assert "10.1.2.3" not in heard.decode()


def test_only_what_can_be_looked_at_is_asked_for() -> None:
    for path in (
        "/",
        "/api/v1/stop",
        "/api/v1/stacks/worker:0",
        "/proxy/worker:0/",
        "/login",
        "/api/v1/jo",
    ):
        assert live_answers.kind(path) is None, path
    assert live_answers.kind("/api/v1/logs/worker:0/attempts") == "application/json"
