"""Stop requests: while a job ends, after its end, and a second one."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from howdah.coordinator.clients.server import Clients
from howdah.core.messages import StopRequested, StopTask
from howdah.storage import journal
from howdah.storage.journal import EventEntry
from howdah.wire.messages import Answer, AskStop
from tests.coordinator.fakes import client, until
from tests.coordinator.world import World, in_loop, world


async def post_stop(job: World) -> tuple[int, dict[str, object]]:
    """Status and document of the answer to POST /api/v1/stop."""
    address = await until(
        lambda: (a := job.directory.coordinator()) is not None and a.http_port and a, 20
    )
    reader, writer = await asyncio.open_connection(address.host, address.http_port)
    writer.write(
        b"POST /api/v1/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        b"Content-Length: 0\r\nAuthorization: Bearer "
        + job.directory.token().encode()
        + b"\r\n\r\n"
    )
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


@in_loop
async def test_a_stop_of_a_job_that_has_ended_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(tmp_path) as job:
        ending, end = asyncio.Event(), asyncio.Event()

        async def finish(clients: Clients, *arguments: Any) -> None:
            ending.set()
            await end.wait()
            await hang_up(clients, *arguments)

        hang_up = Clients.finish
        monkeypatch.setattr(Clients, "finish", finish)
        job.start(with_page=True)
        agents = await job.backend.running(2)
        await until(lambda: (a := job.directory.coordinator()) and a.http_port, 20)
        channel = await client(job.directory)
        for agent in agents:
            agent.exit(0)
        await ending.wait()
        status, answer = await post_stop(job)
        assert status == 409
        assert answer == {"error": "the job is over already: succeeded"}
        channel.send(AskStop())
        assert await channel.receive(5) == Answer(), "a client only wants it to have ended"
        end.set()
        assert (await job.finished()).outcome == "succeeded"


@in_loop
async def test_a_second_stop_without_grace_is_passed_on(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start(with_page=True)
        zero, one = await job.backend.running(2)
        for agent in (zero, one):
            agent.deaf = True
        assert (await post_stop(job))[0] == 202
        await zero.hear(StopTask)
        channel = await client(job.directory)
        channel.send(AskStop(firm=True, reason="at once"))
        assert await channel.receive(5) == Answer()
        second = await zero.hear(StopTask, 2)
        assert second.grace_s == 0
        events = [e.event for e in journal.read(job.directory.path) if isinstance(e, EventEntry)]
        stops = [event.firm for event in events if isinstance(event, StopRequested)]
        assert stops == [False, True]
        zero.exit(143)
        one.exit(143)
        assert (await job.finished()).outcome == "stopped"
