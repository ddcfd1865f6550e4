"""What frameworks read from a topology: addresses, the world, who stands first.

All tasks of a generation are started with the same members. What is asked of them for each start
is worked out once (`_Roster`), so that a start costs the same in a gang of two and of ten thousand.
"""

from __future__ import annotations

import json

from howdah.core.messages import Member, Task, Topology
from howdah.core.plan import Plan
from howdah.spec.model import Job, Tracking


class MissingPeer(LookupError):
    """A topology lacks a task that an environment must name; the text says which."""


class _Roster:
    """The members of one topology, by task, by role and by rank."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        self.members = members
        self.tasks = {member.task: member for member in members}
        self.roles: dict[str, list[Member]] = {}
        for member in members:
            self.roles.setdefault(member.task.role, []).append(member)
        ranks = [(member.rank, member) for member in members if member.rank is not None]
        self.ranked = [member for _, member in sorted(ranks, key=lambda each: each[0])]
        self.nodes = {member.task: node for node, member in enumerate(self.ranked)}
        self.addresses: dict[str, tuple[str, ...]] = {}
        """First addresses by role, once they have been asked for."""


_latest = _Roster(())


def _roster(topology: Topology) -> _Roster:
    """The roster of these members: the one made last, as a rule."""
    global _latest
    if _latest.members is not topology.members:
        _latest = _Roster(topology.members)
    return _latest


def member_of(topology: Topology, task: Task) -> Member:
    """The task's place in the topology.

    Raises:
        KeyError: the task is not part of the topology.
    """
    if topology.own is not None and topology.own.task == task:
        return topology.own
    found = _roster(topology).tasks.get(task)
    if found is None:
        raise KeyError(str(task))
    return found


def of_role(topology: Topology, role: str) -> list[Member]:
    """A role's tasks, by index."""
    return _roster(topology).roles.get(role, [])


def address(member: Member, port: int = 0) -> str:
    """``host:port`` with the member's reserved port of that number; IPv6 hosts in brackets."""
    host = f"[{member.host}]" if ":" in member.host else member.host
    return f"{host}:{member.ports[port]}"


def reachable(topology: Topology, role: str) -> list[Member]:
    """A role's tasks, by index, that have their ports.

    A sidecar starts when it is ready, maybe before the others are prepared and have any; in mode
    each every task does, and knows those that it was started after.
    """
    started = [member for member in topology.after if member.task.role == role]
    return started or [member for member in of_role(topology, role) if member.ports]


def addresses(topology: Topology, role: str) -> tuple[str, ...]:
    """First addresses of a role's tasks, by index."""
    if topology.after:
        return tuple(address(member) for member in reachable(topology, role))
    known = _roster(topology).addresses
    if role not in known:
        known[role] = tuple(address(member) for member in reachable(topology, role))
    return known[role]


def ranked(topology: Topology) -> list[Member]:
    """Members that have ranks, in rank order: one entry a task, whatever its processes."""
    return _roster(topology).ranked


def first(topology: Topology) -> Member:
    """The task that has rank 0.

    Raises:
        MissingPeer: no task of the topology is ranked.
    """
    members = ranked(topology)
    if not members:
        raise MissingPeer("the topology has no ranked task, so no task has rank 0")
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
    return _roster(topology).nodes[member.task]


def cluster(job: Job, topology: Topology) -> dict[str, list[str]]:
    """First addresses of all roles but sidecars."""
    found: dict[str, list[str]] = {}
    for member in sorted(topology.members, key=lambda m: (m.task.role, m.task.index)):
        if member.ports and not _is_sidecar(job, member.task.role):
            found.setdefault(member.task.role, []).append(address(member))
    return found


def _is_sidecar(job: Job, name: str) -> bool:
    role = job.roles.get(name)
    return role is not None and role.tracking is Tracking.SIDECAR


def compact(value: object) -> str:
    """JSON without spaces, keys in the order given."""
    return json.dumps(value, separators=(",", ":"))


_text: tuple[Job, tuple[Member, ...], str] | None = None


def cluster_text(job: Job, topology: Topology) -> str:
    """`cluster` as compact JSON. All members are given the same: it is made for the first of them."""
    global _text
    if _text is None or _text[0] is not job or _text[1] is not topology.members:
        _text = (job, topology.members, compact(cluster(job, topology)))
    return _text[2]


def planned_text(job: Job, plan: Plan, topology: Topology, member: Member) -> str:
    """The cluster as one task of mode each sees it: an entry for every planned task, in its place.

    Its own address is there, and those of the roles it was started after. No other is certain when
    it starts, and what a program is told must not depend on which task was faster: those are empty.
    """
    own = plan.role(member.task.role)
    texts: list[str] = []
    for role in sorted(plan.roles, key=lambda role: role.name):
        if _is_sidecar(job, role.name) or role.stage > own.stage:
            continue
        known: list[Member] = []
        if role.stage < own.stage or role.name in own.after:
            known = reachable(topology, role.name)
        if role is own and member.ports:
            known = [member]
        if known or role.stage == own.stage:
            texts.append(f"{compact(role.name)}:[{_places(role.maximum, known)}]")
    return "{" + ",".join(texts) + "}"


def _places(count: int, known: list[Member]) -> str:
    """So many strings for a JSON list: the addresses of the known tasks at their index, else empty."""
    parts: list[str] = []
    next_index = 0
    for member in known:
        parts.append('"",' * (member.task.index - next_index))
        parts.append(f"{compact(address(member))},")
        next_index = member.task.index + 1
    parts.append('"",' * (count - next_index))
    return "".join(parts).removesuffix(",")


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
