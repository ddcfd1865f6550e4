"""Administration: high availability of a server, and the ResourceManager's queues and labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from howdah.hadoop.address import Address
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import Limits
from howdah.hadoop.identity import Identity
from howdah.hadoop.ids import NodeId
from howdah.hadoop.login import Login
from howdah.hadoop.protos import common, yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.service import Service

HaState = Literal["INITIALIZING", "ACTIVE", "STANDBY", "OBSERVER"]


class HaService(Service):
    """One server of a pair (``HAServiceProtocol``): an RM's admin port, a NameNode's RPC port."""

    PROTOCOL = "org.apache.hadoop.ha.HAServiceProtocol"

    def __init__(
        self,
        configuration: Configuration,
        address: Address,
        login: Login | str,
        *,
        retry: RetryPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        manager = address in configuration.rm_addresses("admin")
        key = "yarn.resourcemanager.principal" if manager else "dfs.namenode.kerberos.principal"
        identity = Identity.from_configuration(configuration, login, None, key)
        super().__init__([address], identity, retry=retry, limits=limits)

    async def state(self) -> HaState:
        """Whether it is the active one."""
        answer = await self.rpc.call(
            "getServiceStatus",
            common.GetServiceStatusRequestProto(),
            common.GetServiceStatusResponseProto,
        )
        names: dict[int, HaState] = {0: "INITIALIZING", 1: "ACTIVE", 2: "STANDBY", 3: "OBSERVER"}
        return names[answer.state]

    async def to_active(self) -> None:
        """Make it the active one; the other must be made standby before."""
        await self.rpc.call(
            "transitionToActive",
            common.TransitionToActiveRequestProto(reqInfo=_by_user()),
            common.TransitionToActiveResponseProto,
        )

    async def to_standby(self) -> None:
        """Make it a standby one."""
        await self.rpc.call(
            "transitionToStandby",
            common.TransitionToStandbyRequestProto(reqInfo=_by_user()),
            common.TransitionToStandbyResponseProto,
        )


def _by_user() -> common.HAStateChangeRequestInfoProto:
    return common.HAStateChangeRequestInfoProto(reqSource=common.HARequestSource.REQUEST_BY_USER)


class ResourceManagerAdmin(Service):
    """Queues, nodes and labels (``ResourceManagerAdministrationProtocol``)."""

    PRINCIPAL = "yarn.resourcemanager.principal"
    PROTOCOL = "org.apache.hadoop.yarn.server.api.ResourceManagerAdministrationProtocolPB"

    def __init__(
        self,
        configuration: Configuration,
        login: Login | str,
        *,
        retry: RetryPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        identity = Identity.from_configuration(configuration, login, None, self.PRINCIPAL)
        addresses = configuration.rm_addresses("admin")
        super().__init__(addresses, identity, retry=retry, limits=limits)

    async def refresh_queues(self) -> None:
        """Read the queues' configuration again."""
        await self.rpc.call(
            "refreshQueues", yarn.RefreshQueuesRequestProto(), yarn.RefreshQueuesResponseProto
        )

    async def refresh_nodes(self) -> None:
        """Read the lists of nodes to include and exclude again."""
        await self.rpc.call(
            "refreshNodes", yarn.RefreshNodesRequestProto(), yarn.RefreshNodesResponseProto
        )

    async def add_labels(self, labels: Mapping[str, bool]) -> None:
        """Add node labels to the cluster; true where a label is exclusive."""
        await self.rpc.call(
            "addToClusterNodeLabels",
            yarn.AddToClusterNodeLabelsRequestProto(
                nodeLabels=[
                    yarn.NodeLabelProto(name=name, isExclusive=exclusive)
                    for name, exclusive in labels.items()
                ]
            ),
            yarn.AddToClusterNodeLabelsResponseProto,
        )

    async def remove_labels(self, labels: Iterable[str]) -> None:
        """Take node labels from the cluster; no queue may use them."""
        await self.rpc.call(
            "removeFromClusterNodeLabels",
            yarn.RemoveFromClusterNodeLabelsRequestProto(nodeLabels=labels),
            yarn.RemoveFromClusterNodeLabelsResponseProto,
        )

    async def replace_labels(self, nodes: Mapping[NodeId, Iterable[str]]) -> None:
        """Give nodes their labels, instead of those they have."""
        await self.rpc.call(
            "replaceLabelsOnNodes",
            yarn.ReplaceLabelsOnNodeRequestProto(
                nodeToLabels=[
                    yarn.NodeIdToLabelsProto(nodeId=node.to_proto(), nodeLabels=labels)
                    for node, labels in nodes.items()
                ],
                failOnUnknownNodes=True,
            ),
            yarn.ReplaceLabelsOnNodeResponseProto,
        )
