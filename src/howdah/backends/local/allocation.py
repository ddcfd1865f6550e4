"""Which requests are granted now, and which never can be. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from howdah.backends.base import RoleResources
from howdah.core.messages import ContainerRequest
from howdah.core.plan import Plan, RolePlan
from howdah.spec.model import Mode

AGENT_MB = 6
"""The least of the machine's memory that a task's agent takes, whatever its program does."""


class MachineCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine has."""

    memory_mb: int
    cores: int
    gpus: int = 0
    """Those the submitter's ``CUDA_VISIBLE_DEVICES`` leaves."""
    all_gpus: int = 0
    """Those that can be used."""
    unusable_gpus: str = ""
    """Which others there are, and why they cannot be used."""
    gpu_problem: str = ""
    """Why its GPUs are not known."""


def minimums(plan: Plan) -> dict[str, int]:
    """How many containers of each role must be there together; none where tasks start one by one."""
    if plan.mode is Mode.EACH:
        return {}
    return {role.name: role.minimum for role in plan.roles}


def choose(
    pending: Sequence[ContainerRequest],
    gpus: Mapping[str, int],
    held: Mapping[str, int],
    minimum: Mapping[str, int],
    free: int,
) -> list[ContainerRequest]:
    """Those of the pending requests that are granted with ``free`` devices, in their order.

    What a role lacks of its minimum is granted for all roles together or not at all: a gang that
    holds a part of what it needs would only keep it from others. The rest is granted as it fits.
    ``gpus`` is devices per container by role; ``held`` is containers held by role.
    """
    lacking = {name: least - held.get(name, 0) for name, least in minimum.items()}
    needed: list[ContainerRequest] = []
    extra: list[ContainerRequest] = []
    for request in pending:
        if lacking.get(request.role, 0) > 0:
            lacking[request.role] -= 1
            needed.append(request)
        else:
            extra.append(request)
    left = free - sum(gpus.get(request.role, 0) for request in needed)
    if left < 0:
        return []
    granted = {request.request_id for request in needed}
    for request in extra:
        if gpus.get(request.role, 0) <= left:
            left -= gpus.get(request.role, 0)
            granted.add(request.request_id)
    return [request for request in pending if request.request_id in granted]


def gpus_short(asked: int, free: int, own: int, machine: int) -> str:
    """Why containers with GPUs do not come, in words; empty where there are as many as are asked for.

    Args:
        asked: devices that the awaited containers need.
        free: devices nobody holds.
        own: devices that this job's containers hold.
        machine: devices this job may use at all.
    """
    if asked <= free:
        return ""
    others = machine - free - own
    holders = [f"this job holds {own}"] if own else []
    if others > 0:
        held = f"{others}" if own else "the others"
        holders.append(f"other jobs on this machine hold {held}")
    return f"GPUs asked for: {asked}, free: {free} of {machine}; {', '.join(holders)}"


def impossible(
    roles: Mapping[str, RoleResources], plan: Plan | None, machine: MachineCapacity
) -> list[str]:
    """Why the job can never run on this machine, every reason; empty if it can.

    Cores are no reason: more programs than cores take turns. In mode each, tasks take turns with
    GPUs too.
    """
    problems: list[str] = []
    for name, role in roles.items():
        where = f"roles.{name}"
        if role.memory_mb is not None and role.memory_mb > machine.memory_mb:
            problems.append(
                f"{where}.memory: a container of {role.memory_mb} MiB cannot fit into this "
                f"machine's {machine.memory_mb} MiB; ask for less, or run on a cluster"
            )
        if role.gpus > machine.gpus:
            problems.append(f"{where}.gpus: {_no_gpus(role.gpus, machine)}")
    if problems or plan is None:
        return problems
    gpus = _most_together(plan, lambda role: roles[role.name].gpus if role.name in roles else 0)
    if plan.mode is not Mode.EACH and gpus > machine.gpus:
        problems.append(
            f"the roles need {gpus} GPUs at the same time; {_have(machine)}. Use fewer instances or "
            "GPUs, or run on a cluster"
        )
    tasks = _most_together(plan, lambda role: 1)
    if tasks * AGENT_MB > machine.memory_mb:
        largest = max(plan.roles, key=lambda role: role.minimum).name
        problems.append(
            f"roles.{largest}.instances: the agents of {tasks} tasks alone need {tasks * AGENT_MB} "
            f"MiB, and this machine has {machine.memory_mb}; run at most "
            f"{machine.memory_mb // AGENT_MB} tasks at the same time, or run on a cluster"
        )
    return problems


def overcommitted(
    roles: Mapping[str, RoleResources], plan: Plan, machine: MachineCapacity
) -> list[str]:
    """What tasks that run at the same time ask for beyond this machine, in words. They share it.

    In mode each, tasks that take turns with GPUs are left out.
    """
    turns = {name for name, role in roles.items() if role.gpus and plan.mode is Mode.EACH}
    plan = msgspec.structs.replace(plan, roles=tuple(r for r in plan.roles if r.name not in turns))
    notes: list[str] = []
    cores = _most_together(plan, lambda role: roles[role.name].cores or 0)
    if cores > machine.cores:
        notes.append(
            f"cores: {cores} are asked for at the same time, and this machine has {machine.cores}: the "
            "programs take turns with them"
        )
    memory_mb = _most_together(plan, lambda role: roles[role.name].memory_mb or 0)
    if memory_mb > machine.memory_mb:
        notes.append(
            f"memory: {memory_mb} MiB are asked for at the same time, and this machine has "
            f"{machine.memory_mb}: programs that use it all are ended by the system"
        )
    return notes


def _most_together(plan: Plan, of_task: Callable[[RolePlan], int]) -> int:
    """What the tasks that must run at the same time need, in the stage that needs most."""
    stages: dict[int, int] = {}
    for role in plan.roles:
        stages[role.stage] = stages.get(role.stage, 0) + role.minimum * of_task(role)
    return max(stages.values(), default=0)


def _no_gpus(wanted: int, machine: MachineCapacity) -> str:
    if machine.gpu_problem:
        return f"{wanted} per container are asked for, but: {machine.gpu_problem}"
    return f"{wanted} per container are asked for; {_have(machine)}"


def _have(machine: MachineCapacity) -> str:
    if machine.all_gpus == 0:
        have = "this machine has no GPU"
    elif machine.gpus < machine.all_gpus:
        have = f"CUDA_VISIBLE_DEVICES leaves {machine.gpus} of this machine's {machine.all_gpus}"
    else:
        have = f"this machine has {machine.gpus}"
    return f"{have} ({machine.unusable_gpus})" if machine.unusable_gpus else have
