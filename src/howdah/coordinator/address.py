"""Making the coordinator's address known: in the job directory, to the backend, and to agents.

Agents that see the job directory find the address there. Those of a cluster do not, and their new
coordinator may have come up on another host: it dials them at the addresses in its journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import ssl
from collections.abc import Callable

from howdah.agent.host.processes import stat
from howdah.backends.base import Backend
from howdah.coordinator.background import persist
from howdah.core.state import ContainerData, JobState
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.channel import ChannelClosed, connect
from howdah.wire.messages import Moved
from howdah.wire.tls import PeerRole

log: logging.Logger = logging.getLogger(__name__)

AT_ONCE = 32
"""Agents dialled side by side: each costs two handshakes, and registers in the next second."""
_DIAL_S = 10.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0


def own_address(
    backend: Backend, incarnation: int, port: int, http_port: int = 0
) -> CoordinatorAddress:
    """This process's address; ``http_port`` is 0 while there is no page."""
    own = stat(os.getpid())
    return CoordinatorAddress(
        incarnation=incarnation,
        host=backend.host,
        port=port,
        http_port=http_port,
        pid=os.getpid(),
        start=None if own is None else own.start,
    )


class AddressAnnouncer:
    """Writes one coordinator's addresses in the background, each after the one before."""

    def __init__(
        self, directory: JobDirectory, backend: Backend, failed: Callable[[BaseException], None]
    ) -> None:
        """``failed`` is told what the backend raises."""
        self._directory = directory
        self._backend = backend
        self._failed = failed
        self._last: asyncio.Task[None] | None = None

    def announce(self, address: CoordinatorAddress) -> None:
        """Make this address known: in the job directory, and to the backend once there is a page."""
        self._last = asyncio.create_task(self._announce(address, self._last))
        self._last.add_done_callback(self._done)

    async def close(self) -> None:
        if self._last is not None:
            self._last.cancel()
            await asyncio.wait([self._last])

    async def _announce(
        self, address: CoordinatorAddress, former: asyncio.Task[None] | None
    ) -> None:
        if former is not None:
            await asyncio.wait([former])

        async def write() -> None:
            writing = asyncio.ensure_future(
                asyncio.to_thread(self._directory.write_coordinator, address)
            )
            try:
                await asyncio.shield(writing)
            finally:
                # What a thread has begun it finishes: not after the file has been removed.
                await asyncio.wait([writing])

        await persist("the coordinator's address cannot be written", write)
        if address.http_port:
            await self._backend.announce(address)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


class Redial:
    """Dials the agents that listen and have not registered with this coordinator, until each has, or
    the machine has given its container up."""

    def __init__(
        self,
        state: Callable[[], JobState],
        job_id: str,
        context: Callable[[], ssl.SSLContext],
        news: Moved,
    ) -> None:
        self._state = state
        self._job_id = job_id
        self._context = context
        self._news = news
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        containers = self._state().containers.values()
        missing = [c for c in containers if c.registered and c.listen and self._is_missing(c)]
        if not missing:
            return
        context = self._context()
        log.info("dialling %d agents", len(missing))
        async with asyncio.TaskGroup() as dials:
            for container in missing:
                dials.create_task(self._dial_until_registered(container, context))

    async def _dial_until_registered(
        self, container: ContainerData, context: ssl.SSLContext
    ) -> None:
        pause = _FIRST_PAUSE_S
        while self._is_missing(container):
            async with self._at_once:
                if not self._is_missing(container):
                    return
                problem = await self._dial(container, context)
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            if problem and self._is_missing(container):
                log.info("the agent of %s does not answer: %s", container.container_id, problem)

    def _is_missing(self, container: ContainerData) -> bool:
        """The job still counts on that agent, and it is not connected."""
        present = self._state().containers.get(container.container_id)
        return present is container and container.task is not None and not container.connected

    async def _dial(self, container: ContainerData, context: ssl.SSLContext) -> str:
        """Tell the agent once; returns what went wrong."""
        assert container.listen is not None
        host, port = container.listen
        try:
            channel = await connect(
                host,
                port,
                context,
                job_id=self._job_id,
                receives=Moved,
                role=PeerRole.AGENT,
                timeout_s=_DIAL_S,
            )
            channel.send(self._news)
            channel.close()
            await channel.wait_closed()
        except (OSError, ChannelClosed, ValueError, OverflowError) as error:
            # The last two: an address that is none.
            return f"{host}:{port}: {error or type(error).__name__}"
        return ""
