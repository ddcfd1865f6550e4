"""Calling the agents: after a take-over, those that listen are told where the coordinator is.

Agents that see the job directory find it there by themselves; those of a cluster do not, and their
coordinator may have come up on another host. Their addresses are in the journal. Each is called
until it has registered, or until the machine has given its container up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from typing import TYPE_CHECKING

from howdah.core.state import ContainerData
from howdah.wire.channel import ChannelClosed, connect
from howdah.wire.messages import Moved
from howdah.wire.tls import PeerRole, client_context

if TYPE_CHECKING:
    from howdah.coordinator.service import Coordinator

log = logging.getLogger(__name__)

AT_ONCE = 32
"""Calls side by side: each costs two handshakes, and an agent's answer comes in the next second."""
_CALL_S = 10.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 5.0


async def call_agents(coordinator: Coordinator) -> None:
    """Call whoever has to be, then wait to be cancelled, like all that goes on beside the driver."""
    await coordinator.begun()
    if coordinator.incarnation > 1:
        await Calls(coordinator).make()
    await asyncio.Event().wait()


class Calls:
    """One coordinator's calls, at its beginning."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator
        self._news = Moved(
            incarnation=coordinator.incarnation,
            host=coordinator.backend.host,
            port=coordinator.port,
        )
        self._places = asyncio.Semaphore(AT_ONCE)

    async def make(self) -> None:
        """Call all agents that are missing and known to listen."""
        containers = self._coordinator.machine.state.containers.values()
        missing = [c for c in containers if c.registered and c.listen is not None]
        if not missing:
            return
        context = client_context(self._coordinator.directory.secrets, PeerRole.COORDINATOR)
        log.info("calling %d agents", len(missing))
        async with asyncio.TaskGroup() as calls:
            for container in missing:
                calls.create_task(self._call(container, context))

    async def _call(self, container: ContainerData, context: ssl.SSLContext) -> None:
        pause = _FIRST_PAUSE_S
        while self._is_missing(container):
            async with self._places:
                if not self._is_missing(container):
                    return
                problem = await self._try(container, context)
            await asyncio.sleep(random.uniform(0.5, 1.0) * pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)
            if problem and self._is_missing(container):
                log.info("the agent of %s does not answer: %s", container.container_id, problem)

    def _is_missing(self, container: ContainerData) -> bool:
        """The job still counts on that agent, and it is not here."""
        present = self._coordinator.machine.state.containers.get(container.container_id)
        return present is container and container.task is not None and not container.connected

    async def _try(self, container: ContainerData, context: ssl.SSLContext) -> str:
        """Tell it once; returns what went wrong."""
        assert container.listen is not None
        host, port = container.listen
        try:
            channel = await connect(
                host,
                port,
                context,
                job_id=self._coordinator.job_id,
                receives=Moved,
                role=PeerRole.AGENT,
                timeout_s=_CALL_S,
            )
            channel.send(self._news)
            channel.close()
            await channel.wait_closed()
        except (OSError, ChannelClosed, ValueError, OverflowError) as error:
            # The last two: an address that is none.
            return f"{host}:{port}: {error or type(error).__name__}"
        return ""
