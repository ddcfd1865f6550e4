"""A backend that cannot be used: it refuses everything, in the words of why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import Backend, BackendError, Places, RoleResources
from howdah.core.messages import ContainerRequest, Event
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView


class Unusable:
    """Stands in for a backend that could not be started, so that the job ends as one whose
    containers were refused: recorded, with advice, final document and all."""

    def __init__(self, backend: Backend, reason: str) -> None:
        self.name = backend.name
        self.lease_s = backend.lease_s
        self.host = backend.host
        self.bind = backend.bind
        self.page_readers = backend.page_readers
        self._backend = backend
        self._reason = reason

    def places(self, job: Job, directory: JobDirectory) -> Places:
        return self._backend.places(job, directory)

    async def announce(self, address: CoordinatorAddress) -> None:
        await self._backend.announce(address)

    async def finished(self, view: JobView) -> None:
        await self._backend.finished(view)

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        return ()

    async def waiting(self) -> str:
        return ""

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        raise BackendError(self._reason)

    async def cancel(self, request_ids: Sequence[int]) -> None:
        pass

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        raise BackendError(self._reason)

    async def release(self, container_id: str) -> None:
        pass

    async def superseded(self) -> str:
        return await self._backend.superseded()

    async def close(self) -> None:
        pass
