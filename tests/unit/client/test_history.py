"""What a job that runs elsewhere has printed so far, asked of its coordinator."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import warnings
from pathlib import Path

import msgspec
import pytest

from howdah.backends.base import Running
from howdah.backends.local.site import LocalSite
from howdah.client import history
from howdah.client.errors import Unreachable
from howdah.client.following.items import LogLine
from howdah.client.handle import AsyncJobHandle
from howdah.core.messages import Task
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


class Written:
    """A coordinator of a task that has written ``data``: it sends what is asked for of it, but does not
    answer the first ``silent`` that ask. Who follows on is told that the job has ended."""

    def __init__(self, data: bytes, silent: int = 0) -> None:
        self._data = data
        self._silent = silent

    async def serve(self, client: Client) -> None:
        request = await client.receive()
        await client.say(running(1, log_size=len(self._data)))
        if not isinstance(request, Watch):
            return
        if self._silent:
            self._silent -= 1
            await client.until_gone()
        offset = next((offset for *_, offset in request.offsets), 0)
        with contextlib.suppress(OSError):
            await client.say(log(offset, self._data[offset:]))
            await client.until_gone()

    def read(self, job: AsyncJobHandle, count: int, *, follow: bool, until: str) -> list[str]:
        """The lines up to that one, or all of them."""

        async def reading() -> list[str]:
            found: list[str] = []
            async with coordinator(job._directory, self.serve), asyncio.timeout(30):
                async for line in job.logs("worker:0", follow=follow, tail=count):
                    found.append(line.text)
                    if line.text == until:
                        break
            return found

        return asyncio.run(reading())


def test_who_follows_a_log_whose_last_lines_come_late_gets_them_all_the_same(
    elsewhere: AsyncJobHandle,
) -> None:
    late = Written(b"one\ntwo\n", silent=1)
    found = late.read(elsewhere, 1, follow=True, until="two")
    assert found == ["one", "two"], "too many rather than none"


@pytest.mark.parametrize("window", [45, 50])
def test_as_many_last_lines_are_shown_as_are_wanted_and_they_are_whole(
    elsewhere: AsyncJobHandle, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(history, "WINDOW", window)
    lines = [f"line {n:04}" for n in range(30)]
    job = Written("".join(f"{line}\n" for line in lines).encode())
    for count in (1, 5, 12, 40):
        assert job.read(elsewhere, count, follow=False, until=lines[-1]) == lines[-count:]


def test_what_did_not_come_once_is_named_then_and_no_more(elsewhere: AsyncJobHandle) -> None:
    late = Written(b"one\ntwo\n", silent=1)
    with pytest.warns(RuntimeWarning, match="Left out, at least in part: worker:0 attempt 1"):
        assert late.read(elsewhere, 1, follow=False, until="") == []
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        assert late.read(elsewhere, 1, follow=False, until="") == ["two"]
        assert late.read(elsewhere, 2, follow=False, until="") == ["one", "two"]


class Silent:
    """A coordinator that greets and says no more, as one whose process hangs."""

    def __init__(self) -> None:
        self.asked = 0
        self.killed = asyncio.Event()

    async def serve(self, client: Client) -> None:
        await client.receive()
        self.asked += 1
        await self.killed.wait()

    def read(self, job: AsyncJobHandle, **which: int) -> list[str]:
        async def reading() -> list[str]:
            async with coordinator(job._directory, self.serve):
                lines = job.logs("worker:0", follow=False, **which)
                try:
                    return [line.text async for line in lines]
                finally:
                    self.killed.set()

        return asyncio.run(reading())


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given a coordinator where logs are stored; any longer, and the test takes too long."""
    monkeypatch.setattr(history, "SOON_S", 2.0)


@pytest.mark.usefixtures("soon")
def test_without_the_coordinator_the_logs_that_are_stored_are_shown(
    elsewhere: AsyncJobHandle,
) -> None:
    """After some seconds, with a word why there are no others; a look that asks several times waits once."""
    path = elsewhere._directory.log_path(Task("worker", 0), 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\ntwo\n")
    for which, lines in (({}, ["one", "two"]), ({"tail": 1, "attempt": 1}, ["two"])):
        job, silent = AsyncJobHandle(elsewhere._directory), Silent()
        job._remote.site = elsewhere._remote.site
        with pytest.warns(
            RuntimeWarning, match="only what is stored is shown: .* did not answer"
        ) as told:
            assert silent.read(job, **which) == lines
        assert silent.asked == 1 and [each.category for each in told].count(RuntimeWarning) == 1


@pytest.mark.usefixtures("soon")
def test_without_the_coordinator_and_without_stored_logs_the_reason_is_told(
    elsewhere: AsyncJobHandle,
) -> None:
    with pytest.raises(Unreachable, match="did not answer within"):
        Silent().read(elsewhere)


@pytest.mark.usefixtures("soon")
def test_who_follows_sees_what_is_stored_before_the_coordinator_answers(
    elsewhere: AsyncJobHandle,
) -> None:
    """And what the next coordinator tells, once."""
    path = elsewhere._directory.log_path(Task("worker", 0), 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"one\n")

    async def answers(client: Client) -> None:
        request = await client.receive()
        offset = next((offset for *_, offset in request.offsets), 0)
        await client.say(log(offset, b"one\ntwo\n"[offset:]))
        await client.until_gone()

    async def read() -> list[str]:
        found: list[str] = []
        silent, lines = Silent(), elsewhere.logs("worker:0")
        async with coordinator(elsewhere._directory, silent.serve):
            found.append((await anext(lines)).text)
            silent.killed.set()
        async with coordinator(elsewhere._directory, answers, incarnation=2):
            found.append((await anext(lines)).text)
        return found

    assert asyncio.run(read()) == ["one", "two"]
