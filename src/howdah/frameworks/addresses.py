"""What frameworks read from a topology: addresses, the world, who stands first."""

from __future__ import annotations

import json

from howdah.core.messages import Member, Topology
from howdah.spec.model import Job, Tracking


class MissingPeer(LookupError):
    """A topology lacks a task that an environment must name; the text says which."""


def address(member: Member, port: int = 0) -> str:
    """``host:port`` with the member's reserved port of that number; IPv6 hosts in brackets."""
    host = f"[{member.host}]" if ":" in member.host else member.host
    return f"{host}:{member.ports[port]}"


def reachable(topology: Topology, role: str) -> tuple[Member, ...]:
    """A role's tasks, by index, that have their ports.

    A sidecar starts when it is ready, maybe before the others are prepared and have any.
    """
    return tuple(member for member in topology.of_role(role) if member.ports)


def addresses(topology: Topology, role: str) -> list[str]:
    """First addresses of a role's tasks, by index."""
    return [address(member) for member in reachable(topology, role)]


def ranked(topology: Topology) -> list[Member]:
    """Members that have ranks, in rank order: one entry a task, whatever its processes."""
    members = [member for member in topology.members if member.rank is not None]
    return sorted(members, key=lambda member: member.rank or 0)


def first(topology: Topology) -> Member:
    """The task that has rank 0.

    Raises:
        MissingPeer: no task of the topology is ranked.
    """
    members = ranked(topology)
    if not members:
        raise MissingPeer("the topology has no ranked task, so nobody is rank 0")
    return members[0]


def only(topology: Topology, role: str) -> Member:
    """The first task of a role others connect to (a scheduler, a tracker).

    Raises:
        MissingPeer: the topology has none.
    """
    members = reachable(topology, role)
    if not members:
        raise MissingPeer(f"the topology has no {role}, which the others connect to")
    return members[0]


def node_rank(topology: Topology, member: Member) -> int:
    """The task's place among the ranked tasks, what launchers call the node or group rank."""
    return [m.task for m in ranked(topology)].index(member.task)


def cluster(job: Job, topology: Topology) -> dict[str, list[str]]:
    """First addresses of all roles but sidecars."""
    found: dict[str, list[str]] = {}
    for member in sorted(topology.members, key=lambda m: (m.task.role, m.task.index)):
        role = job.roles.get(member.task.role)
        if role is not None and role.tracking is Tracking.SIDECAR:
            continue
        if member.ports:
            found.setdefault(member.task.role, []).append(address(member))
    return found


def compact(value: object) -> str:
    """JSON without spaces, keys in the order given."""
    return json.dumps(value, separators=(",", ":"))


_text: tuple[Job, Topology, str] | None = None


def cluster_text(job: Job, topology: Topology) -> str:
    """`cluster` as compact JSON. All members are given the same: it is made for the first of them."""
    global _text
    if _text is None or _text[0] is not job or _text[1] is not topology:
        _text = (job, topology, compact(cluster(job, topology)))
    return _text[2]


def unless_set(job: Job, member: Member, variables: dict[str, str]) -> dict[str, str]:
    """Those variables that neither the job nor the role sets: hints a user may overrule."""
    role = job.roles.get(member.task.role)
    own = {**job.env, **(role.env if role is not None else {})}
    return {name: value for name, value in variables.items() if name not in own}


def interface_hints(job: Job, member: Member, *names: str) -> dict[str, str]:
    """Those variables with ``[network] interface``, where one is given and they are not set."""
    interface = job.network.interface
    if interface is None:
        return {}
    return unless_set(job, member, dict.fromkeys(names, interface))
