"""Strangers in number: connections that prove nothing cost the job nothing and keep nobody out.

A real coordinator runs with 256 descriptors, so that a few hundred connections are a flood.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import processes, standin
from benchmarks.coordinator import Fleets
from benchmarks.jobs import events as journaled
from howdah.coordinator.web import server
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire import descriptors
from tests.cli.howdah import until
from tests.security.strangers import bare_context
from tests.spark.feed.conftest import feed_secrets, rig
from tests.spark.feed.rig import Feeder, Rig
from tests.unit.web.serving import BEARER, Served, serving

__all__ = ["feed_secrets", "rig"]

ROOT = Path(__file__).parents[2]
DESCRIPTORS = 256
FLOOD = 400
AGENTS = 4


class Small:
    """A coordinator with few descriptors, and agents that beat."""

    def __init__(self, directory: JobDirectory, process: subprocess.Popen[bytes]) -> None:
        self.directory = directory
        self.process = process
        self.address: CoordinatorAddress = until(self._with_page, "the page")

    def _with_page(self) -> CoordinatorAddress | None:
        address = self.directory.coordinator()
        return address if address is not None and address.http_port else None

    def ask(self) -> int:
        """The owner's request, over a connection of its own: its status."""
        return self._get("/api/v1/job").status

    def job(self) -> Any:
        """The status document."""
        return msgspec.json.decode(self._get("/api/v1/job").read())

    def _get(self, path: str) -> http.client.HTTPResponse:
        link = http.client.HTTPConnection("127.0.0.1", self.address.http_port, timeout=20)
        headers = {"Authorization": f"Bearer {self.directory.token()}", "Connection": "close"}
        link.request("GET", path, headers=headers)
        return link.getresponse()

    def log(self) -> str:
        return (self.directory.logs / "coordinator.log").read_text()


LIMITED = """
import os, resource, sys
limit, *command = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(limit), int(limit)))
os.execv(command[0], command)
"""
"""A fork of the tests' own process that runs Python before it begins may find locks there that none will free."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    directory = JobDirectory(tmp_path_factory.mktemp("jobs") / "flood-20261121-120000-aaaa")
    standin.make_job(directory, AGENTS)
    line = [sys.executable, "-c", LIMITED, str(DESCRIPTORS)]
    line += [sys.executable, "-m", "benchmarks.standin", str(directory.path)]
    with contextlib.ExitStack() as stack:
        process = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.kill)
        until((directory.path / standin.LAUNCHED).exists, "the grants")
        fleets = Fleets(stack, directory, AGENTS, 1)
        fleets.until(incarnation=1, running=True)
        yield Small(directory, process)


def flood(stack: contextlib.ExitStack, port: int, first: bytes, count: int = FLOOD) -> None:
    """Hold that many connections, each begun with those bytes."""
    for _ in range(count):
        sock = stack.enter_context(socket.socket())
        sock.settimeout(20)
        with contextlib.suppress(ConnectionError):
            sock.connect(("127.0.0.1", port))
            sock.sendall(first)


def client_hello() -> bytes:
    """The first flight of a TLS client, which the server answers with work and memory."""
    out = ssl.MemoryBIO()
    talk = bare_context().wrap_bio(ssl.MemoryBIO(), out)
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return out.read()


@pytest.mark.parametrize(
    ("port", "first"),
    [
        pytest.param("wire", b"", id="wire, idle"),
        pytest.param("wire", client_hello(), id="wire, client hello"),
        pytest.param("page", b"GET /login HTTP/1.1\r\nX-A: ", id="page, half a head"),
        pytest.param("page", b"", id="page, idle", marks=pytest.mark.nightly),
        pytest.param("page", b"GET /a", id="page, half a line", marks=pytest.mark.nightly),
        pytest.param("wire", b"\x16\x03\x01", id="wire, half a hello", marks=pytest.mark.nightly),
    ],
)
def test_more_strangers_than_descriptors_keep_no_owner_out(
    small: Small, port: str, first: bytes
) -> None:
    """Finding 2: Idle connections used up all descriptors. Now the oldest ones make room for the
    owner."""
    memory = processes.memory(small.process.pid).rss
    with contextlib.ExitStack() as stack:
        number = small.address.port if port == "wire" else small.address.http_port
        flood(stack, number, first)
        assert small.ask() == 200
        assert small.process.poll() is None
        assert processes.memory(small.process.pid).rss - memory < 30
    assert small.ask() == 200
    assert "Traceback" not in small.log()
    assert len(small.log()) < 20_000
    assert small.directory.coordinator() == small.address, "it was never replaced"


def test_a_client_gets_in_while_strangers_hold_the_wire(small: Small) -> None:
    """Strangers begin handshakes and never finish them. They do not keep their places forever, and
    a client gets in."""
    context = bare_context(small.directory.secrets, "client")
    with contextlib.ExitStack() as stack:
        flood(stack, small.address.port, client_hello(), 80)
        raw = stack.enter_context(socket.create_connection(("127.0.0.1", small.address.port)))
        raw.settimeout(30)
        assert context.wrap_socket(raw).version() == "TLSv1.3"


def test_the_agents_notice_nothing_of_all_that(small: Small) -> None:
    """Strangers fill all places at the coordinator. They never displace an agent's connection."""
    with contextlib.ExitStack() as stack:
        flood(stack, small.address.port, b"")
        flood(stack, small.address.port, client_hello())
        state = small.job()
        assert [task["state"] for task in state["tasks"]] == ["running"] * AGENTS
        assert state["failures"] == []
    events = [type(event).__name__ for _, event in journaled(small.directory)]
    assert "AgentDisconnected" not in events


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(server, "HEAD_S", 1.0)
    monkeypatch.setattr(descriptors, "UNAUTHENTICATED_MOST", 64)
    with serving() as running:
        yield running


GET = b"GET /api/v1/job HTTP/1.1\r\nHost: localhost\r\n"
PROOF = f"Authorization: {BEARER['Authorization']}\r\n".encode()


def exchange(sock: socket.socket, request: bytes) -> bytes:
    """The head of the answer to a whole request."""
    sock.sendall(request)
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    answer.read()
    return f"{answer.status}".encode()


def ends(sock: socket.socket) -> bool:
    with contextlib.suppress(ConnectionError):
        while sock.recv(4096):
            pass
    return True


def test_half_a_request_is_not_waited_for_whatever_came_before(served: Served) -> None:
    """Finding 7: Half of a second request held its connection forever. Now every request has the
    same time limit."""
    with contextlib.ExitStack() as stack:
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=60))
            for _ in range(3)
        ]
        assert exchange(links[1], b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n") == b"401"
        assert exchange(links[2], GET + PROOF + b"\r\n") == b"200"
        for link in links:
            with contextlib.suppress(ConnectionError):
                link.sendall(GET)
        assert all(map(ends, links))


def test_the_owners_connection_outlives_a_flood(served: Served) -> None:
    """A crowd sends half a request each. It does not displace a connection that was let in once."""
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        owner.settimeout(20)
        assert exchange(owner, GET + PROOF + b"\r\n") == b"200"
        flood(stack, served.port, GET, 300)
        assert exchange(owner, GET + PROOF + b"\r\n") == b"200"
        assert served.get("/api/v1/job").status == 200


@pytest.mark.nightly
def test_a_stranger_costs_a_feed_server_no_thread(rig: Rig) -> None:
    """Finding 11: Each connection got a thread before its TLS handshake. Now only the job's feeders
    get one."""
    with rig.trainer() as trainer:
        endpoint = rig.endpoint()
        before = threading.active_count()
        with contextlib.ExitStack() as stack:
            for first in (b"", client_hello(), b"GET / HTTP/1.1\r\n\r\n"):
                flood(stack, endpoint.port, first, 100)
            feeder = Feeder(endpoint, rig.secrets)
            assert threading.active_count() <= before + 1
            feeder.close()
        trainer.close()


def test_programs_keep_the_limit_of_descriptors_they_were_given() -> None:
    """An agent raises its limit of descriptors. Programs, which may not expect so many, keep
    theirs."""
    code = (
        "import resource, subprocess, sys\n"
        "from howdah.wire import descriptors\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 900))\n"
        "descriptors.raise_limit(); descriptors.raise_limit()\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)\n"
        "with descriptors.limits_as_found():\n"
        "    subprocess.run(['sh', '-c', 'ulimit -Sn; ulimit -Hn'])\n"
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["900", "300", "900", "900"]
