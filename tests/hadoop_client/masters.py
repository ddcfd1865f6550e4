"""Masters that run inside the test: unmanaged applications on the real cluster."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, NodeId, Resource
from howdah.hadoop.nodemanager import NodeManager
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.scheduler import Scheduler
from howdah.hadoop.security.credentials import Token

WAIT_S = 60.0
BEAT_S = 0.05
SMALL = Resource(64, 1)


def state(report: yarn.ApplicationReportProto) -> str:
    """An application's state by name."""
    return yarn.YarnApplicationStateProto.Name(report.yarn_application_state)


async def until(what: str, test: Callable[[], Awaitable[bool]], wait_s: float = WAIT_S) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + wait_s
    while not await test():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(BEAT_S)


async def submit_unmanaged(
    rm: ResourceManager, queue: str = "default", name: str = "unmanaged"
) -> tuple[ApplicationId, Token]:
    """An application whose master is this process, and the token it registers with."""
    new = await rm.new_application()
    context = yarn.ApplicationSubmissionContextProto(
        application_id=new.id.to_proto(),
        application_name=name,
        applicationType="TEST",
        queue=queue,
        unmanaged_am=True,
        am_container_spec=yarn.ContainerLaunchContextProto(),
        resource=Resource(64, 1).to_proto(),
    )
    report = await rm.submit_and_wait(context)
    deadline = time.monotonic() + WAIT_S
    while not report.am_rm_token.identifier:
        assert time.monotonic() < deadline, "no AMRM token came"
        await asyncio.sleep(BEAT_S)
        report = await rm.application_report(new.id)
    return new.id, Token.from_proto(report.am_rm_token)


class Master:
    """A registered master, with what it was given so far."""

    def __init__(
        self, configuration: Configuration, user: str, app: ApplicationId, token: Token
    ) -> None:
        self.configuration = configuration
        self.user = user
        self.app = app
        self.attempt = AttemptId(app, 1)
        self.scheduler = Scheduler(configuration, user, token, retry=RetryPolicy(max_wait_s=WAIT_S))
        self.containers: dict[ContainerId, yarn.ContainerProto] = {}
        self.completed: dict[ContainerId, yarn.ContainerStatusProto] = {}
        self.rejected: list[yarn.RejectedSchedulingRequestProto] = []
        self.tokens: dict[NodeId, Token] = {}
        self.last = yarn.AllocateResponseProto()

    async def beat(self, **what: object) -> None:
        """One heartbeat."""
        self.last = await self.scheduler.allocate(**what)  # pyright: ignore[reportArgumentType]
        for token in self.last.nm_tokens:
            self.tokens[NodeId.from_proto(token.nodeId)] = Token.from_proto(token.token)
        for container in self.last.allocated_containers:
            self.containers[ContainerId.from_proto(container.id)] = container
        for status in self.last.completed_container_statuses:
            self.completed[ContainerId.from_proto(status.container_id)] = status
        self.rejected += self.last.rejected_scheduling_requests

    async def beat_until(self, what: str, test: Callable[[], bool], wait_s: float = WAIT_S) -> None:
        """Heartbeat until something is there."""
        deadline = time.monotonic() + wait_s
        while not test():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            await asyncio.sleep(BEAT_S)
            await self.beat()

    async def obtain(self, count: int, resource: Resource = SMALL) -> list[ContainerId]:
        """So many containers, anywhere."""
        before = set(self.containers)
        await self.beat(ask=[ask(count, resource)])
        await self.beat_until("containers", lambda: len(self.containers) >= len(before) + count)
        await self.beat(ask=[ask(0, resource)])
        return [container for container in self.containers if container not in before]

    def node_of(self, container: ContainerId) -> NodeId:
        return NodeId.from_proto(self.containers[container].nodeId)

    def node_manager(self, node: NodeId) -> NodeManager:
        return NodeManager(self.configuration, node, self.user, self.tokens[node])

    def start_request(
        self, container: ContainerId, command: str
    ) -> yarn.StartContainerRequestProto:
        """What starts a shell command in a container."""
        return yarn.StartContainerRequestProto(
            container_token=self.containers[container].container_token,
            container_launch_context=yarn.ContainerLaunchContextProto(command=[command]),
        )

    async def run(self, container: ContainerId, command: str) -> None:
        """Start a shell command in a container."""
        async with self.node_manager(self.node_of(container)) as nm:
            outcome = await nm.start_containers({container: self.start_request(container, command)})
            assert outcome.done == (container,), outcome.failed


def ask(
    count: int,
    resource: Resource = SMALL,
    *,
    place: str = "*",
    priority: int = 1,
    label: str | None = None,
    request_id: int = 1,
    relax: bool = True,
) -> yarn.ResourceRequestProto:
    """A request for so many containers."""
    return yarn.ResourceRequestProto(
        priority=yarn.PriorityProto(priority=priority),
        resource_name=place,
        capability=resource.to_proto(),
        num_containers=count,
        relax_locality=relax,
        node_label_expression=label,
        allocation_request_id=request_id,
    )


@contextlib.asynccontextmanager
async def master(
    configuration: Configuration, user: str, *, queue: str = "default", register: bool = True
) -> AsyncIterator[Master]:
    """A registered master of a new application, which is ended afterwards whatever happened."""
    async with ResourceManager(configuration, user) as rm:
        app, token = await submit_unmanaged(rm, queue)
        made = Master(configuration, user, app, token)
        try:
            if register:
                await made.scheduler.register("127.0.0.1", -1, "http://127.0.0.1:1/")
            yield made
        finally:
            await made.scheduler.close()
            await rm.kill_application(app)
