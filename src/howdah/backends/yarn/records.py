"""Between this backend's data and YARN's records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from howdah.backends.base import RoleResources
from howdah.backends.yarn import amounts
from howdah.backends.yarn.master.outstanding_requests import ANY, Allocated, RoleRequest
from howdah.hadoop.ids import ContainerId, Resource
from howdah.hadoop.protos import yarn

GUARANTEED = 1  # ExecutionTypeProto
ALLOCATION_TAG = 2  # PlacementConstraintTargetProto.TargetType
NODE_SCOPE = "node"


def resource(resources: RoleResources) -> Resource:
    """What each container of a role asks for."""
    amount = amounts.of_role(resources)
    return Resource(amount.memory_mb, amount.cores, amount.more)


def resource_request(wanted: RoleRequest, resources: RoleResources) -> yarn.ResourceRequestProto:
    """An ordinary wanted. Only the one for any place may name a node label
    (``SchedulerUtils.validateResourceRequest``)."""
    request = yarn.ResourceRequestProto(
        resource_name=wanted.place,
        capability=resource(resources).to_proto(),
        num_containers=wanted.count,
        relax_locality=wanted.relaxed,
        allocation_request_id=wanted.key,
    )
    request.priority.priority = wanted.key
    if resources.label and wanted.place == ANY:
        request.node_label_expression = resources.label
    return request


def scheduling_request(
    wanted: RoleRequest, resources: RoleResources
) -> yarn.SchedulingRequestProto:
    """A request with a condition: on no node that has a container of these roles."""
    request = yarn.SchedulingRequestProto(
        allocationRequestId=wanted.key, allocationTags=[tag(wanted.role)]
    )
    request.priority.priority = wanted.key
    request.executionType.execution_type = GUARANTEED
    request.executionType.enforce_execution_type = True
    request.resourceSizing.numAllocations = wanted.count
    request.resourceSizing.resources.CopyFrom(resource(resources).to_proto())
    constraint = request.placementConstraint.simpleConstraint
    constraint.scope = NODE_SCOPE
    constraint.minCardinality = 0
    constraint.maxCardinality = 0
    constraint.targetExpressions.add(
        targetType=ALLOCATION_TAG, targetValues=[tag(role) for role in wanted.apart_from or ()]
    )
    return request


def tag(role: str) -> str:
    """The allocation tag of a role's containers."""
    return f"howdah-{role}"


def requests(
    requests: Iterable[RoleRequest], roles: Mapping[str, RoleResources]
) -> tuple[list[yarn.ResourceRequestProto], list[yarn.SchedulingRequestProto]]:
    """Both kinds of requests."""
    plain: list[yarn.ResourceRequestProto] = []
    conditional: list[yarn.SchedulingRequestProto] = []
    for wanted in requests:
        if wanted.apart_from is None:
            plain.append(resource_request(wanted, roles[wanted.role]))
        else:
            conditional.append(scheduling_request(wanted, roles[wanted.role]))
    return plain, conditional


def allocated(container: yarn.ContainerProto, *, with_port: bool) -> Allocated:
    """An allocated container. ``with_port``: nodes are named ``host:port``
    (``yarn.scheduler.include-port-in-node-name``)."""
    key = container.allocation_request_id
    return Allocated(
        container_id=str(ContainerId.from_proto(container.id)),
        key=key if key >= 0 else container.priority.priority,
        node=node_name(container.nodeId, with_port=with_port),
    )


def node_name(node: yarn.NodeIdProto, *, with_port: bool) -> str:
    """A node as requests and blacklists name it."""
    return f"{node.host}:{node.port}" if with_port else node.host
