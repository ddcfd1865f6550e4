"""A NodeManager, as masters see it (``ContainerManagementProtocol``)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import ConnectionLimits
from howdah.hadoop.errors import CallTimeout, ConnectFailed, ConnectionLost, RemoteError
from howdah.hadoop.ids import ContainerId, NodeId
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import Signal
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.identity import Identity
from howdah.hadoop.security.login import Login
from howdah.hadoop.service import Service, remote_exception


class BatchOutcome(NamedTuple):
    """Which containers of a batch it worked for, and why not for the others."""

    done: tuple[ContainerId, ...]
    failed: Mapping[ContainerId, RemoteError]


class Statuses(NamedTuple):
    """The states of containers, and why others have none (unknown to the node, mostly)."""

    found: Mapping[ContainerId, yarn.ContainerStatusProto]
    failed: Mapping[ContainerId, RemoteError]


class NodeManager(Service):
    """Starting, stopping and asking after containers on one node.

    ``token`` is the node's NM token from the allocate or register response; a newer one for the
    same node is given to ``rpc.use_token``.
    """

    PROTOCOL = "org.apache.hadoop.yarn.api.ContainerManagementProtocolPB"
    PRINCIPAL = "yarn.nodemanager.principal"

    def __init__(
        self,
        configuration: Configuration,
        node: NodeId,
        login: Login | str,
        token: Token,
        *,
        retry: RetryPolicy | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        identity = Identity.from_configuration(configuration, login, token, self.PRINCIPAL)
        super().__init__([node.address], identity, retry=retry, limits=limits)
        self.node = node

    async def start_containers(
        self,
        requests: Mapping[ContainerId, yarn.StartContainerRequestProto],
        *,
        timeout_s: float | None = None,
    ) -> BatchOutcome:
        """Start containers: launch context and container token of each.

        If the answer is lost, the node is asked which ones it has, and only the others are
        started again: none is started twice, none is reported failed that runs.

        Raises:
            ConnectFailed: the node could not be reached, nothing was started.
            ConnectionLost, CallTimeout: the answer is lost; they may have been started.
        """
        total_s = self.rpc.retry.max_wait_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + total_s
        wanted = dict(requests)
        done: list[ContainerId] = []
        while True:
            left_s = max(0.001, deadline - time.monotonic())
            message = yarn.StartContainersRequestProto(start_container_request=wanted.values())
            try:
                answer = await self.rpc.call(
                    "startContainers",
                    message,
                    yarn.StartContainersResponseProto,
                    timeout_s=left_s,
                    idempotent=False,
                )
            except (ConnectionLost, CallTimeout):
                if time.monotonic() >= deadline:
                    raise
                left_s = deadline - time.monotonic()
                try:
                    there = (await self.statuses(wanted, timeout_s=left_s)).found
                except ConnectFailed as error:
                    raise ConnectionLost(
                        f"the answer to startContainers is lost, and {self.node} can't be asked what"
                        f" it has started: {error}"
                    ) from error
                done += there
                wanted = {c: request for c, request in wanted.items() if c not in there}
                if not wanted:
                    return BatchOutcome(tuple(done), {})
                continue
            done += [ContainerId.from_proto(c) for c in answer.succeeded_requests]
            return BatchOutcome(tuple(done), _failures(answer.failed_requests))

    async def stop_containers(
        self, containers: Iterable[ContainerId], *, timeout_s: float | None = None
    ) -> BatchOutcome:
        """Stop containers: SIGTERM, after the node's grace SIGKILL. Returns before they ended."""
        answer = await self.rpc.call(
            "stopContainers",
            yarn.StopContainersRequestProto(container_id=[c.to_proto() for c in containers]),
            yarn.StopContainersResponseProto,
            timeout_s=timeout_s,
        )
        done = tuple(ContainerId.from_proto(c) for c in answer.succeeded_requests)
        return BatchOutcome(done, _failures(answer.failed_requests))

    async def statuses(
        self, containers: Iterable[ContainerId], *, timeout_s: float | None = None
    ) -> Statuses:
        """State, exit status, diagnostics, IP and host of containers."""
        answer = await self.rpc.call(
            "getContainerStatuses",
            yarn.GetContainerStatusesRequestProto(container_id=[c.to_proto() for c in containers]),
            yarn.GetContainerStatusesResponseProto,
            timeout_s=timeout_s,
        )
        found = {ContainerId.from_proto(status.container_id): status for status in answer.status}
        return Statuses(found, _failures(answer.failed_requests))

    async def signal_container(self, container: ContainerId, signal: Signal) -> None:
        """Send a signal now; the node does not say whether it arrived."""
        await self.rpc.call(
            "signalToContainer",
            yarn.SignalContainerRequestProto(
                container_id=container.to_proto(),
                command=yarn.SignalContainerCommandProto.Value(signal),
            ),
            yarn.SignalContainerResponseProto,
        )


def _failures(
    failed: Iterable[yarn.ContainerExceptionMapProto],
) -> dict[ContainerId, RemoteError]:
    return {
        ContainerId.from_proto(item.container_id): remote_exception(item.exception)
        for item in failed
    }
