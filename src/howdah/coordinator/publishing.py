"""Telling where the coordinator is: in the job directory, and to the backend."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from howdah.backends.base import Backend
from howdah.backends.local.processes import start_of
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress


class Publisher:
    """Makes one coordinator's address known, in the background: who looks for it looks again."""

    def __init__(
        self,
        directory: JobDirectory,
        backend: Backend,
        incarnation: int,
        broken: Callable[[BaseException], None],
    ) -> None:
        self._directory = directory
        self._backend = backend
        self._incarnation = incarnation
        self._broken = broken
        self._last: asyncio.Task[None] | None = None

    def address(self, port: int, http_port: int) -> CoordinatorAddress:
        """This process's address; ``http_port`` is 0 while there is no page."""
        return CoordinatorAddress(
            incarnation=self._incarnation,
            host=self._backend.host,
            port=port,
            http_port=http_port,
            pid=os.getpid(),
            start=start_of(os.getpid()),
        )

    def publish(self, port: int, http_port: int) -> None:
        """Write the address, after the one that is being written."""
        address = self.address(port, http_port)
        former = self._last

        async def work() -> None:
            if former is not None:
                await former
            await asyncio.to_thread(self._directory.write_coordinator, address)
            if http_port:
                await self._backend.announce(address)

        self._last = asyncio.create_task(work())
        self._last.add_done_callback(self._done)

    async def published(self) -> None:
        """Wait until nobody writes the address any more."""
        if self._last is not None:
            await asyncio.wait([self._last])

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)
