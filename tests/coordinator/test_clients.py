"""What clients see: every record once, logs byte for byte, the status, and answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from howdah.coordinator.clients import live_job
from howdah.coordinator.job_logs import JobLogs
from howdah.core.messages import Exit, StopTask, Task
from howdah.spec.model import Job, Role
from howdah.wire import tls
from howdah.wire.channel import Channel, connect
from howdah.wire.messages import (
    PROTOCOL,
    AgentHello,
    Answer,
    AskStacks,
    AskStatus,
    AskStop,
    ClientHello,
    FollowLog,
    LogUpdate,
    RecordUpdate,
    Refuse,
    Sample,
    StacksReply,
    StatusUpdate,
    ToAgent,
    ToClient,
    Watch,
)
from howdah.wire.status import JobView
from tests.coordinator.fakes import client, until
from tests.coordinator.world import World, in_loop, world

PYTORCH = Job(name="fake", framework="pytorch", command="true", roles={"worker": Role(instances=2)})


class Seen:
    """What one watcher was sent, sorted."""

    def __init__(self, channel: Channel[Any], begin: int = 0) -> None:
        self.channel = channel
        self.begin = begin
        """Offset the logs are expected to begin at."""
        self.records: list[RecordUpdate] = []
        self.logs: dict[tuple[Task, int], bytearray] = {}
        self.views: list[JobView] = []
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while (message := await self.channel.receive()) is not None:
            match message:
                case RecordUpdate():
                    self.records.append(message)
                case StatusUpdate():
                    self.views.append(msgspec.json.decode(message.status, type=JobView))
                case LogUpdate():
                    log = self.logs.setdefault((message.task, message.attempt), bytearray())
                    assert message.offset == self.begin + len(log), "none twice, none left out"
                    log += message.data
                case _:
                    raise AssertionError(message)

    def text(self, task: Task, attempt: int = 1) -> bytes:
        return bytes(self.logs.get((task, attempt), b""))

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            await self.reading


async def watch(job: World, **wanted: Any) -> Seen:
    channel = await client(job.directory)
    channel.send(Watch(**wanted))
    return Seen(channel)


async def answered(channel: Channel[Any], request: msgspec.Struct) -> Any:
    channel.send(request)
    return await channel.receive(10)


@in_loop
async def test_every_watcher_gets_every_record_once_and_the_end(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        early = await watch(job)
        agents = await job.backend.running(2)
        late = await watch(job)
        for agent in agents:
            agent.exit(0)
        await job.finished()
        await early.ended()
        await late.ended()
        assert [r.seq for r in early.records] == [r.seq for r in late.records]
        assert early.records[0].record.kind == "submitted"
        assert early.records[-1].record.kind == "finished"
        assert early.views[-1].phase == late.views[-1].phase == "finished"
        assert early.views[-1].outcome == "succeeded"


@in_loop
async def test_a_watcher_that_comes_back_to_the_next_coordinator_misses_nothing(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as job:
        job.start()
        first = await watch(job, logs=True)
        zero, one = await job.backend.running(2)
        zero.write(b"before\n")
        await until(lambda: first.text(zero.task) == b"before\n")
        await job.kill()
        await first.ended()
        zero.write(b"meanwhile\n")
        job.start()
        await until(lambda: len(zero.welcomes) == 2)
        offset = len(first.text(zero.task))
        seq = first.records[-1].seq
        second = await watch(
            job, logs=True, after_seq=seq, offsets=((zero.task, 1, offset),), tasks=(zero.task,)
        )
        second.logs[zero.task, 1] = bytearray(first.text(zero.task))
        zero.write(b"after\n")
        zero.exit(0)
        one.exit(0)
        await job.finished()
        await second.ended()
        assert second.text(zero.task) == b"before\nmeanwhile\nafter\n"
        seqs = [r.seq for r in first.records + second.records]
        assert seqs == sorted(set(seqs))
        assert seqs == [r.seq for r in job.coordinator.events.after(0)]


@in_loop
async def test_an_agent_is_asked_once_for_a_log_however_many_follow_it(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        zero, one = await job.backend.running(2)
        zero.write(b"history\n")
        watchers = [await watch(job, logs=True, tasks=(zero.task,)) for _ in range(4)]
        await zero.hear(FollowLog)
        zero.write(b"live\n")
        for seen in watchers:
            await until(lambda s=seen: s.text(zero.task) == b"history\nlive\n")
        assert [m.on for m in zero.heard if isinstance(m, FollowLog)] == [True]
        assert not one.count(FollowLog)
        for seen in watchers:
            seen.channel.close()
        await zero.hear(FollowLog, nth=2)
        assert zero.following is None
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_a_follower_follows_the_next_attempt_too(tmp_path: Path) -> None:
    async with world(tmp_path, PYTORCH) as job:
        job.start()
        seen = await watch(job, logs=True)
        zero, one = await job.backend.running(2)
        one.write(b"dying\n")
        one.exit(Exit(code=3))
        await job.backend.running(2, attempt=2)
        one.write(b"alive again\n")
        await until(lambda: seen.text(one.task, 2) == b"alive again\n")
        assert seen.text(one.task, 1) == b"dying\n"
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_a_watcher_that_does_not_read_stalls_nobody(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        coordinator = job.start()
        zero, one = await job.backend.running(2)
        stuck = await client(job.directory)
        stuck.send(Watch(logs=True))
        transport: Any = stuck._transport
        await until(lambda: len(coordinator.clients) == 1)
        transport.pause_reading()
        lively = await watch(job, logs=True)
        line = b"x" * 1023 + b"\n"
        size = 0
        for _ in range(16):  # far more than sockets and buffers hold
            zero.write(line * 1024)
            size += 1024 * 1024
            await until(lambda size=size: len(lively.text(zero.task)) == size)
        zero.exit(0)
        one.exit(0)
        running = job._running
        assert running is not None
        await until(lambda: lively.reading.done() or job.directory.final())
        assert lively.text(zero.task) == line * 1024 * 16
        stuck.abort()
        await job.finished()


@in_loop
async def test_measurements_are_in_the_status(tmp_path: Path) -> None:

    async with world(tmp_path) as job:
        coordinator = job.start()
        zero, one = await job.backend.running(2)
        await until(lambda: coordinator.machine.state.phase.value == "running")
        zero.write(b"loss 0.1\n")
        journaled = coordinator.journal.next_seq
        zero.beat(
            sample=Sample(time=coordinator.clock.now(), cpu=1.5, rss_mb=99.0, values={"loss": 0.1}),
            progress_s=0.5,
            log_size=9,
            step=7.0,
        )
        await until(lambda: coordinator.metrics.since(zero.task, 0.0))
        seen = await watch(job)
        await until(lambda: seen.views and seen.views[-1].tasks[0].last_line == "loss 0.1")
        task = seen.views[-1].tasks[0]
        assert (task.cpu, task.rss_mb, task.step, task.log_size) == (1.5, 99.0, 7.0, 9)
        assert task.progress_s is not None and 0.5 <= task.progress_s < 10
        assert coordinator.metrics.since(zero.task, 0.0)[0].values == {"loss": 0.1}
        assert coordinator.journal.next_seq == journaled, "heartbeats are not journaled"
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_a_status_comes_also_while_the_disk_with_the_logs_stands_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = asyncio.Event()

    async def last_line(logs: JobLogs, task: Task, attempt: int) -> None:
        await moves.wait()

    monkeypatch.setattr(JobLogs, "last_line", last_line)
    monkeypatch.setattr(live_job, "LINES_S", 0.01)
    async with world(tmp_path) as job:
        coordinator = job.start()
        zero, one = await job.backend.running(2)
        channel = await client(job.directory)
        zero.beat(log_size=9, step=1.0)
        await until(lambda: coordinator.status.view().tasks[0].step == 1.0)
        for _ in range(2):
            status = await answered(channel, AskStatus())
            assert msgspec.json.decode(status.status, type=JobView).tasks[0].step == 1.0
        moves.set()
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_a_stop_is_durable_when_it_is_answered(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        zero, one = await job.backend.running(2)
        channel = await client(job.directory)
        assert await answered(channel, AskStop(reason="enough")) == Answer()
        assert b"StopRequested" in (job.directory.path / "events-0001.jsonl").read_bytes()
        await zero.hear(StopTask)
        await one.hear(StopTask)
        final = await job.finished()
        assert (final.outcome, final.exit_code) == ("stopped", 130)
        assert "someone" in final.reason and "enough" in final.reason


@in_loop
async def test_stacks_and_status_are_answered(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        zero, one = await job.backend.running(2)
        channel = await client(job.directory)
        status = await answered(channel, AskStatus())
        assert msgspec.json.decode(status.status, type=JobView).job_id == job.directory.job_id
        assert await answered(channel, AskStacks(task=zero.task)) == StacksReply(
            task=zero.task, text="all the stacks"
        )
        missing = await answered(channel, AskStacks(task=Task("worker", 9)))
        assert "no task worker:9" in missing.problem
        one.exit(0)
        await until(lambda: job.coordinator.machine.state.tasks["worker:1"].exit)
        over = await answered(channel, AskStacks(task=one.task))
        assert "no program running" in over.problem
        zero.exit(0)
        await job.finished()


async def _say_hello(job: World, role: str, hello: msgspec.Struct) -> Any:
    address = await until(job.directory.coordinator)
    channel = await connect(
        address.host,
        address.port,
        tls.client_context(job.directory.secrets, role),
        job_id=job.directory.job_id,
        receives=ToAgent | ToClient,
    )
    channel.send(hello)
    answer = await channel.receive(5)
    assert await channel.receive(5) is None, "it hangs up"
    return answer


@in_loop
async def test_agents_without_business_here_are_refused_in_words(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        zero, one = await job.backend.running(2)

        def hello(**changes: Any) -> AgentHello:
            said = {
                "job_id": job.directory.job_id,
                "container_id": zero.container_id,
                "host": "127.0.0.1",
                "pid": 1,
            }
            return AgentHello(**(said | changes))

        stranger = await _say_hello(job, "agent", hello(container_id="c77"))
        assert isinstance(stranger, Refuse) and "does not hold container c77" in stranger.reason
        other_job = await _say_hello(job, "agent", hello(job_id="another"))
        assert isinstance(other_job, Refuse) and "not of another" in other_job.reason
        too_new = await _say_hello(job, "agent", hello(protocol=(9, 0)))
        assert isinstance(too_new, Refuse) and "protocol 9.0" in too_new.reason
        for secret in ("", one.launch.secret, zero.launch.secret[:-1]):
            shown = await _say_hello(job, "agent", hello(protocol=PROTOCOL, secret=secret))
            assert isinstance(shown, Refuse)
            assert f"this is not the agent of {zero.container_id}" in shown.reason
        older = await _say_hello(job, "agent", hello())
        assert isinstance(older, Refuse) and "is of an older Howdah" in older.reason
        client_of_other = await _say_hello(job, "client", ClientHello(job_id="another"))
        assert isinstance(client_of_other, Refuse)
        for agent in (zero, one):
            agent.exit(0)
        assert (await job.finished()).restarts == 0


@in_loop
async def test_a_second_connection_of_a_container_replaces_the_first(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        zero, one = await job.backend.running(2)
        first = zero.channel
        assert first is not None
        address = job.directory.coordinator()
        assert address is not None
        # The agent's process comes back on a new connection while the old one seems alive.
        again = asyncio.create_task(zero._converse(address))
        await until(lambda: len(zero.welcomes) == 2)
        await until(lambda: first.closed)
        await until(lambda: zero.channel is not first)
        zero.exit(0)
        one.exit(0)
        final = await job.finished()
        assert (final.outcome, final.restarts) == ("succeeded", 0)
        again.cancel()
