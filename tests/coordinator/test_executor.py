"""Carrying commands out: order of backend calls, patience with agents, what is answered for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from howdah.backends.base import BackendError
from howdah.coordinator import executor as module
from howdah.coordinator.executor import Executor
from howdah.core.messages import (
    CancelRequests,
    ContainerEnded,
    ContainerEndKind,
    ContainerRequest,
    DumpStacks,
    Event,
    FinishJob,
    LaunchAgent,
    ReleaseContainer,
    RequestContainers,
    RequestRefused,
    StacksTaken,
    StartTask,
    StopTask,
    Task,
    TaskExited,
    Topology,
)
from howdah.wire.messages import Message, Shutdown
from tests.coordinator.fakes import until
from tests.coordinator.world import in_loop

TASK = Task("worker", 0)


class _Backend:
    name = "fake"
    lease_s = 1.0

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.hold: dict[str, asyncio.Event] = {}
        self.problem: Exception | None = None

    async def _called(self, call: str) -> None:
        self.calls.append(call)
        if call in self.hold:
            await self.hold[call].wait()
        if self.problem is not None and not call.startswith("release"):
            raise self.problem

    async def request(self, requests: Any, avoid_nodes: Any) -> None:
        await self._called("request")

    async def cancel(self, request_ids: Any) -> None:
        await self._called("cancel")

    async def launch(self, container_id: str, launch: Any) -> None:
        await self._called(f"launch {container_id}")

    async def release(self, container_id: str) -> None:
        await self._called(f"release {container_id}")


class _Agents:
    def __init__(self) -> None:
        self.sent: list[tuple[str, Message]] = []
        self.there: set[str] = set()
        self.leaving = asyncio.Event()

    def send(self, container_id: str, message: Message) -> bool:
        if container_id in self.there:
            self.sent.append((container_id, message))
        return container_id in self.there

    def connected(self, container_id: str) -> bool:
        return container_id in self.there

    async def gone(self, container_id: str) -> None:
        await self.leaving.wait()


class _Orders:
    def launch(self, command: LaunchAgent) -> str:
        return "launch file"

    def start(self, command: StartTask) -> Message:
        raise KeyError("this framework is broken")


class _World:
    def __init__(self) -> None:
        self.backend = _Backend()
        self.agents = _Agents()
        self.events: list[Event] = []
        self.finished = False
        self.broken: list[BaseException] = []
        backend: Any = self.backend
        orders: Any = _Orders()
        self.executor = Executor(
            backend,
            self.agents,
            orders,
            self.events.append,
            started=lambda task, attempt: None,
            finish=self._finish,
            failed=self.broken.append,
        )

    def _finish(self) -> None:
        self.finished = True

    async def do(self, *commands: Any) -> None:
        await self.executor.carry_out(commands)


def alone(body: Callable[[_World], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @in_loop
    async def run() -> None:
        world = _World()
        await body(world)
        await world.executor.close()

    run.__doc__ = body.__doc__
    return run


LAUNCH = LaunchAgent(container_id="c1", task=TASK)
RELEASE = ReleaseContainer(container_id="c1")
REQUEST = RequestContainers(requests=(ContainerRequest(request_id=1, role="worker"),))


@alone
async def test_a_container_is_released_after_its_launch_others_do_not_wait(world: _World) -> None:
    world.backend.hold["launch c1"] = asyncio.Event()
    await world.do(LAUNCH, RELEASE, LaunchAgent(container_id="c2", task=TASK))
    await until(lambda: len(world.backend.calls) == 2)
    assert world.backend.calls == ["launch c1", "launch c2"]
    world.backend.hold["launch c1"].set()
    await until(lambda: len(world.backend.calls) == 3)
    assert world.backend.calls[-1] == "release c1"


@alone
async def test_requests_and_cancellations_keep_their_order(world: _World) -> None:
    world.backend.hold["request"] = asyncio.Event()
    await world.do(REQUEST, CancelRequests(request_ids=(1,)))
    await until(lambda: world.backend.calls)
    assert world.backend.calls == ["request"]
    world.backend.hold["request"].set()
    await until(lambda: world.backend.calls == ["request", "cancel"])


@alone
async def test_an_agent_may_leave_by_itself_before_its_container_is_taken(world: _World) -> None:
    world.agents.there.add("c1")
    await world.do(RELEASE)
    await until(lambda: world.agents.sent)
    assert world.agents.sent == [("c1", Shutdown())]
    assert not world.backend.calls
    world.agents.leaving.set()
    await until(lambda: world.backend.calls == ["release c1"])


def test_an_agent_that_does_not_leave_loses_its_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHUTDOWN_S", 0.01)

    async def body(world: _World) -> None:
        world.agents.there.add("c1")
        await world.do(RELEASE)
        await until(lambda: world.backend.calls == ["release c1"])

    alone(body)()


@alone
async def test_a_refused_request_ends_as_such(world: _World) -> None:
    world.backend.problem = BackendError("no such queue")
    await world.do(REQUEST)
    await until(lambda: world.events)
    assert world.events == [RequestRefused(request_id=1, reason="no such queue")]


@alone
async def test_a_failed_launch_gives_the_container_back(world: _World) -> None:
    world.backend.problem = OSError("disk full")
    await world.do(LAUNCH)
    await until(lambda: world.events)
    assert world.backend.calls == ["launch c1", "release c1"]
    assert world.events == [
        ContainerEnded(container_id="c1", kind=ContainerEndKind.LAUNCH_FAILED, detail="disk full")
    ]


@alone
async def test_a_backends_defect_ends_the_coordinator(world: _World) -> None:
    world.backend.problem = ZeroDivisionError()
    await world.do(REQUEST)
    await until(lambda: world.broken)
    assert isinstance(world.broken[0], ZeroDivisionError)


@alone
async def test_a_framework_that_fails_fails_the_attempt_and_the_agent_lets_go(
    world: _World,
) -> None:
    world.agents.there.add("c1")
    topology = Topology(generation=1, world_size=1, members=())
    await world.do(StartTask(container_id="c1", task=TASK, attempt=4, topology=topology))
    assert world.agents.sent == [
        ("c1", StopTask(container_id="c1", task=TASK, attempt=4, grace_s=0.0))
    ]
    (event,) = world.events
    assert isinstance(event, TaskExited)
    assert "this framework is broken" in event.exit.failed_to_start


@alone
async def test_stacks_of_an_agent_that_is_away_are_answered_for_it(world: _World) -> None:
    await world.do(
        DumpStacks(container_id="c1", task=TASK, attempt=1),
        StopTask(container_id="c1", task=TASK, attempt=1, grace_s=1.0),
        FinishJob(),
    )
    (event,) = world.events
    assert isinstance(event, StacksTaken) and "not connected" in event.problem
    assert world.finished and not world.agents.sent
