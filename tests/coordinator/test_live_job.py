"""The live job as its page sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from howdah.coordinator.clients.live_job import NoLog
from howdah.coordinator.status import UnknownTask
from howdah.core.messages import ContainerRequest, Exit, Task
from howdah.core.state import JobPhase
from howdah.spec.model import Job, Restart, Role, Timeouts
from howdah.wire.messages import WebAddress
from tests.coordinator.fakes import FakeBackend, until
from tests.coordinator.world import in_loop, world

PYTORCH = Job(name="fake", framework="pytorch", command="true", roles={"worker": Role(instances=2)})


@in_loop
async def test_the_newest_attempt_is_followed_into_the_next(tmp_path: Path) -> None:
    async with world(tmp_path, PYTORCH) as job:
        source = job.start().live_job
        zero, one = await job.backend.running(2)
        zero.write(b"0123456789\n")
        got: list[tuple[int, int, bytes]] = []

        async def follow(attempt: int | None, offset: int) -> None:
            async for update in source.follow_log(zero.task, attempt, offset):
                got.append((update.attempt, update.offset, update.data))

        following = asyncio.create_task(follow(None, -4))
        await until(lambda: got)
        assert got == [(1, 7, b"789\n")]
        one.exit(Exit(code=3))
        await job.backend.running(2, attempt=2)
        zero.write(b"again\n")
        await until(lambda: got[-1][0] == 2)
        assert got[-1] == (2, 0, b"again\n")
        got.clear()
        await asyncio.wait_for(follow(1, 0), 5)  # an attempt that is over ends by itself
        assert got == [(1, 0, b"0123456789\n")]
        zero.exit(0)
        one.exit(0)
        await job.finished()
        await asyncio.wait_for(following, 5)


@in_loop
async def test_logs_are_read_in_parts(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        source = job.start().live_job
        zero, one = await job.backend.running(2)
        with pytest.raises(NoLog):
            await source.read_log(zero.task, 1, 0, 10)
        zero.write(b"0123456789\n")
        assert source.log_attempts(zero.task) == [1]
        assert (await source.read_log(zero.task, 1, 2, 3)).data == b"234"
        assert (await source.read_log(zero.task, 1, -3, 100)).data == b"89\n"
        assert (await source.read_log(zero.task, 1, 999, 100)).data == b""
        with pytest.raises(UnknownTask, match="worker:0, worker:1"):
            await source.read_log(Task("ps", 0), 1, 0, 1)
        with pytest.raises(UnknownTask):
            source.metrics(Task("ps", 0), 0.0)
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_pages_are_linked_while_their_task_runs(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        source = job.start().live_job
        zero, one = await job.backend.running(2)
        page = WebAddress(
            task=zero.task, attempt=1, name="TensorBoard", host="127.0.0.1", port=6006
        )
        zero.say(page)
        await until(source.web_targets)
        assert source.web_targets() == {"worker:0": page}
        await until(lambda: source.view().links)
        assert source.view().links[0].href == "proxy/worker:0/"
        await until(lambda: any(u.record.kind == "page-announced" for u in source.records(0)))
        await job.kill()
        source = job.start().live_job
        await until(lambda: len(zero.welcomes) == 2)
        assert not source.web_targets(), "a new coordinator does not know who listens there now"
        zero.say(page)
        await until(source.web_targets)
        told = [u for u in source.records(0) if u.record.kind == "page-announced"]
        assert len(told) == 1
        zero.exit(0)
        await until(lambda: not source.web_targets())
        one.exit(0)
        await job.finished()


@in_loop
async def test_the_page_is_served_once_the_programs_run(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start(with_page=True)
        zero, one = await job.backend.running(2)
        address = await until(
            lambda: (a := job.directory.coordinator()) is not None and a.http_port and a, 20
        )
        reader, writer = await asyncio.open_connection(address.host, address.http_port)
        writer.write(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 40"), "no token, no page"
        writer.close()
        assert job.coordinator.status.view().page == f"http://127.0.0.1:{address.http_port}/"
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_a_page_alone_is_told_last_lines(tmp_path: Path) -> None:
    """No command is attached, and no log is open."""
    async with world(tmp_path) as job:
        job.start(with_page=True)
        zero, one = await job.backend.running(2)
        address = await until(
            lambda: (a := job.directory.coordinator()) is not None and a.http_port and a, 20
        )
        reader, writer = await asyncio.open_connection(address.host, address.http_port)
        head = ["GET /api/v1/stream HTTP/1.1", f"Host: 127.0.0.1:{address.http_port}"]
        head += [f"Authorization: Bearer {job.directory.token()}", "", ""]
        writer.write("\r\n".join(head).encode())
        for step in (b"step 1", b"step 2"):
            zero.write(step + b"\n")
            zero.beat(log_size=7 * int(step[-1:]))
            async with asyncio.timeout(20):
                while step not in (line := await reader.readline()):
                    assert line, "the stream has ended"
        writer.close()
        zero.exit(0)
        one.exit(0)
        await job.finished()


class _Full(FakeBackend):
    why = "the queue is full"
    queue = "root.users.ada"

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        self.requested.update(request.request_id for request in requests)


@in_loop
async def test_the_status_has_why_no_container_comes_for_a_task_that_restarts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roles = {"worker": Role(instances=2, restart=Restart.TASK)}
    async with world(tmp_path, Job(name="fake", command="true", roles=roles)) as job:
        source = job.start().live_job
        zero, one = await job.backend.running(2)
        zero.join()
        one.join()
        await until(lambda: source.view().phase == JobPhase.RUNNING.value)
        full = _Full()
        monkeypatch.setattr(job.backend, "request", full.request)
        monkeypatch.setattr(job.backend, "why", full.why)
        await one.kill()
        await until(lambda: source.view().pending_reason)
        view = source.view()
        assert view.phase == JobPhase.RUNNING.value
        assert view.reason == "waiting for containers: worker:1 (the queue is full)"
        zero.exit(0)


@in_loop
async def test_the_total_time_begins_when_the_cluster_takes_the_job(tmp_path: Path) -> None:
    day = msgspec.structs.replace(PYTORCH, timeouts=Timeouts(total="24h"))
    async with world(tmp_path, day) as job:
        job.backend.submitted = time.time() - 5 * 3600
        coordinator = job.start()
        await job.backend.running(2)
        limit = coordinator.machine.state.total_until
        assert limit is not None
        assert job.backend.submitted + 24 * 3600 <= limit < time.time() + 20 * 3600
