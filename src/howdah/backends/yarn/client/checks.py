"""Requests a cluster can never grant, found before a job is submitted. Pure.

YARN itself refuses some of them late (when the master asks), and waits for ever on others: a
container larger than any node, a label that no node has, a gang larger than its queue may get. What
is only busy now is no problem: see `howdah.backends.yarn.pending_reason`. What ``hadoop.autoscaling``
nodes to come may still make fit is a warning: `warnings`. So is what the cluster takes and does not heed:
`by_configuration`.

Which queue a job is in is only known once YARN has taken it: the cluster may map users, groups and names of
applications to queues, also to such as it makes for them. What a queue has to do with is looked for again then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from howdah.backends.base import RoleResources
from howdah.backends.yarn.amounts import (
    GPU,
    Amount,
    least,
    most,
    of_master,
    of_role,
    quantity,
    size,
    total,
)
from howdah.backends.yarn.client.cluster import Queue, YarnCluster, YarnNode, listed
from howdah.hadoop.configuration import Configuration
from howdah.spec.model import Job, Mode, Tracking
from howdah.spec.problems import closest
from howdah.spec.units import instance_range

DEFAULT_QUEUE = "default"
"""``YarnConfiguration.DEFAULT_QUEUE_NAME``"""
_ACLS = "yarn.acl.enable"
_EXECUTOR = "yarn.nodemanager.container-executor.class"
_RUNTIMES = "yarn.nodemanager.runtime.linux.allowed-runtimes"
GONE = frozenset({"DECOMMISSIONED", "SHUTDOWN"})
"""States of nodes that do not come back by themselves."""

_KEYS = {"memory": "memory", "cores": "cores", GPU: "gpus"}
_LIMITS = {
    "memory": "yarn.scheduler.maximum-allocation-mb",
    "cores": "yarn.scheduler.maximum-allocation-vcores",
}


def problems(
    job: Job, roles: Mapping[str, RoleResources], cluster: YarnCluster, queue: Queue | None = None
) -> list[str]:
    """Why the cluster can never run the (expanded) job, each with the nearest possible value.

    ``queue`` is the one that it is in; None while that is not known: what no queue could change is found then.
    """
    found: list[str] = []
    for name, resources in {"": None, **roles}.items():
        where = f"roles.{name}" if resources else "master"
        label = resources.label if resources else job.master.label
        amount = of_role(resources) if resources else of_master(job.master)
        about_label = [*_label(where, label, queue, cluster)]
        about_amount = [*_container(where, amount, cluster)]
        if not about_amount and not job.hadoop.autoscaling:
            in_label = None if about_label else _in(label, queue)
            about_amount += _on_a_node(where, amount, in_label, cluster)
        found += about_label + about_amount
    if not found and not job.hadoop.autoscaling:
        found += _together(job, roles, queue, cluster)
    return found


def unusable(job: Job, cluster: YarnCluster) -> list[str]:
    """Why YARN may not take the job into the queue that it asks for."""
    return [*_queue(job.queue, asked_for(job, cluster), cluster)]


def asked_for(job: Job, cluster: YarnCluster) -> Queue | None:
    """The queue that the job asks for; None if there is none of that name."""
    return cluster.queue(job.queue or DEFAULT_QUEUE)


def elsewhere(job: Job, queue: str) -> str:
    """That YARN has put the job into another queue than it asks for; empty if it has not."""
    asked, got = ((each or "").removeprefix("root.") for each in (job.queue, queue))
    same = asked == got or asked == got.rpartition(".")[2] or asked.rpartition(".")[2] == got
    if not asked or not got or same:
        return ""
    return f"queue: the cluster has put the job into {queue!r}, not into {job.queue!r}, by its own rules"


def warnings(
    job: Job, roles: Mapping[str, RoleResources], cluster: YarnCluster, queue: Queue | None
) -> list[str]:
    """Why the (expanded) job may not run as things are in that queue, each with the nearest possible value."""
    found: list[str] = []
    labels = {f"roles.{name}": resources.label for name, resources in roles.items()}
    for where, label in {"master": job.master.label, **labels}.items():
        known = cluster.labels is None or label in cluster.labels
        if label and known and cluster.nodes and not _partition(label, cluster):
            found.append(f"{where}.label: no node is labelled {label!r} at present")
    if job.hadoop.autoscaling:
        found += _not_yet(job, roles, queue, cluster)
    return found


def by_configuration(job: Job, configuration: Configuration) -> list[str]:
    """What the cluster does not heed of the (expanded) job, as far as our configuration tells: nodes may
    have another one, and of what is not written there nothing is known."""
    found: list[str] = []
    acl = {each: getattr(job.acl, each) for each in job.acl.__struct_fields__}
    named = [each.replace("_", "-") for each, who in acl.items() if who and "*" not in who]
    if named and (why := no_access_lists(configuration)):
        found.append(f"acl: {listed(named)} keep nobody out, {why}")
    if why := no_images(configuration):
        found += [f"roles.{name}.image: {why}" for name, role in job.roles.items() if role.image]
    return found


def no_access_lists(configuration: Configuration) -> str:
    """Why everybody may see and end every application; empty if they may not."""
    if configuration.boolean(_ACLS):
        return ""
    return (
        f"as everybody may see and end every job: {_ACLS} is false ({configuration.source(_ACLS)})"
    )


def no_images(configuration: Configuration) -> str:
    """Why containers are not run in images; empty if they are, or nothing is known of it."""
    executor = configuration.get(_EXECUTOR)
    if executor.rpartition(".")[2] == "DefaultContainerExecutor":
        return (
            "containers run on the nodes as they are, without an image: "
            f"{_EXECUTOR} is {executor.rpartition('.')[2]} ({configuration.source(_EXECUTOR)})"
        )
    allowed = configuration.get(_RUNTIMES)
    if allowed and "docker" not in (each.strip() for each in allowed.split(",")):
        return (
            f"nodes refuse containers with an image: {_RUNTIMES} is {allowed!r}, without docker "
            f"({configuration.source(_RUNTIMES)})"
        )
    return ""


def _not_yet(
    job: Job, roles: Mapping[str, RoleResources], queue: Queue | None, cluster: YarnCluster
) -> list[str]:
    """What waits for nodes that the cluster has still to add."""
    asked = {"master": (of_master(job.master), job.master.label)} | {
        f"roles.{name}": (of_role(each), each.label) for name, each in roles.items()
    }
    found = [
        text
        for where, (amount, label) in asked.items()
        for text in _on_a_node(where, amount, _in(label, queue), cluster)
    ]
    return found or _together(job, roles, queue, cluster)


def _partition(label: str | None, cluster: YarnCluster) -> list[YarnNode]:
    """The nodes of a partition, of all for None."""
    return [n for n in cluster.nodes if n.state not in GONE and label in (None, n.label)]


def _nodes(label: str | None, cluster: YarnCluster) -> list[YarnNode]:
    """The nodes that may hold a task's container that is asked for so."""
    shared = cluster.shared_labels if label == "" else ()
    return [*_partition(label, cluster), *(n for each in shared for n in _partition(each, cluster))]


def _in(label: str | None, queue: Queue | None) -> str | None:
    """The partition of requests with that label; None for any, where it depends on a queue that is not known."""
    return label or (queue.default_label if queue else None)


# -- the queue -----------------------------------------------------------------------------------


def _queue(asked: str | None, queue: Queue | None, cluster: YarnCluster) -> Iterator[str]:
    if not cluster.queues:
        return  # not told
    name = asked or DEFAULT_QUEUE
    usable = [q.name for q in cluster.queues if q.leaf and q.running and _may_submit(q, cluster)]
    if queue is None:
        near = closest(name, [q.name for q in cluster.queues])
        hint = f" (did you mean {near!r}?)" if near else ""
        unset = "" if asked else " (the job names none)"
        yield f"queue: there is no queue {name!r}{unset}{hint}; there is: {listed(usable) or 'none'}"
    elif not queue.leaf:
        inner = [q.name for q in cluster.queues if q.leaf and q.path.startswith(f"{queue.path}.")]
        which = f": {listed(inner)}" if queue.path and inner else f"; you may use {listed(usable)}"
        yield f"queue: {name!r} only holds other queues, jobs go to one of those{which}"
    elif not queue.running:
        yield (
            f"queue: {name!r} takes no jobs, it is {queue.state.lower()}; "
            f"{_instead(usable)}or ask the cluster's administrators"
        )
    elif not _may_submit(queue, cluster):
        yield (
            f"queue: {cluster.user} may not submit to {name!r} ({queue.acl_of_submitters}); "
            f"{_instead(usable)}or ask the cluster's administrators"
        )


def _may_submit(queue: Queue, cluster: YarnCluster) -> bool:
    return cluster.may_submit is None or any(n in cluster.may_submit for n in queue.known_as)


def _instead(usable: list[str]) -> str:
    return f"use {listed(usable)}, " if usable else ""


# -- labels --------------------------------------------------------------------------------------


def _label(
    where: str, label: str | None, queue: Queue | None, cluster: YarnCluster
) -> Iterator[str]:
    if not label:
        return
    known = cluster.labels
    if known is None:
        return
    key = f"{where}.label"
    if label not in known:
        near = closest(label, known)
        hint = f" (did you mean {near!r}?)" if near else ""
        there = f"there is: {listed(known)}" if known else "the cluster has no labels"
        yield f"{key}: there is no node label {label!r}{hint}; {there}"
    elif queue is not None and not queue.may_use(label):
        others = [q.name for q in cluster.queues if q.leaf and q.may_use(label)]
        which = f"; {listed(others)} may" if others else ""
        own = f" (it may use {listed(queue.labels)})" if queue.labels else ""
        yield f"{key}: jobs of the queue {queue.name!r} may not use nodes labelled {label!r}{own}{which}"


# -- one container -------------------------------------------------------------------------------


def _container(where: str, amount: Amount, cluster: YarnCluster) -> Iterator[str]:
    """What YARN itself refuses."""
    unknown = [*_unknown_types(where, amount, cluster)]
    yield from unknown
    too_much = amount.beyond(cluster.largest) if not unknown else []
    for name in too_much:
        largest = cluster.largest.of(name)
        setting = _LIMITS.get(name, f"yarn.resource-types.{name}.maximum-allocation")
        yield (
            f"{_key(where, name)}: {quantity(name, amount.of(name))} is more than the cluster gives "
            f"one container, {quantity(name, largest)} ({setting}); {_at_most(name, largest)}"
        )


def _on_a_node(
    where: str, amount: Amount, label: str | None, cluster: YarnCluster
) -> Iterator[str]:
    """``label`` is None where it is wrong itself, or not known: then all nodes count."""
    nodes = _partition(label, cluster) if where == "master" else _nodes(label, cluster)
    if not nodes:
        return
    on_nodes = f"node labelled {label!r}" if label else "node"
    needed = cluster.rounded(amount)
    if any(not needed.beyond(node.capability) for node in nodes):
        return
    for name in needed.beyond(_greatest(nodes)):
        largest = max(node.capability.of(name) for node in nodes)
        yield (
            f"{_key(where, name)}: {quantity(name, amount.of(name))} is more than any {on_nodes} "
            f"has, {quantity(name, largest)}; {_at_most(name, largest)}"
        )
        break
    else:
        best = min(nodes, key=lambda node: (len(needed.beyond(node.capability)), node.host))
        yield (
            f"{where}: no one {on_nodes} has {amount} together; {best.host} has {best.capability}"
        )


def _unknown_types(where: str, amount: Amount, cluster: YarnCluster) -> Iterator[str]:
    if cluster.resource_types is None:
        return
    for name in amount.more:
        if name in cluster.resource_types:
            continue
        if name == GPU:
            yield (
                f"{where}.gpus: this cluster schedules no GPUs (it has no resource type {GPU}); "
                "leave gpus out, or ask for another resource under [roles.….resources]"
            )
            continue
        near = closest(name, cluster.resource_types)
        hint = f" (did you mean {near!r}?)" if near else ""
        there = listed(cluster.resource_types) or "none besides memory and cores"
        yield f"{where}.resources: the cluster has no resource {name!r}{hint}; there is: {there}"


def _key(where: str, name: str) -> str:
    return f"{where}.{_KEYS.get(name, f'resources.{name}')}"


def _at_most(name: str, largest: int) -> str:
    if not largest:
        return "ask for none, or for other nodes by their label"
    value = f'"{largest}m"' if name == "memory" else str(largest)
    return f"at most: {_KEYS.get(name, name)} = {value}"


def _greatest(nodes: Iterable[YarnNode]) -> Amount:
    return most(node.capability for node in nodes)


# -- the whole gang ------------------------------------------------------------------------------


def _together(
    job: Job, roles: Mapping[str, RoleResources], queue: Queue | None, cluster: YarnCluster
) -> list[str]:
    return [
        *_spread(job, roles, queue, cluster),
        *_beside(roles, queue, cluster),
        *_gang(job, roles, queue, cluster),
    ]


def _spread(
    job: Job, roles: Mapping[str, RoleResources], queue: Queue | None, cluster: YarnCluster
) -> Iterator[str]:
    """A node for each task: there must be so many."""
    for name, resources in roles.items():
        least = instance_range(job.roles[name].instances)[0]
        if not resources.placement.spread or job.mode is not Mode.GANG:
            continue
        label = _in(resources.label, queue)
        needed = cluster.rounded(of_role(resources))
        nodes = _nodes(label, cluster)
        fitting = [n for n in nodes if not needed.beyond(n.capability)]
        if nodes and least > len(fitting):
            yield (
                f"roles.{name}.placement.spread: {least} tasks want a node each, but only "
                f"{len(fitting)} of the nodes{_labelled(label)} can hold one; at most: instances = "
                f"{len(fitting)}, or spread = false"
            )


def _beside(
    roles: Mapping[str, RoleResources], queue: Queue | None, cluster: YarnCluster
) -> Iterator[str]:
    """One node must be able to hold both a role's container and one of a role it is to be together with."""
    for name, resources in roles.items():
        others = [each for each in resources.placement.together if each in roles]
        own = cluster.rounded(of_role(resources))
        nodes = _nodes(_in(resources.label, queue), cluster)
        if not others or not nodes:
            continue
        pairs = [
            (
                _nodes(_in(roles[each].label, queue), cluster),
                own + cluster.rounded(of_role(roles[each])),
            )
            for each in others
        ]
        hosts = {node.host for node in nodes}
        if not any(
            node.host in hosts and not both.beyond(node.capability)
            for theirs, both in pairs
            for node in theirs
        ):
            yield (
                f"roles.{name}.placement.together: no one node can hold a container of {name} and one of "
                f"{listed(others)} ({pairs[0][1]}); make them smaller, give both the same label, or use near, "
                "which is a preference"
            )


def _gang(
    job: Job, roles: Mapping[str, RoleResources], queue: Queue | None, cluster: YarnCluster
) -> Iterator[str]:
    """All tasks that must be there together, and the master, within what the queue may ever have."""
    needed: dict[str | None, Amount] = {}
    master = _in(job.master.label, queue)
    needed[master] = cluster.rounded(of_master(job.master))
    for name, resources in roles.items():
        role = job.roles[name]
        if job.mode is not Mode.GANG or role.tracking is Tracking.SIDECAR:
            continue
        label = _in(resources.label, queue)
        each = cluster.rounded(of_role(resources))
        needed[label] = needed.get(label, Amount()) + each * instance_range(role.instances)[0]
    for label, amount in needed.items():
        limit, whose = _limit(label, queue, cluster)
        if limit is None:
            continue
        for name in amount.beyond(limit):
            have, allowed = amount.of(name), limit.of(name)
            yield (
                f"all tasks that must run together need {_short(name, have)} with the master, but "
                f"{whose} {_short(name, allowed)}{_labelled(label)}; "
                f"{_smaller(job, roles, label, queue, name, cluster)}"
            )
            break


def _limit(
    label: str | None, queue: Queue | None, cluster: YarnCluster
) -> tuple[Amount | None, str]:
    """The most a job in the queue can get of a partition, and in whose words."""
    nodes = _nodes(label, cluster)
    if not nodes:
        return None, ""
    everything = total(node.capability for node in nodes)
    share = queue.shares.get(label or "") if queue is not None else None
    if queue is None or share is None:
        return everything, "the cluster has"
    # No queue's share limits what it gets of the idle nodes of others.
    divided = total(node.capability for node in _partition(label, cluster))
    idle = total(node.capability for node in nodes if label is not None and node.label != label)
    part = share.maximum_part
    own = share.maximum or Amount(
        memory_mb=int(divided.memory_mb * part), cores=int(divided.cores * part)
    )
    above = [each.shares.get(label or "") for each in cluster.above(queue)]
    all_above = least([own, *(each.maximum for each in above if each and each.maximum)])
    whose = f"the queue {queue.name!r} may have at most"
    if own.beyond(all_above):
        own, whose = all_above, f"the queue {queue.name!r} and those it is in may have at most"
    own += idle
    if share.maximum is None or share.partial:
        # Other resources are not divided by percentages everywhere: only the whole is certain.
        own = msgspec.structs.replace(own, more=everything.more)
    if everything.beyond(own):
        return own, whose
    return everything, "the cluster has"


def _smaller(
    job: Job,
    roles: Mapping[str, RoleResources],
    label: str | None,
    queue: Queue | None,
    name: str,
    cluster: YarnCluster,
) -> str:
    """Which role to make smaller, and to how many tasks."""
    limit, _ = _limit(label, queue, cluster)
    assert limit is not None
    here = {
        role: cluster.rounded(of_role(resources)).of(name)
        for role, resources in roles.items()
        if _in(resources.label, queue) == label and job.roles[role].tracking is not Tracking.SIDECAR
    }
    counts = {role: instance_range(job.roles[role].instances)[0] for role in here}
    greedy = max(here, key=lambda role: here[role] * counts[role], default=None)
    if greedy is None or not here[greedy]:
        return "ask for less, or use another queue"
    rest = sum(here[role] * counts[role] for role in here if role != greedy)
    if _in(job.master.label, queue) == label:
        rest += cluster.rounded(of_master(job.master)).of(name)
    fits = (limit.of(name) - rest) // here[greedy]
    if fits < 1:
        return "ask for less, or use another queue"
    return f"at most: roles.{greedy}.instances = {fits} as it is, or less for each"


def _short(name: str, amount: int) -> str:
    return f"{size(amount)} of memory" if name == "memory" else quantity(name, amount)


def _labelled(label: str | None) -> str:
    return f" labelled {label!r}" if label else ""
