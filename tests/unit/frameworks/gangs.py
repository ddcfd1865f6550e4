"""Jobs and topologies for tests, and the one thing they ask of a framework."""

from __future__ import annotations

from typing import Any

from howdah.core.messages import Member, Task, Topology
from howdah.core.plan import RolePlan
from howdah.frameworks import planning, registry
from howdah.frameworks.base import Problem
from howdah.spec.model import Job, Role


def job(framework: str, roles: dict[str, Any] | None = None, **rest: Any) -> Job:
    """An expanded job. A role given as a number is that many tasks of it."""
    return planning.expand(written(framework, roles, **rest))


def written(framework: str, roles: dict[str, Any] | None = None, **rest: Any) -> Job:
    """The same as a user writes it."""
    rest.setdefault("command", "python train.py")
    made = {
        name: role if isinstance(role, Role) else Role(instances=role)
        for name, role in (roles or {}).items()
    }
    return Job(framework=framework, roles=made, **rest)


def roles(made: Job) -> dict[str, RolePlan]:
    """The plan's roles by name."""
    return {role.name: role for role in planning.plan(made, "job-1").roles}


def problems(framework: str, roles: dict[str, Any] | None = None, **rest: Any) -> list[Problem]:
    return planning.problems(written(framework, roles, **rest))


def topology(*members: tuple[str, int | None] | tuple[str, int | None, int]) -> Topology:
    """A topology of tasks given as (``role:index``, rank[, processes]).

    The n-th task is on host ``h<n>`` and has ports 20000 + 10n, 20001 + 10n, …
    """
    made: list[Member] = []
    for number, (name, rank, *processes) in enumerate(members):
        role, _, index = name.partition(":")
        made.append(
            Member(
                task=Task(role, int(index)),
                attempt=1,
                host=f"h{number}",
                ports=tuple(range(20000 + 10 * number, 20009 + 10 * number)),
                rank=rank,
                processes=processes[0] if processes else 1,
            )
        )
    size = sum(member.processes for member in made if member.rank is not None)
    return Topology(generation=1, world_size=size, members=tuple(made))


def environment(made: Job, place: Topology, name: str, process: int = 0) -> dict[str, str]:
    """What the job's framework tells that process of that task."""
    role, _, index = name.partition(":")
    member = place.member(Task(role, int(index)))
    return registry.get(made.framework).environment(made, place, member, process)


RUNNABLE: list[tuple[str, dict[str, Any]]] = [
    ("tensorflow", {"chief": 1, "worker": 2}),
    ("tensorflow", {"worker": "1..4", "evaluator": 1}),
    ("tensorflow", {"chief": 1, "worker": 2, "ps": 2, "evaluator": 1}),
    ("pytorch", {"chief": 1, "worker": 3, "loader": 1}),
    ("jax", {"worker": Role(instances=2, processes=2)}),
    ("xgboost", {"worker": 2}),
    ("lightgbm", {"worker": 2}),
    ("dask", {"client": 1, "worker": "1..8"}),
    ("ray", {"driver": 1}),
    ("ray", {"driver": 1, "worker": 2}),
    ("horovod", {"worker": Role(instances=2, gpus=2, processes="gpus")}),
    ("mpi", {"anything": 3}),
    ("mpi", {"launcher": 1, "worker": 2}),
    ("mxnet", {"server": 1, "worker": 2}),
    ("command", {"a": 1, "b": Role(after=("a",))}),
    ("command", {}),
]
"""Frameworks with roles they can run."""
