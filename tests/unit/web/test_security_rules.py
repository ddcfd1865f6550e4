"""The pure checks behind the gate."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from howdah.backends.base import PageReaders
from howdah.coordinator.web import security
from howdah.coordinator.web.security import Proof
from howdah.wire import tickets

TOKEN = "secret"
JOB = "digits-1"
NOW = 1000.0


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8080",
        "LOCALHOST:1",
        "digits.localhost:8080",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[fe80::1]",
        "node1.cluster:8080",
        "Node1.Cluster.",
    ],
)
def test_addresses_localhost_and_own_names_are_ours(host: str) -> None:
    assert security.host_is_ours(host, {"node1.cluster"})


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "node1.cluster.evil.example",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1.evil.example",
        "10.0.0.1@evil.example",
        "node1",
        "[::1",
        "localhost:8080:9090.evil",
        "::1",
    ],
)
def test_other_names_are_not_ours(host: str) -> None:
    assert not security.host_is_ours(host, {"node1.cluster"})


def test_a_star_allows_every_host() -> None:
    assert security.host_is_ours("any.example", {"*"})


@pytest.mark.parametrize(
    ("given", "proof"),
    [
        ("Bearer secret", Proof.BEARER),
        ("bearer secret", Proof.BEARER),
        ("Bearer secre", None),
        ("Bearer secret2", None),
        ("Bearer ", None),
        ("Bearer", None),
        ("Basic secret", None),
        ("secret", None),
        ("Bearer s\u00e9cret", None),
        ("", None),
    ],
)
def test_only_the_whole_token_is_a_proof(given: str, proof: Proof | None) -> None:
    assert security.prove({"authorization": given}, TOKEN, JOB, NOW) is proof


def test_the_session_cookie_of_this_job_is_a_proof() -> None:
    good = tickets.mint_session(TOKEN, NOW)
    of_this = {"cookie": f"a=b; howdah-{JOB}={good}; c=d"}
    of_another = {"cookie": f"howdah-other={good}"}
    assert security.prove(of_this, TOKEN, JOB, NOW) is Proof.COOKIE
    assert security.prove(of_another, TOKEN, JOB, NOW) is None


@pytest.mark.parametrize(
    ("headers", "strict", "same"),
    [
        ({"origin": "http://h:1"}, True, True),
        ({"origin": "https://h:1"}, True, True),
        ({"origin": "http://h:2"}, True, False),
        ({"origin": "http://h"}, True, False),
        ({"origin": "null"}, True, False),
        ({"origin": "http://h:1.evil"}, True, False),
        ({"origin": "http://[h:1"}, True, False),
        ({"sec-fetch-site": "same-origin"}, True, True),
        ({"sec-fetch-site": "same-site"}, False, False),
        ({"sec-fetch-site": "cross-site"}, False, False),
        ({"sec-fetch-site": "none"}, False, True),
        ({"sec-fetch-site": "same-origin", "origin": "http://evil"}, True, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://h:1"}, True, False),
        ({}, True, False),
        ({}, False, True),
    ],
)
def test_same_origin(headers: dict[str, str], strict: bool, same: bool) -> None:
    assert security.is_same_origin({"host": "h:1", **headers}, strict=strict) is same


def test_cookies_of_job_pages_are_taken_out_of_a_header() -> None:
    header = "a=b;howdah-x=1; c=d; howdah-y=2 ; =e"
    assert security.own_cookies_removed(header) == "a=b; c=d; =e"
    assert security.own_cookies_removed("howdah-x=1") == ""


@pytest.mark.parametrize(
    ("given", "proof"),
    [
        (tickets.mint_pass(TOKEN, NOW), Proof.READER),
        (tickets.mint_pass(TOKEN, NOW - tickets.PASS_LIFE_S - 1), None),
        (tickets.mint_pass(TOKEN, NOW + tickets.PASS_LIFE_MAX_S), None),
        (tickets.mint_pass("another", NOW), None),
        (tickets.mint_ticket(TOKEN, NOW), None),
        (tickets.mint_session(TOKEN, NOW), None),
    ],
    ids=[
        "good",
        "too old",
        "not yet",
        "another job's",
        "ticket",
        "session",
    ],  # the same at each start
)
def test_a_pass_makes_a_reader_of_its_holder_for_a_while(given: str, proof: Proof | None) -> None:
    headers = {"authorization": f"Bearer {given}"}
    assert security.prove(headers, TOKEN, JOB, NOW) is proof
    cookie = {"cookie": f"{tickets.session_cookie(JOB)}={tickets.mint_pass(TOKEN, NOW)}"}
    assert security.prove(cookie, TOKEN, JOB, NOW) is None


def reading(
    method: str = "GET",
    user: str | None = "ann",
    client: str = "10.0.0.2",
    users: frozenset[str] | None = None,
) -> Proof:
    headers = {"host": "10.0.0.7:8080"}
    if user is not None:
        headers["cookie"] = f"proxy-user={user}"
    source: Any = SimpleNamespace(
        token=TOKEN, view=lambda: SimpleNamespace(job_id=JOB, incarnation=1)
    )
    readers = PageReaders(addresses=frozenset({"10.0.0.2"}), users=users)
    gate = security.Gate(source, (), lambda: NOW, readers)
    return asyncio.run(gate.admit(headers, method, stream=False, client=client))


def test_a_clusters_proxy_may_look_without_the_token() -> None:
    assert reading() is Proof.READER
    assert reading("HEAD") is Proof.READER
    users = frozenset({"ann o'neil@EXAMPLE.ORG"})
    assert reading(user="ann+o%27neil%40EXAMPLE.ORG", users=users) is Proof.READER


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
def test_a_clusters_proxy_may_only_look(method: str) -> None:
    with pytest.raises(security.Refusal, match="only be looked at") as refused:
        reading(method)
    assert refused.value.status == 403


@pytest.mark.parametrize(
    ("user", "client", "users", "status"),
    [
        (None, "10.0.0.2", None, 401),
        ("", "10.0.0.2", None, 401),
        ("ann", "10.0.0.20", None, 401),
        ("ann", "", None, 401),
        ("eve", "10.0.0.2", frozenset({"ann"}), 403),
    ],
)
def test_nobody_else_is_taken_for_it(
    user: str | None, client: str, users: frozenset[str] | None, status: int
) -> None:
    with pytest.raises(security.Refusal) as refused:
        reading(user=user, client=client, users=users)
    assert refused.value.status == status
