"""One job with a real coordinator and fake agents over real TLS, all in the test's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

from howdah.coordinator.service import Coordinator
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView
from tests.coordinator.fakes import FakeBackend, make_job


class World:
    """One job, its backend, and its coordinator of the moment."""

    def __init__(self, directory: JobDirectory) -> None:
        self.directory = directory
        self.backend = FakeBackend()
        self.coordinator: Coordinator
        self._running: asyncio.Task[JobView] | None = None

    def start(self, *, with_page: bool = False) -> Coordinator:
        """A coordinator, the first or the next."""
        self.coordinator = Coordinator(self.directory, self.backend, with_page=with_page)
        self._running = asyncio.create_task(self.coordinator.run())
        return self.coordinator

    async def kill(self) -> None:
        """End the coordinator as a crash does: nothing is said, nothing is written."""
        assert self._running is not None
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def finished(self) -> JobView:
        assert self._running is not None
        async with asyncio.timeout(60):
            return await self._running

    async def close(self) -> None:
        if self._running is not None and not self._running.done():
            await self.kill()
        for agent in list(self.backend.agents.values()):
            await agent.kill()


Body = Callable[..., Coroutine[Any, Any, None]]


def in_loop_for(limit_s: float) -> Callable[[Body], Callable[..., None]]:
    """A test that is a coroutine, in an event loop of its own, with that deadline."""

    def around(test: Body) -> Callable[..., None]:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            async def limited() -> None:
                async with asyncio.timeout(limit_s):
                    await test(*args, **kwargs)

            asyncio.run(limited())

        return run

    return around


in_loop = in_loop_for(90)
"""With the deadline most tests have."""


@contextlib.asynccontextmanager
async def world(base: Path, job: Job | None = None) -> AsyncIterator[World]:
    """A job that has not been started; everything is gone afterwards."""
    world = World(make_job(base, job))
    try:
        yield world
    finally:
        await world.close()
