"""What the conformance suite needs of a backend under test.

A new backend adds a `Harness` and a line in ``conftest.py``; the tests are the same for all.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import Backend, RoleResources
from howdah.core.messages import (
    ContainerEnded,
    ContainerGranted,
    ContainerRequest,
    Event,
    RequestRefused,
)
from howdah.storage.jobdir import JobDirectory
from tests.processes import runs

E = TypeVar("E", bound=Event)

DEADLINE_S = 60.0


class Harness(Protocol):
    """One job on the backend under test, whose agents are stand-ins (`tests.conformance.standin`)."""

    roles: Mapping[str, RoleResources]
    """``small``: a role of containers of which at least four fit; ``big``: one that never fits."""

    asks_again: bool
    """Requests granted to a dead coordinator are known to the next one."""
    settling_s: float
    """How long a container's processes may outlive the news of its end: guards are at work."""
    sees_hidden: bool
    """A process without a trace of its container is ended with it."""

    async def coordinator(self) -> Coordinator:
        """A new coordinator's view: a fresh backend for the same job, started."""
        ...

    async def crash(self, coordinator: Coordinator) -> None:
        """End that coordinator as a kill -9 would: nothing is said to the backend."""
        ...

    async def launch(self, coordinator: Coordinator, container_id: str, word: str) -> None:
        """Launch a stand-in agent that does what ``word`` says."""
        ...

    async def pids(self, container_id: str) -> list[int]:
        """All processes of the container, once its stand-in is ready; the agent is the last."""
        ...

    async def alive(self, pids: Sequence[int]) -> list[int]:
        """Those that still run."""
        ...

    async def kill_agent(self, container_id: str) -> None:
        """kill -9 of the agent, nothing else."""
        ...

    async def break_launches(self) -> None:
        """From now on no agent can be started."""
        ...

    async def close(self) -> None:
        """End the job and check that it left nothing."""
        ...


class Standins(ABC):
    """What harnesses share whose stand-ins write down their processes in a file per container."""

    directory: JobDirectory

    @abstractmethod
    def pids_file(self, container_id: str) -> Path:
        """Where the container's stand-in writes."""

    def launch_file(self, container_id: str, word: str) -> AgentLaunch:
        """What the stand-in is given; ``word`` says what it does."""
        return AgentLaunch(
            job_id=self.directory.job_id,
            container_id=container_id,
            coordinator_file=None,
            ca="",
            certificate="",
            key="",
            work_dir="",
            log_dir="",
            source=word,
        )

    async def launch(self, coordinator: Coordinator, container_id: str, word: str) -> None:
        await coordinator.backend.launch(container_id, self.launch_file(container_id, word))

    async def pids(self, container_id: str) -> list[int]:
        file = self.pids_file(container_id)
        await eventually(
            lambda: file.exists() and file.read_text().endswith("ready\n"),
            f"the stand-in of {container_id} is ready",
        )
        return [int(line.split()[0]) for line in file.read_text().splitlines()]

    async def alive(self, pids: Sequence[int]) -> list[int]:
        return [pid for pid in pids if runs(pid)]

    async def kill_agent(self, container_id: str) -> None:
        os.kill((await self.pids(container_id))[-1], signal.SIGKILL)


class Coordinator:
    """Records what a backend says."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.held: Sequence[str] = ()
        self.events: list[Event] = []
        self._changed = asyncio.Event()

    async def start(self, roles: Mapping[str, RoleResources]) -> None:
        self.held = await self.backend.start(roles, self._emit)

    async def grant(self, *request_ids: int, role: str = "small") -> list[str]:
        """Ask for containers and wait for all of them."""
        await self.ask(*request_ids, role=role)
        granted = [await self.granted(request_id) for request_id in request_ids]
        return [event.container_id for event in granted]

    async def ask(self, *request_ids: int, role: str = "small") -> None:
        requests = [ContainerRequest(request_id=number, role=role) for number in request_ids]
        await self.backend.request(requests, ())

    async def granted(self, request_id: int) -> ContainerGranted:
        return await self.until(ContainerGranted, lambda e: e.request_id == request_id)

    async def refused(self, request_id: int) -> RequestRefused:
        return await self.until(RequestRefused, lambda e: e.request_id == request_id)

    async def ended(self, container_id: str) -> ContainerEnded:
        return await self.until(ContainerEnded, lambda e: e.container_id == container_id)

    def all(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def until(self, kind: type[E], fits: Callable[[E], bool]) -> E:
        """The first event that fits, when it comes."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                for event in self.all(kind):
                    if fits(event):
                        return event
                self._changed.clear()
                await self._changed.wait()

    def _emit(self, event: Event) -> None:
        self.events.append(event)
        self._changed.set()


Make = Callable[[], Harness]
"""Makes the harness of one test, on its event loop."""


@asynccontextmanager
async def job(make: Make) -> AsyncIterator[tuple[Harness, Coordinator]]:
    """A job and its first coordinator; both end with the test."""
    harness = make()
    try:
        yield harness, await harness.coordinator()
    finally:
        await harness.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(240):
            await test()

    asyncio.run(within())


def of_a_job(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """The test on a job of each backend: it is given its harness and its coordinator, then its fixtures."""
    return _with(test, "make_harness", lambda make: make)


def of_a_local_job(
    kind: Callable[..., Any], **options: Any
) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    """The same with that harness, made in the test's folder with these options."""
    return lambda test: _with(test, "tmp_path", lambda folder: lambda: kind(folder, **options))


def _with(
    test: Callable[..., Awaitable[None]], fixture: str, made_from: Callable[[Any], Make]
) -> Callable[..., None]:
    own = list(inspect.signature(test).parameters)[2:]

    def within(**fixtures: Any) -> None:
        async def on_the_loop() -> None:
            async with job(made_from(fixtures[fixture])) as (harness, coordinator):
                await test(harness, coordinator, **{name: fixtures[name] for name in own})

        run(on_the_loop)

    within.__name__, within.__doc__, within.__module__ = (
        test.__name__,
        test.__doc__,
        test.__module__,
    )
    within.__signature__ = inspect.Signature(  # pyright: ignore[reportFunctionMemberAccess] - pytest reads it
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
            for name in dict.fromkeys([fixture, *own])
        ]
    )
    return within


async def eventually(holds: Callable[[], bool], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Wait until something that cannot be awaited holds."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not holds():
        assert loop.time() < deadline, f"not within {timeout_s}s: {what}"
        await asyncio.sleep(0.01)
