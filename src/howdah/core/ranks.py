"""Who is which rank: the order all ranks of a generation agree on.

Ranks are unique over all ranked roles: the chief's role first, then roles in the job file's order,
tasks by index, and each task's processes side by side (a chief and a worker 0 never share a rank).
Unranked roles (ps, evaluator, sidecars) have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from howdah.core.messages import Member, Task, Topology
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import TaskData


def topology(plan: Plan, generation: int, tasks: Sequence[TaskData]) -> Topology:
    """The topology of these tasks, each where it is."""
    return _ranked(plan, generation, [_member(data) for data in tasks])


def planned(
    plan: Plan, generation: int, gang: Sequence[RolePlan], servers: Iterable[TaskData]
) -> Topology:
    """The topology of all tasks of the gang's roles, wherever they will be, with the servers."""
    members = [
        Member(task=Task(role.name, index), attempt=0, host="", ports=(), rank=None)
        for role in gang
        for index in range(role.maximum)
    ]
    return _ranked(plan, generation, [*members, *(_member(data) for data in servers)])


def with_own(
    plan: Plan,
    topology: Topology,
    gang: Sequence[RolePlan],
    data: TaskData,
    after: Iterable[TaskData],
) -> Topology:
    """A `planned` topology for one task that starts: its address is known now, as are those of the
    tasks ``after``, which it was started after."""
    return msgspec.structs.replace(
        topology,
        own=_placed(plan, gang, data),
        after=tuple(_placed(plan, gang, server) for server in after),
    )


def _placed(plan: Plan, gang: Sequence[RolePlan], data: TaskData) -> Member:
    """Where the task is, with its rank among all that are planned."""
    own = plan.role(data.task.role)
    rank: int | None = None
    if own.ranked:
        before = [r for r in _in_order(plan, gang) if r.ranked]
        before = before[: before.index(own)]
        rank = sum(role.maximum * role.processes for role in before)
        rank += data.task.index * own.processes
    return msgspec.structs.replace(_member(data), rank=rank, processes=own.processes)


def _in_order(plan: Plan, roles: Sequence[RolePlan]) -> list[RolePlan]:
    names = {role.name for role in roles}
    return sorted((r for r in plan.roles if r.name in names), key=lambda role: not role.chief)


def _ranked(plan: Plan, generation: int, members: Sequence[Member]) -> Topology:
    order = {role.name: number for number, role in enumerate(_in_order(plan, plan.roles))}
    roles = {role.name: role for role in plan.roles}
    ranked: list[Member] = []
    rank = 0
    for member in sorted(members, key=lambda m: (order[m.task.role], m.task.index)):
        role = roles[member.task.role]
        ranked.append(
            msgspec.structs.replace(
                member, rank=rank if role.ranked else None, processes=role.processes
            )
        )
        if role.ranked:
            rank += role.processes
    return Topology(generation=generation, world_size=rank, members=tuple(ranked))


def _member(data: TaskData) -> Member:
    return Member(
        task=data.task, attempt=data.attempt, host=data.host or "", ports=data.ports, rank=None
    )
