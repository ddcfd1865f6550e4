"""A real coordinator over containers that exist in name only, for the coordinator's benchmark.

``python -m benchmarks.standin JOB_DIRECTORY`` runs `howdah.coordinator.main`, all of it, with a
backend that grants every request at once and launches nothing: the agents are those of
`benchmarks.fleet`. Container ids are ``c1``, ``c2``, … in the order of requests, so that the fleet
knows them, and a coordinator that takes over is told that all of them are still there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence

from howdah.agent.launch import AgentLaunch
from howdah.backends import registry
from howdah.backends.base import Backend, PageReaders, Places, RoleResources
from howdah.backends.local import container_paths
from howdah.coordinator.main import main
from howdah.core.messages import (
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    ContainerRequest,
    Event,
)
from howdah.spec.model import Job, Role, Timeouts
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress, JobMeta
from howdah.wire import authority
from howdah.wire.status import JobView

NAME = "standin"
ROLE = "worker"
CONTAINER_ID = "c{}"
LAUNCHED = "launched"
"""File in the job directory, there once the agents of all containers may come. It holds their
number, for a coordinator that takes over."""


def make_job(directory: JobDirectory, agents: int, backend: str = NAME) -> None:
    """The job directory as a client makes it."""
    roles = {ROLE: Role(instances=agents)}
    # On a busy machine thousands of handshakes take their time; that is to be seen, not punished.
    times = Timeouts(registration="1h", startup="1h")
    job = Job(name="fleet", framework="command", command="true", roles=roles, timeouts=times)
    meta = JobMeta(job_id=directory.job_id, user="nobody", backend=backend, submitted=1.0)
    directory.create(job, meta)
    authority.create(directory.job_id, directory.secrets)


def container_id(number: int) -> str:
    """The container granted for that request, counted from 1."""
    return CONTAINER_ID.format(number)


class StandIn(Backend):
    """Implements `howdah.backends.base.Backend` for containers in name only."""

    name = NAME
    lease_s = 600.0
    lists_all = True
    host = bind = "127.0.0.1"
    ports: tuple[int, int] | None = None
    page_readers = PageReaders()
    queue = ""

    def __init__(self, directory: JobDirectory) -> None:
        self._note = directory.path / LAUNCHED
        self._granted = int(self._note.read_text()) if self._note.exists() else 0
        self._launched = 0
        self._emit: Callable[[Event], None] = lambda event: None

    def places(self, job: Job, directory: JobDirectory) -> Places:
        return container_paths.places(job, directory)

    async def announce(self, address: CoordinatorAddress) -> None:
        pass

    async def finished(self, view: JobView) -> None:
        pass

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        self._emit = emit
        return [container_id(number) for number in range(1, self._granted + 1)]

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        for request in requests:
            if request.request_id > self._granted:
                granted = container_id(request.request_id)
                self._emit(
                    ContainerGranted(
                        request_id=request.request_id, container_id=granted, node="node-1"
                    )
                )
        self._granted = max([self._granted, *(request.request_id for request in requests)])

    async def waiting(self) -> str:
        return ""

    async def cancel(self, request_ids: Sequence[int]) -> None:
        pass

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        self._launched += 1
        if self._launched == self._granted:
            self._note.write_text(str(self._granted))

    async def release(self, container_id: str) -> None:
        self._emit(ContainerEnded(container_id=container_id, kind=ContainerEndKind.RELEASED))

    async def superseded(self) -> str:
        return await asyncio.Future()

    async def credentials(self) -> bytes:
        return await asyncio.Future()

    async def close(self) -> None:
        pass


# Type checkers see what the contract has grown by.
_BACKEND: type[Backend] = StandIn


def register() -> None:
    """Let this process know the backend; its jobs are looked at as jobs of this machine."""
    site = registry.BUILT_IN[registry.LOCAL].site
    registry.BUILT_IN[NAME] = registry.Parts(
        backend="benchmarks.standin:StandIn", submission="", site=site
    )


if __name__ == "__main__":
    register()
    sys.exit(main(sys.argv[1]))
