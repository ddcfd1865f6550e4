"""A ResourceManager and NodeManagers that exist in one process, speaking the real protocols.

For loads no machine here could carry: thousands of nodes and containers for one real master. They
grant what is asked for at once, round robin over their nodes, and hand every launch context to
whoever stands in for the containers; `SimulatedCluster.ended` reports a container's end. A node's
address is 127.1.x.y at one common port. Connections are taken without proof (SIMPLE): what DIGEST-MD5
costs is one exchange a connection.

``python -m benchmarks.yarn.simulated NODES CONTAINERS`` is a process of it. It says, a JSON object a
line, ``{"port": …, "first": …, "pattern": …}`` (the scheduler's port; container ids) and
``{"launched": …}`` once so many containers were launched; a line on its standard input means that the
master was lost, the input's end ends it.
"""

from __future__ import annotations

import asyncio
import collections
import collections.abc
import dataclasses
import itertools
import json
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Mapping

from google.protobuf.message import Message

from howdah.hadoop import frames
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, NodeId
from howdah.hadoop.protos import common, yarn

Handler = tuple[type[Message], Callable[[Message], Awaitable[Message]]]


class RpcServer:
    """Hadoop RPC, version 9, server side: one method table, no authentication."""

    def __init__(self, methods: Mapping[str, Handler]) -> None:
        self._methods = methods
        self.calls: collections.Counter[str] = collections.Counter()
        self.connections = 0

    async def serve(self, host: str, port: int = 0) -> asyncio.Server:
        return await asyncio.start_server(self._connection, host, port, backlog=1024)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = await reader.readexactly(7)
            if head[:4] != b"hrpc" or head[4] != frames.VERSION:
                return
            while True:
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                await self._frame(await reader.readexactly(length), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async def _frame(self, data: bytes, writer: asyncio.StreamWriter) -> None:
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            length, at = frames.read_varint(data, at)
            parts.append(data[at : at + length])
            at += length
        header = common.RpcRequestHeaderProto.FromString(parts[0])
        if header.callId == frames.CALL_SASL:
            states = common.RpcSaslProto.SaslState
            offer = common.RpcSaslProto(state=states.NEGOTIATE)
            offer.auths.append(common.RpcSaslProto.SaslAuth(method="SIMPLE", mechanism=""))
            self._answer(writer, header, offer)
        elif header.callId >= 0:
            what = common.RequestHeaderProto.FromString(parts[1])
            self.calls[what.methodName] += 1
            request, handle = self._methods[what.methodName]
            self._answer(writer, header, await handle(request.FromString(parts[2])))
        await writer.drain()

    def _answer(
        self, writer: asyncio.StreamWriter, to: common.RpcRequestHeaderProto, message: Message
    ) -> None:
        header = common.RpcResponseHeaderProto(
            callId=to.callId & 0xFFFFFFFF,
            status=common.RpcResponseHeaderProto.RpcStatusProto.SUCCESS,
            clientId=to.clientId,
        )
        writer.write(frames.frame(header, message))


@dataclasses.dataclass
class Held:
    """A container and where it is."""

    container: ContainerId
    node: NodeId
    running: bool = False


class SimulatedCluster:
    """The scheduler and all nodes. ``launched`` gets each container's id and launch context."""

    def __init__(
        self, nodes: int, launched: Callable[[str, yarn.ContainerLaunchContextProto], None]
    ) -> None:
        self.application = ApplicationId(int(time.time() * 1000), 1)
        self.attempt = 1
        self.held: dict[str, Held] = {}
        self.finished = asyncio.Event()
        self.final_status = 0
        self._launched = launched
        self._nodes = nodes
        self._numbers = itertools.count(FIRST)
        self._grants: list[yarn.ContainerProto] = []
        self._ended: list[yarn.ContainerStatusProto] = []
        self._told: set[NodeId] = set()
        """Nodes whose token the present attempt has."""
        self._servers: list[asyncio.Server] = []
        self.scheduler = RpcServer(
            {
                "registerApplicationMaster": (
                    yarn.RegisterApplicationMasterRequestProto,
                    self._register,
                ),
                "allocate": (yarn.AllocateRequestProto, self._allocate),
                "finishApplicationMaster": (yarn.FinishApplicationMasterRequestProto, self._finish),
            }
        )
        self.nodes = RpcServer(
            {
                "startContainers": (yarn.StartContainersRequestProto, self._start_containers),
                "stopContainers": (yarn.StopContainersRequestProto, self._stop_containers),
                "getContainerStatuses": (yarn.GetContainerStatusesRequestProto, self._statuses),
            }
        )
        self.scheduler_port = 0
        self._node_port = 0

    async def start(self) -> None:
        """Begin to listen; then `scheduler_port` is known."""
        scheduler = await self.scheduler.serve("127.0.0.1")
        nodes = await self.nodes.serve("0.0.0.0")
        self._servers = [scheduler, nodes]
        self.scheduler_port = scheduler.sockets[0].getsockname()[1]
        self._node_port = nodes.sockets[0].getsockname()[1]

    def close(self) -> None:
        for server in self._servers:
            server.close()

    def ended(self, container: str, exit_status: int = 0) -> None:
        """The container is over."""
        held = self.held.pop(container, None)
        if held is not None:
            self._ended.append(
                yarn.ContainerStatusProto(
                    container_id=held.container.to_proto(),
                    state=yarn.ContainerStateProto.C_COMPLETE,
                    exit_status=exit_status,
                )
            )

    def master_lost(self) -> AttemptId:
        """The next attempt may register; it keeps the containers. Returns its id."""
        self.attempt += 1
        self._told.clear()
        return AttemptId(self.application, self.attempt)

    # -- the scheduler ---------------------------------------------------------------------------

    async def _register(self, request: Message) -> Message:
        kept = list(self.held.values()) if self.attempt > 1 else []
        return yarn.RegisterApplicationMasterResponseProto(
            maximumCapability=yarn.ResourceProto(memory=1 << 20, virtual_cores=1024),
            queue="default",
            containers_from_previous_attempts=[self._container(held, -1) for held in kept],
            nm_tokens_from_previous_attempts=self._tokens(held.node for held in kept),
        )

    async def _allocate(self, request: Message) -> Message:
        assert isinstance(request, yarn.AllocateRequestProto)
        for ask in request.ask:
            for _ in range(ask.num_containers if ask.resource_name == "*" else 0):
                self._grants.append(self._grant(ask))
        for released in request.release:
            self.ended(str(ContainerId.from_proto(released)), -100)
        grants, self._grants = self._grants, []
        ended, self._ended = self._ended, []
        return yarn.AllocateResponseProto(
            response_id=request.response_id + 1,
            allocated_containers=grants,
            completed_container_statuses=ended,
            nm_tokens=self._tokens(NodeId.from_proto(each.nodeId) for each in grants),
            num_cluster_nodes=self._nodes,
        )

    async def _finish(self, request: Message) -> Message:
        assert isinstance(request, yarn.FinishApplicationMasterRequestProto)
        self.final_status = request.final_application_status
        self.finished.set()
        return yarn.FinishApplicationMasterResponseProto(isUnregistered=True)

    def _grant(self, ask: yarn.ResourceRequestProto) -> yarn.ContainerProto:
        number = next(self._numbers)
        place = number % self._nodes
        node = NodeId(f"127.1.{place // 250}.{place % 250 + 1}", self._node_port)
        container = ContainerId(AttemptId(self.application, self.attempt), number)
        held = self.held[str(container)] = Held(container, node)
        granted = self._container(held, ask.allocation_request_id)
        granted.priority.priority = ask.priority.priority
        granted.resource.CopyFrom(ask.capability)
        return granted

    def _container(self, held: Held, request: int) -> yarn.ContainerProto:
        # The simulated nodes read the container's id out of its token, as real ones do.
        identifier = held.container.to_proto().SerializeToString()
        return yarn.ContainerProto(
            id=held.container.to_proto(),
            nodeId=held.node.to_proto(),
            node_http_address=f"{held.node.host}:0",
            resource=yarn.ResourceProto(memory=1024, virtual_cores=1),
            allocation_request_id=request,
            container_token=common.TokenProto(
                identifier=identifier, password=b"-", kind="ContainerToken", service=str(held.node)
            ),
        )

    def _tokens(self, nodes: collections.abc.Iterable[NodeId]) -> list[yarn.NMTokenProto]:
        new = {node for node in nodes if node not in self._told}
        self._told |= new
        return [
            yarn.NMTokenProto(
                nodeId=node.to_proto(),
                token=common.TokenProto(
                    identifier=str(node).encode(), password=b"-", kind="NMToken", service=str(node)
                ),
            )
            for node in new
        ]

    # -- the nodes -------------------------------------------------------------------------------

    async def _start_containers(self, request: Message) -> Message:
        assert isinstance(request, yarn.StartContainersRequestProto)
        done: list[yarn.ContainerIdProto] = []
        for each in request.start_container_request:
            container = yarn.ContainerIdProto.FromString(each.container_token.identifier)
            done.append(container)
            name = str(ContainerId.from_proto(container))
            self.held[name].running = True
            self._launched(name, each.container_launch_context)
        return yarn.StartContainersResponseProto(succeeded_requests=done)

    async def _stop_containers(self, request: Message) -> Message:
        assert isinstance(request, yarn.StopContainersRequestProto)
        for each in request.container_id:
            self.ended(str(ContainerId.from_proto(each)), -105)
        return yarn.StopContainersResponseProto(succeeded_requests=list(request.container_id))

    async def _statuses(self, request: Message) -> Message:
        assert isinstance(request, yarn.GetContainerStatusesRequestProto)
        found = [
            yarn.ContainerStatusProto(
                container_id=each, state=yarn.ContainerStateProto.C_RUNNING, exit_status=-1000
            )
            for each in request.container_id
            if str(ContainerId.from_proto(each)) in self.held
        ]
        return yarn.GetContainerStatusesResponseProto(status=found)


FIRST = 2
"""Number of the first container that is not the master's."""


async def main(nodes: int, containers: int) -> None:
    """The process's whole life."""
    launched: list[str] = []

    def launch(container: str, context: yarn.ContainerLaunchContextProto) -> None:
        launched.append(container)
        if len(launched) == containers:
            print(json.dumps({"launched": containers}), flush=True)

    cluster = SimulatedCluster(nodes, launch)
    await cluster.start()
    a_container = str(ContainerId(AttemptId(cluster.application, 1), FIRST))
    pattern = a_container.rpartition("_")[0] + "_{:06d}"
    said = {"port": cluster.scheduler_port, "first": FIRST, "pattern": pattern}
    print(json.dumps(said), flush=True)
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while await reader.readline():
        cluster.master_lost()
    cluster.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
