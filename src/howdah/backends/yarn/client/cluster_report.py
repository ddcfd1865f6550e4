"""Asks a ResourceManager what its cluster is like: fills `howdah.backends.yarn.client.cluster`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from howdah.backends.yarn.amounts import Amount
from howdah.backends.yarn.client.cluster import Queue, Share, YarnCluster, YarnNode
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import HadoopError, RemoteError
from howdah.hadoop.ids import MEMORY, VCORES, Resource
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import NodeState, ResourceManager

NODE_STATES: tuple[NodeState, ...] = (
    "NEW",
    "RUNNING",
    "UNHEALTHY",
    "LOST",
    "REBOOTED",
    "DECOMMISSIONING",
)
_USABLE = "RUNNING"
_UNLIMITED = 2**31
_SCHEDULER = "yarn.resourcemanager.scheduler.class"


async def cluster(manager: ResourceManager, user: str, largest: Resource) -> YarnCluster:
    """The cluster now. ``largest`` is what a new application is told.

    What the ResourceManager does not tell (another scheduler, no permission) is left out.

    Raises:
        HadoopError: it does not answer.
    """
    nodes, root, acls, labels, types = await asyncio.gather(
        manager.nodes(NODE_STATES),
        _told(manager.queue("root", recursive=True)),
        _told(manager.queue_user_acls()),
        _told(manager.node_labels()),
        _told(manager.resource_types()),
    )
    enabled = manager.configuration.boolean("yarn.node-labels.enabled")
    return YarnCluster(
        user=user,
        largest=amount(largest),
        smallest=smallest(manager.configuration),
        step=step(manager.configuration),
        nodes=tuple(node(report) for report in nodes),
        queues=tuple(queues(root)) if root is not None else (),
        labels=tuple(sorted(labels)) if labels is not None and (labels or enabled) else None,
        shared_labels=frozenset(
            name for name, exclusive in (labels or {}).items() if not exclusive
        ),
        resource_types=_types(types) if types is not None else None,
        may_submit=_may_submit(acls) if acls is not None else None,
    )


async def look(manager: ResourceManager, user: str) -> YarnCluster:
    """As `cluster`, with an application id asked for only to be told the largest container."""
    new = await manager.new_application()
    return await cluster(manager, user, new.maximum)


async def nodes_and_queue(
    manager: ResourceManager, user: str, queue: str
) -> tuple[YarnCluster, Queue | None]:
    """What there is to wait for, in two calls: the nodes, and that queue if it is told of.

    Raises:
        HadoopError: the ResourceManager does not answer.
    """
    nodes, found = await asyncio.gather(manager.nodes(NODE_STATES), queue_of(manager, queue))
    cluster = YarnCluster(
        user=user,
        largest=Amount(),
        smallest=smallest(manager.configuration),
        step=step(manager.configuration),
        nodes=tuple(node(report) for report in nodes),
    )
    return cluster, found


async def queue_of(manager: ResourceManager, name: str) -> Queue | None:
    """The queue that an application is in by its report, without those below it; None if it is not told of.

    By its whole name first: the last part may be another queue's too, or no queue's.

    Raises:
        HadoopError: the ResourceManager does not answer.
    """
    for each in dict.fromkeys((name, name.rpartition(".")[2])):
        found = await _told(manager.queue(each))
        if found is not None:
            return next(queues(found))
    return None


def amount(resource: Resource) -> Amount:
    """A resource as we count it."""
    return Amount(
        memory_mb=resource.memory_mb,
        cores=resource.vcores,
        more={name: value for name, value in resource.others.items() if value},
    )


def resource(amount: Amount) -> Resource:
    """The reverse of `amount`."""
    return Resource(amount.memory_mb, amount.cores, amount.more)


def node(report: yarn.NodeReportProto) -> YarnNode:
    """A node as the ResourceManager reports it."""
    state = yarn.NodeStateProto.Name(report.node_state).removeprefix("NS_")
    return YarnNode(
        host=f"{report.nodeId.host}:{report.nodeId.port}",
        capability=amount(Resource.from_proto(report.capability)),
        used=amount(Resource.from_proto(report.used)),
        labels=tuple(label for label in report.node_labels if label),
        usable=state == _USABLE,
        state=state,
        health=report.health_report,
        rack=report.rackName,
    )


def is_fair(configuration: Configuration) -> bool:
    """The cluster has the Fair Scheduler, if our copy of the configuration is the cluster's."""
    return configuration.get(_SCHEDULER).endswith(".FairScheduler")


def step(configuration: Configuration) -> Amount | None:
    """Steps in which the Fair Scheduler gives containers, if our copy of the configuration is the cluster's;
    None with another scheduler."""
    if not is_fair(configuration):
        return None

    def increment(resource: str, older: str, default: int) -> int:
        name = f"yarn.resource-types.{resource}.increment-allocation"
        return configuration.integer(name, configuration.integer(older, default))

    older = "yarn.scheduler.increment-allocation"
    try:
        return Amount(
            memory_mb=increment("memory-mb", f"{older}-mb", 1024),
            cores=increment("vcores", f"{older}-vcores", 1),
        )
    except HadoopError:  # a number with a unit
        return Amount(memory_mb=1, cores=1)


def smallest(configuration: Configuration) -> Amount:
    """The smallest container, if our copy of the configuration is the cluster's."""
    try:
        return Amount(
            memory_mb=configuration.integer("yarn.scheduler.minimum-allocation-mb", 1024),
            cores=configuration.integer("yarn.scheduler.minimum-allocation-vcores", 1),
        )
    except HadoopError:
        return Amount(memory_mb=1, cores=1)


async def _told(asked):  # type: ignore[no-untyped-def]
    """An answer, or None where the ResourceManager does not give that."""
    try:
        return await asked
    except RemoteError:
        return None


def _types(types: list[yarn.ResourceTypeInfoProto]) -> tuple[str, ...]:
    return tuple(sorted(each.name for each in types if each.name not in (MEMORY, VCORES)))


def _may_submit(acls: dict[str, tuple[str, ...]]) -> frozenset[str]:
    """Queues by name and by path: newer clusters tell paths, older ones names."""
    paths = [name for name, allowed in acls.items() if "SUBMIT_APPLICATIONS" in allowed]
    return frozenset(paths) | {path.rpartition(".")[2] for path in paths}


def queues(info: yarn.QueueInfoProto) -> Iterator[Queue]:
    """The queue as the ResourceManager reports it, and all below it."""
    statistics = info.queueStatistics if info.HasField("queueStatistics") else None
    yield Queue(
        name=info.queueName,
        path=info.queuePath,
        running=yarn.QueueStateProto.Name(info.state) == "Q_RUNNING",
        state=yarn.QueueStateProto.Name(info.state).removeprefix("Q_"),
        labels=tuple(info.accessibleNodeLabels),
        default_label=info.defaultNodeLabelExpression,
        shares=_shares(info),
        leaf=not info.childQueues,
        used=Amount(memory_mb=statistics.allocatedMemoryMB, cores=statistics.allocatedVCores)
        if statistics is not None
        else None,
        pending_applications=statistics.numAppsPending if statistics else 0,
    )
    for child in info.childQueues:
        yield from queues(child)


def _shares(info: yarn.QueueInfoProto) -> dict[str, Share]:
    found = {
        entry.partitionName: _share(entry.queueConfigurations)
        for entry in info.queueConfigurationsMap
    }
    if "" not in found and info.HasField("maximumCapacity"):
        found[""] = Share(maximum_part=info.maximumCapacity)
    if "" not in found and info.HasField("maxResourceMemory"):  # the Fair Scheduler's
        # Without a limit the memory is the greatest number there is, and the cores are 0.
        most = Amount(
            memory_mb=info.maxResourceMemory if info.maxResourceMemory > 0 else _UNLIMITED,
            cores=info.maxResourceVCore if info.maxResourceVCore > 0 else _UNLIMITED,
        )
        found[""] = Share(maximum=most, partial=True)
    return found


def _share(told: yarn.QueueConfigurationsProto) -> Share:
    part = told.absoluteMaxCapacity if told.HasField("absoluteMaxCapacity") else 1.0
    return Share(
        maximum=_capacity(told, "effectiveMaxCapacity"),
        maximum_part=part,
    )


def _capacity(told: yarn.QueueConfigurationsProto, name: str) -> Amount | None:
    if not told.HasField(name):  # pyright: ignore[reportArgumentType]
        return None
    found = amount(Resource.from_proto(getattr(told, name)))
    return found if found.memory_mb else None
