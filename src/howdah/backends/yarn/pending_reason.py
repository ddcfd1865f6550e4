"""Why a job waits, in words. Pure.

Before its master runs, the ResourceManager's diagnostics name the limit that was hit
(``AMState``, ``CSAMContainerLaunchDiagnosticsConstants`` of the capacity scheduler, ``FSAppAttempt`` and
``MaxRunningAppsEnforcer`` of the Fair Scheduler); queue and
nodes add figures. While the gang's containers are pending, the master knows only what it has asked
for, and its headroom: `for_containers` says it from the same figures.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set

import msgspec

from howdah.backends.yarn.amounts import Amount, quantity
from howdah.backends.yarn.client.cluster import Queue, YarnCluster, YarnNode, listed

FIGURES_S = 20.0
"""So long figures of queue and nodes are good enough: each who waits asks for them."""

_PARTITION = re.compile(r"AM Partition = ([^;]*);")
_RESOURCE = re.compile(r"<memory:(\d+), vCores:(\d+)(?:, ([^>]*))?>")
_PERCENT = r"([\d.]+) ?%"
_USED = re.compile(rf"Queue's Absolute used capacity = {_PERCENT}")
_MAXIMUM = re.compile(rf"Queue's Absolute max capacity = {_PERCENT}")


class Application(msgspec.Struct, frozen=True, kw_only=True):
    """What the ResourceManager reports of an application that waits."""

    state: str
    """``YarnApplicationState``: NEW, NEW_SAVING, SUBMITTED, ACCEPTED, RUNNING, …"""
    queue: str = ""
    user: str = ""
    diagnostics: str = ""
    label: str = ""
    """Of its master's container."""
    master: Amount = Amount()


def for_master(
    application: Application, queue: Queue | None = None, cluster: YarnCluster | None = None
) -> str:
    """Why the master does not run yet; empty if it is not known, or it does not wait."""
    if application.state in ("NEW", "NEW_SAVING", "SUBMITTED"):
        return "the ResourceManager is taking the job in"
    if application.state != "ACCEPTED":
        return ""
    text = application.diagnostics
    name = queue.name if queue else application.queue.rpartition(".")[2]
    label = application.label or _partition(text)
    if is_moment(application):
        return "the master's container starts"
    if "User's AM resource limit exceeded" in text:
        return (
            f"{application.user or 'the user'} has as many masters in the queue {name!r} as one "
            f"user may{_am_figures(text, 'User')}"
        )
    if "exceeds maximum AM resource allowed" in text:
        return (
            f"the queue {name!r} starts no more jobs now: too many masters run in it already"
            f"{_before_it(queue)}"
        )
    if "queue or its parents maximum resource allowed" in text:
        full = _queue_full(name, "", queue, "", application.master) or (
            f"the queue {name!r} is full, or one that it is in"
        )
        return full + _before_it(queue)
    fair = _is_fair(text, queue)
    if not fair and ("AM resource limit exceeded" in text or "not yet activated" in text):
        why = (
            "too many masters run in it already"
            if "limit exceeded" in text
            else "it waits its turn"
        )
        more = _before_it(queue)
        return (
            f"the queue {name!r} starts no more jobs now: {why}{_am_figures(text, 'Queue')}{more}"
        )
    if "cluster resource is empty" in text:
        return "the cluster has no node that takes containers"
    if cluster is not None:
        no_nodes = _no_node(application.master, label, cluster)
        if no_nodes:
            return no_nodes
    if (full := _queue_full(name, text, queue, label)) is not None:
        return full + _before_it(queue)
    if "waiting for resources" in text or (fair and "not yet activated" in text) or not text:
        return f"its master waits for {application.master} in the queue {name!r}{_before_it(queue)}"
    return _first_sentence(text)


def is_moment(application: Application) -> bool:
    """What it waits for takes no time: nothing else is worth being asked."""
    text = application.diagnostics
    return application.state != "ACCEPTED" or (
        "AM container is launched" in text or "has assigned a container for AM" in text
    )


def for_containers(
    missing: Mapping[str, int],
    each: Mapping[str, Amount],
    labels: Mapping[str, str],
    *,
    queue: Queue | None = None,
    cluster: YarnCluster | None = None,
    headroom: Amount | None = None,
    only_on: Mapping[str, tuple[Sequence[str], Set[str]]] | None = None,
) -> str:
    """Why containers of a running master do not come.

    Args:
        missing: how many are missing, by role.
        each: what one of a role needs.
        labels: the partition of a role, where it is not the default one.
        queue: the queue as it is, if that is known.
        cluster: the nodes as they are, if that is known.
        headroom: what the application may have more, as ``allocate`` told.
        only_on: of roles that may be on some nodes only: the roles that must be there, and the nodes where
            these are.
    """
    parts: list[str] = []
    for role, count in missing.items():
        if count <= 0:
            continue
        together, there = (only_on or {}).get(role, ((), frozenset()))
        label = labels.get(role, "")
        why = _beside(each[role], together, there, cluster) if together else ""
        if why or (why := _role(each[role], label, queue, cluster, headroom)):
            parts.append(f"{role}: {why}")
    words = {part.partition(": ")[2] for part in parts}
    if len(words) == 1 and len(parts) > 1:
        roles = listed(part.partition(": ")[0] for part in parts)
        return f"{roles}: {words.pop()}"
    return "; ".join(parts)


def _role(
    amount: Amount,
    label: str,
    queue: Queue | None,
    cluster: YarnCluster | None,
    headroom: Amount | None,
) -> str:
    if cluster is not None and (why := _no_node(amount, label, cluster)):
        return why
    if queue is not None and (full := _queue_full(queue.name, "", queue, label, amount)):
        return full
    if headroom is not None and (short := amount.beyond(headroom)):
        name = short[0]
        return (
            f"the queue or the user has no more {_noun(name)} to give: {_some(name, headroom)} left, "
            f"{quantity(name, amount.of(name))} needed for one"
        )
    return ""


def _beside(
    amount: Amount, roles: Sequence[str], there: Set[str], cluster: YarnCluster | None
) -> str:
    """Nothing to be had from the nodes that other roles are on."""
    must = f"it must be on a node of {listed(roles)}"
    if not there:
        return f"{must}, and there is none yet"
    if cluster is None:
        return f"{must}, and the ResourceManager does not tell what its nodes have free"
    nodes = [n for n in cluster.nodes if {n.host, n.host.rpartition(":")[0]} & there]
    if not nodes or any(not amount.beyond(node.free) for node in nodes):
        return ""
    return f"{must}, and none of them has {amount} free; {_nearest(amount, nodes)}"


def _no_node(amount: Amount, label: str, cluster: YarnCluster) -> str:
    """Nothing to be had from the nodes themselves: none is up, or none has room."""
    nodes = cluster.usable(label)
    which = f"node labelled {label!r}" if label else "node"
    if not nodes:
        down = [node for node in cluster.nodes if node.label == label]
        if down:
            states = listed(f"{node.host} is {node.state.lower()}" for node in down)
            return f"no {which} takes containers now: {states}"
        return f"there is no {which}" + (" now" if cluster.nodes else ": none has registered")
    if any(not amount.beyond(node.free) for node in nodes):
        return ""
    return f"no {which} has {amount} free; {_nearest(amount, nodes)}"


def _nearest(amount: Amount, nodes: Sequence[YarnNode]) -> str:
    best = min(nodes, key=lambda node: (len(amount.beyond(node.free)), -node.free.memory_mb))
    short = amount.beyond(best.free)
    free = " and ".join(_some(name, best.free) for name in short)
    return f"the nearest, {best.host}, has {free}"


def _queue_full(
    name: str, diagnostics: str, queue: Queue | None, label: str, amount: Amount | None = None
) -> str | None:
    """The queue has all it may have, as far as can be told."""
    if queue is not None and queue.used is not None and not label:
        share = queue.shares.get(label)
        limit = share.maximum if share is not None else None
        if limit is not None:
            for each in (queue.used + (amount or Amount(memory_mb=1))).beyond(limit):
                if share is not None and share.partial and each not in ("memory", "cores"):
                    continue
                return (
                    f"the queue {name!r} is full: {_some(each, queue.used)} of "
                    f"{quantity(each, limit.of(each))} in use"
                )
    used, most = _USED.search(diagnostics), _MAXIMUM.search(diagnostics)
    if used and most and float(used[1]) >= float(most[1]) - 1.0:
        return f"the queue {name!r} is full: {used[1]} % of the cluster used, {most[1]} % allowed"
    return None


def _is_fair(diagnostics: str, queue: Queue | None) -> bool:
    """Whether they are the Fair Scheduler's, to whom an application is "not yet activated" until its master has a
    node."""
    return "(Resource request: " in diagnostics or (queue is not None and queue.is_fair)


def _before_it(queue: Queue | None) -> str:
    if queue is None:
        return ""
    others = queue.pending_applications - 1
    if others < 1:
        return ""
    return f"; {others} other {'job waits' if others == 1 else 'jobs wait'} in it"


def _am_figures(text: str, whose: str) -> str:
    """``: 512 MiB of memory of 512 MiB used by masters``, if the diagnostics have it."""
    limit = _figure(text, "Queue Resource Limit for AM = " if whose == "Queue" else
                    "User AM Resource Limit of the queue = ")  # fmt: skip
    used = _figure(text, "Queue AM Resource Usage = ") if whose == "Queue" else None
    if limit is None:
        return ""
    if used is None:
        return f" (at most {limit})"
    return f" ({used} of {limit} used by masters)"


def _figure(text: str, before: str) -> Amount | None:
    _, found, rest = text.partition(before)
    match = _RESOURCE.match(rest) if found else None
    if match is None:
        return None
    return Amount(memory_mb=int(match[1]), cores=int(match[2]))


def _partition(text: str) -> str:
    match = _PARTITION.search(text)
    name = match[1].strip() if match else ""
    return "" if name == "<DEFAULT_PARTITION>" else name


def _first_sentence(text: str) -> str:
    """Of diagnostics nobody has foreseen: without their time stamp and their details."""
    text = re.sub(r"^\[[^\]]*\]\s*", "", text.strip())
    return text.partition(" Details :")[0].strip().rstrip(".")


def _some(name: str, amount: Amount) -> str:
    if not amount.of(name):
        return f"no {_noun(name)}"
    return quantity(name, amount.of(name))


def _noun(name: str) -> str:
    return {"yarn.io/gpu": "GPU", "cores": "core"}.get(name, name)
