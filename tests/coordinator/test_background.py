"""What goes wrong beside machine, journal and backend never ends a coordinator."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from howdah.coordinator import background
from howdah.spec.model import Job
from howdah.storage import logs
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.messages import StatusUpdate, Watch
from howdah.wire.status import JobView
from tests.coordinator.fakes import client, until
from tests.coordinator.world import in_loop, world


class Fails:
    """In place of a function: fails with that error until the test lets it work."""

    def __init__(self, real: Callable[..., Any], number: int) -> None:
        self._real = real
        self._number = number
        self.failing = False
        self.failed = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.failing:
            self.failed += 1
            raise OSError(self._number, errno.errorcode[self._number])
        return self._real(*args, **kwargs)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.05)


@in_loop
async def test_a_job_goes_on_while_files_cannot_be_opened_to_read_last_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = Fails(logs.tail, errno.EMFILE)
    monkeypatch.setattr(logs, "tail", tail)
    async with world(tmp_path) as job:
        job.start()
        channel = await client(job.directory)
        channel.send(Watch())
        zero, one = await job.backend.running(2)
        tail.failing = True
        zero.write(b"step 1\n")
        zero.beat(log_size=7)
        await until(lambda: tail.failed == 2)
        tail.failing = False

        async def shown() -> str | None:
            while True:
                update = await channel.receive()
                assert update is not None
                if isinstance(update, StatusUpdate):
                    view = job.coordinator.status.view()
                    if view.tasks[0].last_line is not None:
                        return view.tasks[0].last_line

        assert await shown() == "step 1"
        zero.exit(0)
        one.exit(0)
        assert (await job.finished()).outcome == "succeeded"


@in_loop
async def test_a_job_starts_while_files_cannot_be_opened_to_follow_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = Fails(logs.size, errno.EMFILE)
    monkeypatch.setattr(logs, "size", size)
    async with world(tmp_path) as job:
        job.start()
        channel = await client(job.directory)
        size.failing = True
        channel.send(Watch(logs=True))
        for agent in await job.backend.running(2):
            agent.exit(0)
        assert (await job.finished()).outcome == "succeeded"
        assert size.failed


@in_loop
async def test_the_address_is_written_once_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Fails(JobDirectory.write_coordinator, errno.ENOSPC)
    write.failing = True

    def write_coordinator(directory: JobDirectory, address: CoordinatorAddress) -> None:
        write(directory, address)

    monkeypatch.setattr(JobDirectory, "write_coordinator", write_coordinator)
    async with world(tmp_path) as job:
        job.start()
        await until(lambda: write.failed == 2)
        write.failing = False
        for agent in await job.backend.running(2):
            agent.exit(0)
        assert (await job.finished()).outcome == "succeeded"
        assert job.directory.coordinator() is None


@in_loop
async def test_the_end_is_written_once_the_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Fails(JobDirectory.write_final, errno.ENOSPC)

    def write_final(directory: JobDirectory, view: JobView) -> None:
        write(directory, view)

    monkeypatch.setattr(JobDirectory, "write_final", write_final)
    async with world(tmp_path) as job:
        job.start()
        agents = await job.backend.running(2)
        write.failing = True
        for agent in agents:
            agent.exit(0)
        await until(lambda: write.failed == 2)
        write.failing = False
        assert (await job.finished()).outcome == "succeeded"
        assert job.directory.final() is not None


@in_loop
async def test_a_coordinator_that_lacks_files_leaves_its_job_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from howdah.coordinator import main

    async with world(tmp_path) as job:
        errors = [OSError(errno.EMFILE, "EMFILE")]
        read = JobDirectory.job

        def read_job(directory: JobDirectory) -> Job:
            if errors:
                raise errors.pop()
            return read(directory)

        monkeypatch.setattr(JobDirectory, "job", read_job)
        monkeypatch.setattr(main.registry, "create", lambda name, directory: job.backend)
        with pytest.raises(OSError, match="EMFILE"):
            await main._live(job.directory)
        assert job.directory.final() is None


def test_an_error_that_repeats_is_logged_once_and_the_work_done_in_the_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.0)
    errors = [ValueError("one"), ValueError("one"), ValueError("one"), OSError("two")]

    async def work() -> None:
        if errors:
            raise errors.pop(0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(background.persist("pages are not counted", work))
    assert not errors
    assert [record.getMessage() for record in caplog.records] == [
        "pages are not counted; it is tried again"
    ] * 2
