"""A backend that cannot be used: it refuses everything, in the words of why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import Backend, BackendError, RoleResources
from howdah.core.commands import ContainerRequest
from howdah.core.events import Event


class Unusable:
    """Stands in for a backend that could not be started, so that the job ends as one whose
    containers were refused: recorded, with advice, final document and all."""

    def __init__(self, backend: Backend, reason: str) -> None:
        self.name = backend.name
        self.lease_s = backend.lease_s
        self._reason = reason

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        return ()

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

    async def close(self) -> None:
        pass
