"""Headers by which a team's portal knows its readers: each once, and taken as it is."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from howdah.coordinator.web.security import GateMiddleware, Refusal
from howdah.portal.access_control import Reader, Team, TeamGate
from tests.unit.web.fake_job import FakeJob

TEAM = Team(
    user_header="X-Forwarded-User",
    group_header="X-Forwarded-Groups",
    proxies=(ipaddress.ip_network("127.0.0.1/32"),),
)


def status(*headers: tuple[str, bytes]) -> int:
    """What the gate answers to a request with these headers."""
    gate = TeamGate(FakeJob(), lambda: 0.0, TEAM)

    def refused(refusal: Refusal) -> PlainTextResponse:
        return PlainTextResponse(refusal.message, refusal.status)

    app = GateMiddleware(PlainTextResponse("let in"), gate, refused)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(name.lower().encode(), value) for name, value in headers],
        "client": ("127.0.0.1", 5),
    }
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"]


BOB = ("X-Forwarded-User", b"bob")


def test_a_header_that_is_there_twice_lets_nobody_in() -> None:
    """One of the two is the reader's own, which the proxy has passed on."""
    assert status(BOB, ("X-Forwarded-Groups", b"a, b")) == 200
    assert status(BOB, ("X-Forwarded-Groups", b"a"), ("x-forwarded-groups", b"admins")) == 400
    assert status(BOB, BOB) == 400
    assert status(BOB, ("Accept", b"text/plain"), ("Accept", b"text/html")) == 200


@pytest.mark.parametrize("byte", [b"\xa0", b"\x85", b"\x0b", b"\x1c"])
def test_bytes_that_look_like_blanks_do_not_make_another_user(byte: bytes) -> None:
    assert status(("X-Forwarded-User", b"bob" + byte)) == 400
    assert status(("X-Forwarded-User", byte + b"bob")) == 400
    groups = (b"admins" + byte).decode("latin-1")
    reader = TEAM.reader({"x-forwarded-user": " bob\t", "x-forwarded-groups": f" a ,{groups}"})
    assert reader == Reader("bob", ("a", groups)), "a group that is none of anybody's"
