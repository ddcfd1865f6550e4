"""A coordinator's life: from submission to final.json, and from one coordinator to the next."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import msgspec
import pytest

from howdah.backends.base import BackendError
from howdah.coordinator import service
from howdah.coordinator.driver import replay
from howdah.coordinator.service import Superseded
from howdah.core.machine import Machine
from howdah.core.messages import CheckpointSaved, Exit
from howdah.spec.model import Job, Outputs, Role
from howdah.storage import coordinator_ends, journal, outputs
from howdah.storage.coordinator_ends import CoordinatorEnd
from howdah.storage.journal import EventEntry, RecordEntry
from howdah.wire.messages import LeaseRenewed, Shutdown, Start
from howdah.wire.status import UNSAVED_CODE
from tests.coordinator.fakes import until
from tests.coordinator.world import in_loop, world

PYTORCH = Job(name="fake", framework="pytorch", command="true", roles={"worker": Role(instances=2)})


@in_loop
async def test_a_gang_of_two_runs_to_its_end(tmp_path: Path) -> None:
    async with world(tmp_path, PYTORCH) as job:
        job.start()
        zero, one = await job.backend.running(2)
        start = await zero.hear(Start)
        assert start.processes[0].env["WORLD_SIZE"] == "2"
        assert start.processes[0].env["RANK"] == "0"
        zero.exit(0)
        one.exit(0)
        final = await job.finished()
        assert (final.outcome, final.exit_code) == ("succeeded", 0)
        assert job.directory.final() == final
        assert job.directory.coordinator() is None
        assert not job.directory.containers.exists()
        assert job.backend.closed == 1
        assert not job.backend.held
        assert [agent.count(Shutdown) for agent in job.backend.history] == [1, 1]


PUBLISHING = Job(
    name="fake",
    framework="command",
    command="true",
    roles={"worker": Role(instances=1)},
    outputs=Outputs(folders=("model",), store="hdfs://names/models"),
)


@pytest.mark.parametrize("number", [errno.EACCES, errno.ECONNREFUSED])
@in_loop
async def test_outputs_that_are_not_published_are_unsaved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Because the store refuses them, or has been away for too long."""

    def publish(store: str, job_id: str) -> bool:
        raise OSError(number, "not now", store)

    monkeypatch.setattr(outputs, "publish", publish)
    monkeypatch.setattr(service, "PUBLISH_S", 0.0)

    async with world(tmp_path, PUBLISHING) as job:
        job.start()
        (agent,) = await job.backend.running(1)
        agent.exit(0)
        final = await job.finished()
    (line,) = final.unsaved
    place = f"hdfs://names/models/.{job.directory.job_id}.incomplete"
    assert line.startswith(f"outputs: not published, they are in {place}: ")
    assert "not now" in line
    assert line.endswith(f"; rename that folder to {job.directory.job_id}")
    assert (final.outcome, final.exit_code) == ("succeeded", UNSAVED_CODE)
    assert job.directory.final() == job.backend.final == final


@in_loop
async def test_publishing_outputs_is_tried_again_while_their_store_may_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending: list[bool] = []

    def publish(store: str, job_id: str) -> bool:
        ending.append(job.coordinator.status.view().ending)
        if len(ending) < 3:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "no NameNode")
        return True

    monkeypatch.setattr(outputs, "publish", publish)
    monkeypatch.setattr(service, "PUBLISH_PAUSES_S", (0.01, 0.01))
    async with world(tmp_path, PUBLISHING) as job:
        job.start()
        (agent,) = await job.backend.running(1)
        agent.exit(0)
        final = await job.finished()
    assert ending == [True, True, True]
    assert (final.over, final.unsaved, final.exit_code) == (True, (), 0)


@in_loop
async def test_how_former_coordinators_died_is_told_once(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        agents = await job.backend.running(2)
        await job.kill()
        end = CoordinatorEnd(
            who="process 7", reason="EncodeError: no token", time=1764259200.123457
        )
        coordinator_ends.write(job.directory.path, end)
        for incarnation in (2, 3):
            job.start()
            await until(lambda n=incarnation: agents[0].welcomes[-1].incarnation == n)
            await job.kill()
        job.start()
        for agent in agents:
            agent.exit(0)
        await job.finished()
        told = [
            entry.record.text
            for entry in journal.read(job.directory.path)
            if isinstance(entry, RecordEntry) and entry.record.kind == "coordinator-died"
        ]
        assert told == ["the coordinator process 7 died: EncodeError: no token"]


@in_loop
async def test_an_event_is_durable_before_anybody_acts_on_it(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        granted: list[bool] = []

        def before_launch(container_id: str) -> None:
            entries = journal.read(job.directory.path)
            granted.append(any(container_id in str(entry) for entry in entries))

        job.backend._before_launch = before_launch
        job.start()
        zero, one = await job.backend.running(2)
        assert granted == [True, True]
        # When an agent was told to start, the journal had everybody's readiness.
        kinds = [
            entry.event.__class__.__name__
            for entry in journal.read(job.directory.path)
            if isinstance(entry, EventEntry)
        ]
        assert kinds.count("TaskPrepared") == 2
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_an_agent_is_told_what_its_next_coordinator_will_know(tmp_path: Path) -> None:
    """Its lease is renewed however slow the journal is."""
    async with world(tmp_path) as job:
        coordinator = job.start()
        zero, one = await job.backend.running(2)
        await until(lambda: coordinator.driver.kept)
        gate = asyncio.Event()
        commit = coordinator.journal.commit

        async def slow_commit() -> None:
            await gate.wait()
            await commit()

        coordinator.journal.commit = slow_commit
        zero.say(CheckpointSaved(task=zero.task, attempt=1, name="000001"))
        zero.beat(renew=True)
        assert not (await zero.hear(LeaseRenewed)).kept
        gate.set()
        await until(lambda: coordinator.driver.kept)
        zero.beat(renew=True)
        assert (await zero.hear(LeaseRenewed, 2)).kept
        zero.exit(0)
        one.exit(0)
        await job.finished()


@in_loop
async def test_the_next_coordinator_takes_the_running_gang_over(tmp_path: Path) -> None:
    async with world(tmp_path, PYTORCH) as job:
        job.start()
        zero, one = await job.backend.running(2)
        await until(lambda: job.coordinator.machine.state.phase.value == "running")
        before = msgspec.json.encode(job.coordinator.machine.state)
        await job.kill()
        machine = Machine()
        replay(machine, journal.read(job.directory.path))
        assert msgspec.json.encode(machine.state) == before
        job.start()
        await until(lambda: len(zero.welcomes) == 2 and len(one.welcomes) == 2)
        assert zero.welcomes[-1].incarnation == 2
        await until(
            lambda: all(c.connected for c in job.coordinator.machine.state.containers.values())
        )
        state = job.coordinator.machine.state
        assert (state.phase.value, state.generation, state.incarnation) == ("running", 1, 2)
        assert [data.attempt for data in state.tasks.values()] == [1, 1]
        # A failure after the take-over is still dealt with.
        one.exit(Exit(signal=9))
        zero_again, one_again = await job.backend.running(2, attempt=2)
        assert (zero_again, one_again) == (zero, one)
        assert (zero.count(Start), one.count(Start)) == (2, 2)
        zero.exit(0)
        one.exit(0)
        final = await job.finished()
        assert (final.outcome, final.restarts, final.incarnation) == ("succeeded", 1, 2)
        assert len(job.backend.history) == 2


@in_loop
async def test_a_crash_after_the_last_event_still_finishes_the_job(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        coordinator = job.start()
        for agent in await job.backend.running(2):
            agent.exit(0)
        ended = asyncio.Event()

        async def crash(commands: object) -> None:
            if coordinator.machine.state.phase.value == "finished":
                ended.set()
                await asyncio.Event().wait()
            await carry_out(commands)  # type: ignore[arg-type]

        carry_out = coordinator.executor.carry_out
        coordinator.executor.carry_out = crash  # type: ignore[method-assign]
        await ended.wait()
        assert job.directory.final() is None
        await job.kill()
        job.start()
        final = await job.finished()
        assert final.outcome == "succeeded"
        assert job.directory.final() == final


@in_loop
async def test_a_backend_that_cannot_be_used_ends_the_job_in_its_words(tmp_path: Path) -> None:
    async with world(tmp_path) as job:

        async def start(roles: object, emit: object) -> list[str]:
            raise BackendError("the cluster is on fire; call the fire brigade")

        job.backend.start = start  # type: ignore[method-assign,assignment]
        job.start()
        final = await job.finished()
        assert final.outcome == "failed"
        assert "call the fire brigade" in final.reason


@in_loop
async def test_a_coordinator_whose_job_another_has_ends_and_leaves_it_as_it_is(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as job:
        job.start()
        await job.backend.running(2)
        job.backend.succeeded.set()
        with pytest.raises(Superseded, match="another one has the job"):
            await job.finished()
        assert job.directory.final() is None
        assert len(job.backend.held) == 2
        assert job.backend.closed == 0


@in_loop
async def test_records_are_told_once_each_whatever_a_crash_cut_off(tmp_path: Path) -> None:
    async with world(tmp_path) as job:
        job.start()
        zero, one = await job.backend.running(2)
        path = job.directory.path / "events-0001.jsonl"
        await until(lambda: b'"kind":"running"' in path.read_bytes())
        await job.kill()
        # The crash came between an event and the last record it caused.
        lines = path.read_bytes().splitlines(keepends=True)
        last = max(n for n, line in enumerate(lines) if b'"is":"record"' in line)
        path.write_bytes(b"".join(lines[:last]))
        job.start()
        await until(lambda: len(one.welcomes) == 2)
        zero.exit(0)
        one.exit(0)
        await job.finished()
        texts = [
            entry.record.text
            for entry in journal.read(job.directory.path)
            if isinstance(entry, RecordEntry)
        ]
        assert texts.count(msgspec.json.decode(lines[last])["record"]["text"]) == 1
