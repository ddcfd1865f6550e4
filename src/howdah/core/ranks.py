"""Who is which rank: the order all ranks of a generation agree on."""

from __future__ import annotations

from collections.abc import Sequence

from howdah.core.messages import Member, Topology
from howdah.core.plan import Plan
from howdah.core.state import TaskData


def topology(plan: Plan, generation: int, tasks: Sequence[TaskData]) -> Topology:
    """The topology of these tasks.

    Ranks are unique over all ranked roles: the chief's role first, then roles in the job file's
    order, tasks by index, and each task's processes side by side (a chief and a worker 0 never
    share a rank). Unranked roles (ps, evaluator, sidecars) have none.
    """
    order = {role.name: number for number, role in enumerate(plan.roles)}
    roles = {role.name: role for role in plan.roles}

    def place(data: TaskData) -> tuple[bool, int, int]:
        role = roles[data.task.role]
        return (not role.chief, order[role.name], data.task.index)

    members: list[Member] = []
    rank = 0
    for data in sorted(tasks, key=place):
        role = roles[data.task.role]
        members.append(
            Member(
                task=data.task,
                attempt=data.attempt,
                host=data.host or "",
                ports=data.ports,
                rank=rank if role.ranked else None,
                processes=role.processes,
            )
        )
        if role.ranked:
            rank += role.processes
    return Topology(generation=generation, world_size=rank, members=tuple(members))
