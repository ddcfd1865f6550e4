"""The ResourceManager, as its clients see it (``ApplicationClientProtocol``)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Literal, NamedTuple

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import ConnectionLimits
from howdah.hadoop.errors import ApplicationNotFound, CallTimeout, HadoopError
from howdah.hadoop.ids import ApplicationId, AttemptId, ContainerId, Resource
from howdah.hadoop.protos import yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import RM_TOKEN, Token
from howdah.hadoop.security.identity import Identity
from howdah.hadoop.security.login import Login
from howdah.hadoop.service import TokenService

NodeState = Literal[
    "NEW",
    "RUNNING",
    "UNHEALTHY",
    "DECOMMISSIONED",
    "LOST",
    "REBOOTED",
    "DECOMMISSIONING",
    "SHUTDOWN",
]
Signal = Literal["OUTPUT_THREAD_DUMP", "GRACEFUL_SHUTDOWN", "FORCEFUL_SHUTDOWN"]

_STATES = ("NEW", "NEW_SAVING", "SUBMITTED")  # before the scheduler has accepted an application


class SubmissionFailed(HadoopError):
    """The application was refused after it was taken; the message has YARN's diagnostics."""


class NewApplication(NamedTuple):
    """An id for an application that is not submitted yet."""

    id: ApplicationId
    maximum: Resource
    """The largest container the scheduler ever gives (some node need not be that large)."""


class ResourceManager(TokenService):
    """Applications, nodes, queues and labels of a cluster.

    All calls may be repeated without harm and are, on another server or after a lost connection,
    until their deadline.
    """

    PROTOCOL = "org.apache.hadoop.yarn.api.ApplicationClientProtocolPB"
    PRINCIPAL = "yarn.resourcemanager.principal"
    TOKEN_KIND = RM_TOKEN

    def __init__(
        self,
        configuration: Configuration,
        login: Login | str,
        *,
        token: Token | None = None,
        retry: RetryPolicy | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """``token`` is a delegation token of the ResourceManager's; else the login's, if it has one."""
        if token is None and isinstance(login, Login):
            token = login.token(RM_TOKEN)
        identity = Identity.from_configuration(configuration, login, token, self.PRINCIPAL)
        addresses = configuration.rm_addresses("client")
        super().__init__(addresses, identity, retry=retry, limits=limits)
        self.configuration = configuration

    # Applications

    async def new_application(self) -> NewApplication:
        """A fresh id, and how large a container may be."""
        answer = await self.rpc.call(
            "getNewApplication",
            yarn.GetNewApplicationRequestProto(),
            yarn.GetNewApplicationResponseProto,
        )
        return NewApplication(
            ApplicationId.from_proto(answer.application_id),
            Resource.from_proto(answer.maximumCapability),
        )

    async def submit_application(self, context: yarn.ApplicationSubmissionContextProto) -> None:
        """Hand an application over; it is not accepted yet (see `submit_and_wait`).

        Raises:
            RemoteError: it is refused at once (queue, limits, permissions).
        """
        await self.rpc.call(
            "submitApplication",
            yarn.SubmitApplicationRequestProto(application_submission_context=context),
            yarn.SubmitApplicationResponseProto,
        )

    async def submit_and_wait(
        self,
        context: yarn.ApplicationSubmissionContextProto,
        *,
        timeout_s: float = 60.0,
        poll_s: float = 0.02,
    ) -> yarn.ApplicationReportProto:
        """Hand an application over until the scheduler has accepted it; its report then.

        An RM that fails over before it has stored the application forgets it: it is handed over
        again. ``poll_s`` is the first interval of asking; it doubles up to half a second.

        Raises:
            SubmissionFailed: it was refused, with the reason.
            CallTimeout: it was neither accepted nor refused in time.
        """
        deadline = time.monotonic() + timeout_s
        app = ApplicationId.from_proto(context.application_id)
        await self.submit_application(context)
        while True:
            try:
                report = await self.application_report(app)
            except ApplicationNotFound:
                await self.submit_application(context)
                report = None
            if report is not None:
                state = yarn.YarnApplicationStateProto.Name(report.yarn_application_state)
                if state in ("FAILED", "KILLED"):
                    raise SubmissionFailed(f"{app} was not accepted: {report.diagnostics.strip()}")
                if state not in _STATES:
                    return report
            if time.monotonic() + poll_s > deadline:
                raise CallTimeout(f"{app} was not accepted within {timeout_s:g} s")
            await asyncio.sleep(poll_s)
            poll_s = min(0.5, poll_s * 2)

    async def application_report(self, app: ApplicationId) -> yarn.ApplicationReportProto:
        """State, diagnostics, master's address and use of an application.

        Raises:
            ApplicationNotFound: the RM does not know it (any more).
        """
        answer = await self.rpc.call(
            "getApplicationReport",
            yarn.GetApplicationReportRequestProto(application_id=app.to_proto()),
            yarn.GetApplicationReportResponseProto,
        )
        return answer.application_report

    async def applications(
        self, request: yarn.GetApplicationsRequestProto | None = None
    ) -> list[yarn.ApplicationReportProto]:
        """Applications, all or those the request selects (types, states, users, tags, …)."""
        answer = await self.rpc.call(
            "getApplications",
            request or yarn.GetApplicationsRequestProto(),
            yarn.GetApplicationsResponseProto,
        )
        return list(answer.applications)

    async def kill_application(
        self, app: ApplicationId, diagnostics: str = "", *, timeout_s: float = 30.0
    ) -> bool:
        """Kill an application; true once it is dead, false if that took longer than the time-out.

        Raises:
            ApplicationNotFound: the RM does not know it.
            AccessControl: the user may not.
        """
        request = yarn.KillApplicationRequestProto(
            application_id=app.to_proto(), diagnostics=diagnostics or None
        )
        deadline = time.monotonic() + timeout_s
        while True:
            answer = await self.rpc.call(
                "forceKillApplication", request, yarn.KillApplicationResponseProto
            )
            if answer.is_kill_completed or time.monotonic() >= deadline:
                return answer.is_kill_completed
            await asyncio.sleep(0.1)

    async def attempts(self, app: ApplicationId) -> list[yarn.ApplicationAttemptReportProto]:
        """The attempts of an application."""
        answer = await self.rpc.call(
            "getApplicationAttempts",
            yarn.GetApplicationAttemptsRequestProto(application_id=app.to_proto()),
            yarn.GetApplicationAttemptsResponseProto,
        )
        return list(answer.application_attempts)

    async def containers(self, attempt: AttemptId) -> list[yarn.ContainerReportProto]:
        """The containers that an attempt has now; ended ones are not kept by the RM."""
        answer = await self.rpc.call(
            "getContainers",
            yarn.GetContainersRequestProto(application_attempt_id=attempt.to_proto()),
            yarn.GetContainersResponseProto,
        )
        return list(answer.containers)

    async def container_report(self, container: ContainerId) -> yarn.ContainerReportProto:
        """One container; `ContainerNotFound` if the RM does not know it (any more)."""
        answer = await self.rpc.call(
            "getContainerReport",
            yarn.GetContainerReportRequestProto(container_id=container.to_proto()),
            yarn.GetContainerReportResponseProto,
        )
        return answer.container_report

    async def signal_container(self, container: ContainerId, signal: Signal) -> None:
        """Ask for a signal to a container; it goes out with the node's next heartbeat."""
        await self.rpc.call(
            "signalToContainer",
            yarn.SignalContainerRequestProto(
                container_id=container.to_proto(),
                command=yarn.SignalContainerCommandProto.Value(signal),
            ),
            yarn.SignalContainerResponseProto,
        )

    # The cluster

    async def cluster_metrics(self) -> yarn.YarnClusterMetricsProto:
        """Numbers of nodes by state."""
        answer = await self.rpc.call(
            "getClusterMetrics",
            yarn.GetClusterMetricsRequestProto(),
            yarn.GetClusterMetricsResponseProto,
        )
        return answer.cluster_metrics

    async def nodes(self, states: Iterable[NodeState] = ("RUNNING",)) -> list[yarn.NodeReportProto]:
        """Nodes with their resources, use and labels; all states if none is named."""
        answer = await self.rpc.call(
            "getClusterNodes",
            yarn.GetClusterNodesRequestProto(
                nodeStates=[yarn.NodeStateProto.Value(f"NS_{state}") for state in states]
            ),
            yarn.GetClusterNodesResponseProto,
        )
        return list(answer.nodeReports)

    async def queue(
        self, name: str = "root", *, recursive: bool = False, applications: bool = False
    ) -> yarn.QueueInfoProto | None:
        """A queue's state, capacity and use, with its children if asked for; None if none is there."""
        answer = await self.rpc.call(
            "getQueueInfo",
            yarn.GetQueueInfoRequestProto(
                queueName=name,
                includeApplications=applications,
                includeChildQueues=recursive,
                recursive=recursive,
            ),
            yarn.GetQueueInfoResponseProto,
        )
        return answer.queueInfo if answer.HasField("queueInfo") else None

    async def queue_user_acls(self) -> dict[str, tuple[str, ...]]:
        """By queue what the user may do there: ``SUBMIT_APPLICATIONS``, ``ADMINISTER_QUEUE``."""
        answer = await self.rpc.call(
            "getQueueUserAcls",
            yarn.GetQueueUserAclsInfoRequestProto(),
            yarn.GetQueueUserAclsInfoResponseProto,
        )
        names = yarn.QueueACLProto
        return {
            item.queueName: tuple(names.Name(a).removeprefix("QACL_") for a in item.userAcls)
            for item in answer.queueUserAcls
        }

    async def node_labels(self) -> dict[str, bool]:
        """The cluster's node labels; true where a label is exclusive."""
        answer = await self.rpc.call(
            "getClusterNodeLabels",
            yarn.GetClusterNodeLabelsRequestProto(),
            yarn.GetClusterNodeLabelsResponseProto,
        )
        return {label.name: label.isExclusive for label in answer.nodeLabels}

    async def resource_types(self) -> list[yarn.ResourceTypeInfoProto]:
        """The cluster's resource types, memory and cores among them."""
        answer = await self.rpc.call(
            "getResourceTypeInfo",
            yarn.GetAllResourceTypeInfoRequestProto(),
            yarn.GetAllResourceTypeInfoResponseProto,
        )
        return list(answer.resource_type_info)
