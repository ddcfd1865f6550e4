"""The container table: what a master holds, and what the ResourceManager says of it."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from howdah.backends.base import RoleResources
from howdah.backends.yarn import records
from howdah.backends.yarn.amounts import Amount
from howdah.backends.yarn.client import cluster_report
from howdah.backends.yarn.master import container_exit_status
from howdah.backends.yarn.master.nodes import Nodes
from howdah.backends.yarn.master.outstanding_requests import OutstandingRequests
from howdah.core.messages import (
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    Event,
    PreemptionNoticed,
    RequestRefused,
)
from howdah.hadoop.ids import ContainerId, NodeId, Resource
from howdah.hadoop.protos import yarn

log: logging.Logger = logging.getLogger(__name__)

STOPPING_S = 10.0
"""For a node to end a container, then the ResourceManager is given it."""
RELEASED_S = 30.0
"""For the ResourceManager to confirm that: after its restart it may not know the container."""
_DECOMMISSIONING = 7  # NodeStateProto


class Phase(enum.Enum):
    """How far a container is."""

    GRANTED = "granted"
    LAUNCHED = "launched"
    """Handed to its node; it may still be localising."""
    STOPPING = "stopping"
    """Its node was told to end it."""
    RELEASED = "released"
    """Given back to the ResourceManager."""
    UNCONFIRMED = "unconfirmed"
    """The ResourceManager has given it up; its node is asked whether its processes have ended."""


class Container(msgspec.Struct, kw_only=True, eq=False):
    """One container this master holds."""

    id: ContainerId
    node: NodeId
    node_name: str
    role: str
    token: bytes | None = None
    """Its container token, serialised; None for one of an earlier attempt, which runs."""
    phase: Phase = Phase.GRANTED
    since: float = 0.0
    """When the phase began, on the loop's clock."""
    launched: bool = False
    """Its node was told to start it: something may run in it."""
    noticed: float | None = None
    """Its preemption was announced."""

    @property
    def releasing(self) -> bool:
        """We gave it back."""
        return self.phase in (Phase.STOPPING, Phase.RELEASED)

    @property
    def ending(self) -> bool:
        """It will be gone soon; nothing more is to be done about it."""
        return self.releasing or self.phase is Phase.UNCONFIRMED


class ContainerTable:
    """Every container from its grant to its end, which is told exactly once.

    Implements `howdah.backends.yarn.master.allocate_loop.AllocateListener`.
    """

    def __init__(
        self,
        requests: OutstandingRequests,
        roles: Mapping[str, RoleResources],
        nodes: Nodes,
        emit: Callable[[Event], None],
        wake: Callable[[], None],
        *,
        attempt: int,
        with_port: bool,
        notice_s: float,
    ) -> None:
        """``wake`` is called when there is something to say to the ResourceManager; ``attempt`` is
        the application's that this master is, ``notice_s`` how long the ResourceManager leaves
        containers it will preempt."""
        self.requests = requests
        self._roles = roles
        self._nodes = nodes
        self._emit = emit
        self._wake = wake
        self._attempt = attempt
        self._with_port = with_port
        self._notice_s = notice_s
        self._containers: dict[str, Container] = {}
        self._unwanted: set[str] = set()
        """Given back before the ResourceManager had named them: their nodes are not back yet."""
        self._changed = asyncio.Event()
        self._confirming: set[asyncio.Task[None]] = set()
        self.headroom: Amount | None = None
        """What the queue has left for the job, as last told."""

    def get(self, container_id: str) -> Container | None:
        """A container that is held."""
        return self._containers.get(container_id)

    def held(self) -> list[str]:
        """Ids of all containers that are held."""
        return sorted(self._containers)

    # -- what the ResourceManager says (howdah.backends.yarn.master.allocate_loop.AllocateListener) ----------------------

    @property
    def busy(self) -> bool:
        return any(container.releasing for container in self._containers.values())

    def answered(self, answer: yarn.AllocateResponseProto) -> None:
        if answer.HasField("limit"):
            self.headroom = cluster_report.amount(Resource.from_proto(answer.limit))
        for token in answer.nm_tokens:
            self._nodes.use_token(token)
        for proto in answer.containers_from_previous_attempts:
            self._recovered_late(proto)
        self._granted(list(answer.allocated_containers))
        for status in answer.completed_container_statuses:
            self._completed(status)
        self._notice(answer)
        self._give_up_waiting()

    def registered_again(self, answer: yarn.RegisterApplicationMasterResponseProto) -> None:
        for token in answer.nm_tokens_from_previous_attempts:
            self._nodes.use_token(token)
        for container in self._containers.values():
            if container.phase is Phase.RELEASED:
                self.requests.release(str(container.id))

    def refused(self, role: str, reason: str) -> None:
        wanted = records.resource(self._roles[role])
        for request_id in self.requests.refuse(role):
            text = f"YARN refuses containers of role {role} ({wanted}): {reason}"
            self._emit(RequestRefused(request_id=request_id, reason=text))

    def take_over(self, answer: yarn.RegisterApplicationMasterResponseProto) -> None:
        """Containers of earlier attempts are held."""
        for proto in answer.containers_from_previous_attempts:
            self._recovered(proto)
        if self._containers:
            log.info("%d containers of earlier attempts are held", len(self._containers))

    def _recovered(self, proto: yarn.ContainerProto) -> Container:
        given = records.allocated(proto, with_port=self._with_port)
        self.requests.recovered(given)
        container = self._container(proto, self.requests.role_of(given.key) or "")
        container.launched = True
        self.enter(container, Phase.LAUNCHED)
        return container

    def _recovered_late(self, proto: yarn.ContainerProto) -> None:
        """A container of an earlier attempt whose node was not back when this one registered."""
        container_id = str(ContainerId.from_proto(proto.id))
        if container_id in self._containers:
            return
        container = self._recovered(proto)
        if container_id in self._unwanted:
            log.warning("%s of an earlier attempt came too late and is given back", container_id)
            self.release(container)
            return
        log.info("%s of an earlier attempt is held too", container_id)
        self._emit(
            ContainerGranted(request_id=0, container_id=container_id, node=container.node_name)
        )

    # -- containers ------------------------------------------------------------------------------

    def _granted(self, protos: Sequence[yarn.ContainerProto]) -> None:
        by_id = {str(ContainerId.from_proto(proto.id)): proto for proto in protos}
        given = [records.allocated(proto, with_port=self._with_port) for proto in protos]
        matched, excess = self.requests.allocated(given)
        if excess:
            log.info("%d containers came that nobody wants any more", len(excess))
            self._wake()
        for request_id, one in matched:
            role = self.requests.role_of(one.key) or ""
            container = self._container(by_id[one.container_id], role)
            container.token = by_id[one.container_id].container_token.SerializeToString()
            self._emit(
                ContainerGranted(
                    request_id=request_id, container_id=one.container_id, node=one.node
                )
            )

    def _container(self, proto: yarn.ContainerProto, role: str) -> Container:
        container = Container(
            id=ContainerId.from_proto(proto.id),
            node=NodeId.from_proto(proto.nodeId),
            node_name=records.node_name(proto.nodeId, with_port=self._with_port),
            role=role,
        )
        self._containers[str(container.id)] = container
        return container

    def _completed(self, status: yarn.ContainerStatusProto) -> None:
        identity = ContainerId.from_proto(status.container_id)
        container_id = str(identity)
        container = self._containers.get(container_id)
        detail = container_exit_status.detail(status.exit_status, status.diagnostics)
        proof = container_exit_status.is_proof(status.exit_status)
        kind = container_exit_status.kind(
            status.exit_status,
            status.diagnostics,
            releasing=container is not None and container.releasing,
        )
        if status.exit_status > 0 and kind is not ContainerEndKind.RELEASED:
            detail += f"\n{container_exit_status.output(identity)}"
        if container is None and identity.attempt.number < self._attempt:
            # It ended while there was no master: its agent is not waited for, nor what may start
            # only after it.
            log.info("%s had ended (%d): %s", container_id, status.exit_status, detail)
            self._emit(
                ContainerEnded(container_id=container_id, kind=kind, detail=detail, proven=proof)
            )
        if container is None or container.phase is Phase.UNCONFIRMED:
            return  # excess, or its end is known already
        log.info("%s ended (%d): %s", container_id, status.exit_status, detail)
        if container.launched and not proof:
            self.confirm(container, kind, detail)
        else:
            self.ended(container, kind, detail)

    def confirm(self, container: Container, kind: ContainerEndKind, detail: str) -> None:
        """Only the container's node knows whether its processes have ended: it is asked, then the
        end is told."""
        # One that we released was told to end by its coordinator first.
        forgotten = container.releasing
        self.enter(container, Phase.UNCONFIRMED)

        async def work() -> None:
            proven = await self._nodes.end(container.node, container.id, forgotten=forgotten)
            self.ended(container, kind, detail, proven=proven)

        task = asyncio.create_task(work(), name=f"end of {container.id}")
        self._confirming.add(task)
        task.add_done_callback(self._confirming.discard)

    def ended(
        self, container: Container, kind: ContainerEndKind, detail: str, *, proven: bool = True
    ) -> None:
        container_id = str(container.id)
        if self._containers.pop(container_id, None) is None:
            return
        if not proven:
            log.warning("whether the processes of %s have ended is not known", container_id)
        self.requests.completed(container_id)
        self._changed.set()
        self.emit_soon(
            ContainerEnded(container_id=container_id, kind=kind, detail=detail, proven=proven)
        )

    def _notice(self, answer: yarn.AllocateResponseProto) -> None:
        """Containers that will be taken back, and nodes that will be shut down."""
        now = asyncio.get_running_loop().time()
        message = answer.preempt
        taken = [*message.strictContract.container, *message.contract.container]
        soon = {str(ContainerId.from_proto(each.id)): self._notice_s for each in taken}
        for node in answer.updated_nodes:
            if node.node_state == _DECOMMISSIONING:
                name = records.node_name(node.nodeId, with_port=self._with_port)
                limit_s = float(node.decommissioning_timeout) or None
                soon |= {
                    container_id: limit_s
                    for container_id, container in self._containers.items()
                    if container.node_name == name
                }
        for container_id, deadline_s in soon.items():
            container = self._containers.get(container_id)
            if container is None or container.ending:
                continue
            # The ResourceManager repeats its notices as long as they hold.
            if container.noticed is None or now - container.noticed > self._notice_s:
                container.noticed = now
                self._emit(PreemptionNoticed(container_id=container_id, deadline_s=deadline_s))

    def _give_up_waiting(self) -> None:
        """Ends that do not come: a node that is silent, a container nobody knows any more."""
        now = asyncio.get_running_loop().time()
        for container in list(self._containers.values()):
            if container.phase is Phase.STOPPING and now - container.since > STOPPING_S:
                log.warning("%s does not end; it is given back", container.id)
                self.release(container)
            elif container.phase is Phase.RELEASED and now - container.since > RELEASED_S:
                words = "YARN does not know it any more"
                if container.launched:
                    self.confirm(container, ContainerEndKind.RELEASED, words)
                else:
                    self.ended(container, ContainerEndKind.RELEASED, words)

    def unwanted(self, container_id: str) -> None:
        """Not known, and to be given back when it will be."""
        self._unwanted.add(container_id)

    def release(self, container: Container) -> None:
        self.enter(container, Phase.RELEASED)
        self.requests.release(str(container.id))
        self._wake()

    def enter(self, container: Container, phase: Phase) -> None:
        container.phase = phase
        container.since = asyncio.get_running_loop().time()

    async def all_ended(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self._containers:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            log.warning("%d containers have not ended: YARN will", len(self._containers))

    async def close(self) -> None:
        """Ask nodes no more."""
        confirming = list(self._confirming)
        for task in confirming:
            task.cancel()
        await asyncio.gather(*confirming, return_exceptions=True)

    def emit_soon(self, event: Event) -> None:
        """Not from within a call: who calls has not written down yet that it has called."""
        asyncio.get_running_loop().call_soon(lambda: self._emit(event))
