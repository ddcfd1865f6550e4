"""What a job that runs elsewhere has printed so far, asked of its coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

import msgspec
import pytest

from howdah.backends.base import Running
from howdah.backends.local.site import LocalSite
from howdah.client.following.items import LogLine
from howdah.client.handle import AsyncJobHandle
from howdah.wire.messages import Watch
from howdah.wire.status import TaskView
from tests.unit.client.coordinators import VIEW, Client, coordinator, job_directory, log, status


class Elsewhere(LocalSite):
    """As a cluster's: what the job writes is on other machines."""

    at_hand = False

    def running(self) -> Running:
        return Running.YES


def running(attempt: int, log_size: int):
    task = TaskView(
        task="worker:0",
        role="worker",
        index=0,
        state="running",
        attempt=attempt,
        generation=1,
        log_size=log_size,
    )
    return status(msgspec.structs.replace(VIEW, tasks=(task,)))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncJobHandle:
    directory = job_directory(tmp_path)
    handle = AsyncJobHandle(directory)
    monkeypatch.setattr(handle._remote, "site", Elsewhere(directory))
    return handle


def test_a_log_that_was_lost_with_its_agent_is_not_waited_for(elsewhere: AsyncJobHandle) -> None:
    """Its size is known from the agent's last heartbeat, and the job goes on and says more."""

    async def serve(client: Client) -> None:
        request = await client.receive()
        if not isinstance(request, Watch):
            await client.say(running(1, log_size=1000))
            return
        await client.say(log(0, b"one\n"))
        offsets = itertools.count(step=5)
        with contextlib.suppress(OSError):
            while True:
                await client.say(running(2, log_size=5), log(next(offsets), b"more\n", attempt=2))
                await asyncio.sleep(0.05)

    async def read() -> list[LogLine]:
        async with coordinator(elsewhere._directory, serve), asyncio.timeout(30):
            return [line async for line in elsewhere.logs("worker:0", follow=False)]

    assert [line.text for line in asyncio.run(read())] == ["one"]
