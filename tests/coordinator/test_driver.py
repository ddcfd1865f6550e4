"""The driver alone: order, durability, timers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from howdah.coordinator.driver import ROUND, Clock, EventDriver, JobOver, replay
from howdah.coordinator.event_log import EventLog
from howdah.core.machine import Machine
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AnyCommand,
    AnyEvent,
    ContainerGranted,
    CoordinatorStarted,
    Exit,
    JobSubmitted,
    Record,
    ReleaseContainer,
    Task,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
    TimePassed,
)
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import JobPhase, JobState, TaskState
from howdah.storage.journal import EventEntry, RecordEntry
from tests.coordinator.fakes import until
from tests.coordinator.world import in_loop


class _Machine:
    """Answers each event with a record and a command that name it."""

    def __init__(self) -> None:
        self.state = JobState()
        self.heard: list[AnyEvent] = []
        self.due: list[float] = []

    def next_due(self) -> float | None:
        return min(self.due, default=None)

    def handle(self, event: AnyEvent, now: float, cause: str = "") -> list[AnyCommand]:
        self.heard.append(event)
        self.due = [due for due in self.due if due > now]
        name = getattr(event, "container_id", type(event).__name__)
        return [Record(kind="heard", text=name), ReleaseContainer(container_id=name)]


class _Journal:
    """Remembers what is durable; commits when the test lets it."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.durable = 0
        self.commits = 0
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def next_seq(self) -> int:
        return len(self.entries) + 1

    def append_event(self, now: float, event: AnyEvent) -> int:
        self.entries.append(event)
        return len(self.entries)

    def append_record(self, now: float, record: Record) -> int:
        self.entries.append(record)
        return len(self.entries)

    async def commit(self) -> None:
        appended = len(self.entries)
        await self.gate.wait()
        self.durable = appended
        self.commits += 1


class _World:
    def __init__(self, machine: Any = None) -> None:
        self.machine = machine or _Machine()
        self.journal = _Journal()
        self.story = EventLog()
        self.now = 100.0
        self.done: list[str] = []
        self.driver = EventDriver(
            self.machine,
            self.journal,
            Clock(lambda: self.now, lambda: self.now),
            self.story,
            self._carry_out,
        )
        self.running = asyncio.create_task(self.driver.run())

    async def _carry_out(self, commands: Sequence[AnyCommand]) -> None:
        for command in commands:
            if isinstance(command, ReleaseContainer):
                self.done.append(command.container_id)

    async def end(self) -> None:
        self.driver.stop()
        await self.running


@in_loop
async def test_nothing_is_told_or_done_before_the_commit() -> None:
    world = _World()
    world.journal.gate.clear()
    world.driver.emit(AgentDisconnected(container_id="c1"))
    await until(lambda: world.journal.entries)
    assert (world.done, world.story.last_seq) == ([], 0)
    for number in range(2, 50):
        world.driver.emit(AgentDisconnected(container_id=f"c{number}"))
    world.journal.gate.set()
    await until(lambda: len(world.done) == 49)
    assert world.done == [f"c{number}" for number in range(1, 50)]
    assert world.journal.commits == 2, "what gathered meanwhile shares one commit"
    assert [update.record.text for update in world.story.after(0)] == world.done
    await world.end()


@in_loop
async def test_waiting_for_durability_is_answered_after_the_commit() -> None:
    world = _World()
    world.journal.gate.clear()
    waiting = asyncio.create_task(world.driver.durably(AgentDisconnected(container_id="c1")))
    await until(lambda: world.journal.entries)
    assert not waiting.done()
    world.journal.gate.set()
    await waiting
    await world.end()
    with pytest.raises(JobOver):
        await world.driver.durably(AgentDisconnected(container_id="c2"))


@in_loop
async def test_the_machine_is_told_when_its_next_time_has_come() -> None:
    world = _World()
    world.machine.due = [100.02, 100.01, 9999.0]
    world.driver.emit(AgentDisconnected(container_id="c1"))
    await until(lambda: world.done)
    world.now = 100.5
    await until(lambda: len(world.machine.heard) == 2)
    assert world.machine.heard[1:] == [TimePassed()]
    await world.end()


@in_loop
async def test_a_time_that_has_come_does_not_wait_for_the_last_of_many_events() -> None:
    world = _World()
    world.journal.gate.clear()
    world.driver.emit(AgentDisconnected(container_id="c"))
    await until(lambda: world.journal.entries)
    world.machine.due = [101.0, 9999.0]
    for _ in range(ROUND):
        world.driver.emit(AgentDisconnected(container_id="c"))
    world.now = 102.0
    for _ in range(ROUND):
        world.driver.emit(AgentDisconnected(container_id="c"))
    world.journal.gate.set()
    await until(lambda: len(world.done) == 2 * ROUND + 2)
    assert world.machine.heard.index(TimePassed()) == 1 + ROUND
    await world.end()


@in_loop
async def test_a_time_that_the_machine_does_not_move_is_a_defect() -> None:
    world = _World()
    world.machine.handle = lambda event, now, cause: []  # type: ignore[method-assign]
    world.machine.due = [1.0]
    world.driver.emit(AgentDisconnected(container_id="c1"))
    with pytest.raises(RuntimeError, match="has not moved what was due"):
        await world.running


async def _running(workers: int) -> tuple[_World, JobState]:
    """The programs of a real job run, and have a minute to join."""
    machine = Machine()
    world = _World(machine)
    role = RolePlan(name="worker", minimum=workers, maximum=workers, startup_s=60)
    await world.driver.durably(JobSubmitted(plan=Plan(job_id="a-job", roles=(role,))))
    tasks = [Task("worker", index) for index in range(workers)]
    for number, _ in enumerate(tasks, 1):
        granted = ContainerGranted(request_id=number, container_id=f"c{number}", node="here")
        await world.driver.durably(granted)
        await world.driver.durably(AgentRegistered(container_id=f"c{number}", host="here"))
    for task in tasks:
        await world.driver.durably(TaskPrepared(task=task, attempt=1, ports=(2222,)))
    for task in tasks:
        await world.driver.durably(TaskStarted(task=task, attempt=1, pids=(7,)))
    return world, machine.state


async def _begin_to_commit(world: _World) -> None:
    """From now on the journal is as slow as the test."""
    world.journal.gate.clear()
    before = len(world.journal.entries)
    world.driver.emit(AgentDisconnected(container_id="elsewhere"))
    await until(lambda: len(world.journal.entries) > before)


@in_loop
async def test_what_came_in_time_is_not_late_because_a_commit_was_slow() -> None:
    world, job = await _running(1)
    world.now += 58.8
    await _begin_to_commit(world)
    world.now += 1.0
    world.driver.emit(AgentDisconnected(container_id="elsewhere"))
    world.driver.emit(TaskJoined(task=Task("worker", 0), attempt=1))
    world.now += 0.8
    world.journal.gate.set()
    await until(lambda: job.tasks["worker:0"].joined_at or job.outcome)
    assert (job.phase, job.reason, job.tasks["worker:0"].joined_at) == (JobPhase.RUNNING, "", 159.8)
    await world.end()


@in_loop
async def test_agents_have_their_time_although_a_commit_took_a_minute() -> None:
    world, job = await _running(2)
    for index in range(2):
        await world.driver.durably(TaskJoined(task=Task("worker", index), attempt=1))
    await _begin_to_commit(world)
    failed = TaskExited(task=Task("worker", 0), attempt=1, exit=Exit(code=1))
    world.driver.emit(failed)  # the other one is to be stopped, in fifteen seconds
    world.now += 60
    world.driver.emit(AgentDisconnected(container_id="elsewhere"))
    world.journal.gate.set()
    await until(lambda: job.tasks["worker:1"].state is not TaskState.RUNNING)
    await _begin_to_commit(world)
    world.now += 60
    world.journal.gate.set()
    await world.driver.durably(Record(kind="note", text="the disk is as fast as ever"))
    assert job.tasks["worker:1"].state is TaskState.STOPPING
    stopped = TaskExited(task=Task("worker", 1), attempt=1, exit=Exit(signal=15))
    await world.driver.durably(stopped)
    assert not world.done, "containers are kept for the next generation"
    await world.end()


@in_loop
async def test_a_deadline_comes_also_where_every_commit_is_slow() -> None:
    world, job = await _running(2)
    for index in range(2):
        await world.driver.durably(TaskJoined(task=Task("worker", index), attempt=1))
    await world.driver.durably(TaskExited(task=Task("worker", 0), attempt=1, exit=Exit(code=1)))
    assert job.tasks["worker:1"].state is TaskState.STOPPING

    async def slowly() -> None:
        world.now += 30

    world.journal.commit = slowly  # type: ignore[method-assign]
    for _ in range(40):
        await world.driver.durably(Record(kind="note", text="the disk is slow"))
    assert job.tasks["worker:1"].state is not TaskState.STOPPING
    await world.end()


@in_loop
async def test_agents_have_their_time_although_the_coordinator_stood_still_for_a_minute() -> None:
    world, job = await _running(3)
    tasks = [Task("worker", index) for index in range(3)]
    for task in tasks:
        await world.driver.durably(TaskJoined(task=task, attempt=1))
    await world.driver.durably(TaskExited(task=tasks[0], attempt=1, exit=Exit(code=1)))
    assert job.tasks["worker:1"].state is TaskState.STOPPING
    world.now += 60
    for task in tasks[1:]:
        await world.driver.durably(TaskExited(task=task, attempt=1, exit=Exit(signal=15)))
    assert not world.done, "containers are kept for the next generation"
    await world.end()


@in_loop
async def test_an_event_the_machine_cannot_take_is_not_written_down() -> None:
    world = _World()

    def refuse(event: AnyEvent, now: float, cause: str = "") -> list[AnyCommand]:
        raise ValueError("a defect")

    world.machine.handle = refuse  # type: ignore[method-assign]
    world.driver.emit(AgentDisconnected(container_id="c1"))
    with pytest.raises(ValueError, match="a defect"):
        await world.running
    assert not world.journal.entries


@in_loop
async def test_the_beginning_comes_before_what_was_handed_in_or_due_earlier() -> None:
    world = _World()
    world.machine.due = [50.0]  # when there was no coordinator
    world.driver.emit(AgentDisconnected(container_id="later"))
    world.driver.first([CoordinatorStarted(incarnation=1), Record(kind="note", text="first")])
    await until(lambda: len(world.done) == 2)
    assert world.done == ["CoordinatorStarted", "later"]
    assert isinstance(world.machine.heard[0], CoordinatorStarted)
    await world.end()


def test_replay_finds_what_the_dead_coordinator_did_not_get_to_tell() -> None:
    machine = _Machine()
    entries = [
        EventEntry(seq=1, now=5.0, event=CoordinatorStarted(incarnation=1)),
        RecordEntry(seq=2, now=5.0, record=Record(kind="heard", text="CoordinatorStarted")),
        RecordEntry(seq=3, now=5.5, record=Record(kind="note", text="something else")),
        EventEntry(seq=4, now=6.0, event=AgentRegistered(container_id="c1", host="h")),
    ]
    past = replay(machine, entries)
    assert (past.last_seq, past.last_time, past.incarnations) == (4, 6.0, 1)
    assert [update.seq for update in past.records] == [2, 3]
    assert [record.text for record in past.missing] == ["c1"]
