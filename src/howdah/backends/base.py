"""The contract of a backend: it grants, launches and ends containers; nothing else.

A backend knows nothing of generations, restarts or frameworks. It reports facts as core events and
may repeat them; the machine decides. `tests/conformance` runs every backend through this contract.

Guarantees a backend gives:

1. A request id is granted at most once, or refused once; asking again for a known id is harmless.
2. `ContainerEnded` comes exactly once for every granted container, also after `release`.
3. When `ContainerEnded` has come, no process of the container is left.
4. `containers()` after a coordinator's death names every container still held for the job.
5. A call never blocks the event loop and never raises for a container that is already gone.

Not guaranteed: that grants come in the order of requests, that a grant comes at all (a busy
cluster; the machine has the time-out), that `ContainerEnded` comes soon for a lost node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from howdah.agent.launch import AgentLaunch
from howdah.core.commands import ContainerRequest
from howdah.core.events import Event
from howdah.spec.model import Placement


class BackendError(Exception):
    """The backend cannot be used; the message is for the user: what, which value, what to do."""


class RoleResources(msgspec.Struct, frozen=True, kw_only=True):
    """What each container of a role needs."""

    memory_mb: int | None = None
    cores: int | None = None
    gpus: int = 0
    resources: dict[str, int] = {}
    label: str | None = None
    placement: Placement = Placement()


class Backend(Protocol):
    """One job's containers, as the coordinator uses them. All calls are on its event loop."""

    name: str
    lease_s: float
    """How long an agent may be without a coordinator."""

    async def start(
        self, roles: Mapping[str, RoleResources], emit: Callable[[Event], None]
    ) -> Sequence[str]:
        """Connect; facts go to ``emit`` from now on. Returns ids of containers still held.

        Raises:
            BackendError: not reachable, or the job can never run there.
        """
        ...

    async def request(
        self, requests: Sequence[ContainerRequest], avoid_nodes: Sequence[str]
    ) -> None:
        """Ask for containers; granted or refused through ``emit``, now or later."""
        ...

    async def cancel(self, request_ids: Sequence[int]) -> None:
        """Take requests back; one already granted is the machine's to release."""
        ...

    async def launch(self, container_id: str, launch: AgentLaunch) -> None:
        """Start the agent; a failure is reported as `ContainerEnded` (launch failed)."""
        ...

    async def release(self, container_id: str) -> None:
        """End whatever runs in the container and give it back."""
        ...

    async def close(self) -> None:
        """The job is over, everything was released: let go of the backend."""
        ...
