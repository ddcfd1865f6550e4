"""The HTTP server inside somebody else's event loop."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time

import pytest

from howdah.coordinator.web.app import create_app
from howdah.coordinator.web.server import serve
from howdah.wire.addresses import listening
from tests.unit.web.fake_job import FakeJob
from tests.unit.web.serving import Served, serving


async def test_a_port_is_taken_from_a_range_and_given_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        first = taken.getsockname()[1]
        server = await serve(create_app(FakeJob()), listening("127.0.0.1", (first, first + 20)))
        assert first < server.port <= first + 20
        await server.close()
    with socket.create_server(("127.0.0.1", server.port)):
        pass


def test_no_port_to_be_had_is_said_in_words() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"from {port} to {port} .*`.network. ports`.*127.0.0.1"):
            listening("127.0.0.1", (port, port))


async def test_signals_stay_with_the_program() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    server = await serve(create_app(FakeJob()), listening("127.0.0.1"))
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    await server.close()
    await server.close()


async def test_an_idle_server_does_not_wake_up() -> None:
    scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
    of_the_test = [*scheduled]
    server = await serve(create_app(FakeJob()), listening("127.0.0.1"))
    await asyncio.sleep(0.05)
    assert [each for each in scheduled if not each.cancelled() and each not in of_the_test] == []
    await server.close()


def test_closing_ends_idle_connections() -> None:
    with serving() as served, socket.create_connection(("127.0.0.1", served.port)) as idle:
        served.run(served.server.close())
        assert idle.recv(10) == b""


def test_a_connection_that_sends_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("howdah.coordinator.web.server.HEAD_S", 0.2)
    with serving() as served:
        for beginning in (b"", b"GET / HTT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: "):
            with socket.create_connection(("127.0.0.1", served.port), timeout=5) as slow:
                slow.sendall(beginning)
                with pytest.raises(ConnectionResetError):
                    if slow.recv(10) == b"":
                        raise ConnectionResetError


def test_a_stream_outlives_the_time_for_a_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("howdah.coordinator.web.server.HEAD_S", 0.2)
    with serving() as served, served.stream("/api/v1/stream") as events:
        events.until("status")
        time.sleep(0.4)
        served.do(lambda job: job.say("note", "still here"))
        assert events.until("record")["text"] == "still here"


@pytest.mark.nightly
def test_the_contract_of_the_source_is_light_to_import() -> None:
    code = (
        "import sys; import howdah.coordinator.clients.live_job; "
        "assert not {'starlette', 'uvicorn', 'jinja2'} & set(sys.modules), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_defect_is_logged_and_answered_without_its_details(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ValueError("inner words")

    served.job.plan = broken  # type: ignore[assignment]
    answer = served.get("/api/v1/plan")
    assert answer.status == 500
    assert b"inner words" not in answer.body
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "inner words" in caplog.text
