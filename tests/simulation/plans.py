"""Jobs to simulate: each function makes a shape of job as frameworks and users have them."""

from __future__ import annotations

import random
from typing import Any

from howdah.core.plan import Completion, Join, Plan, RolePlan
from howdah.spec.model import Mode, Restart, Tracking


def role(name: str, minimum: int = 1, maximum: int | None = None, **fields: Any) -> RolePlan:
    """A role of so many tasks."""
    maximum = minimum if maximum is None else maximum
    return RolePlan(name=name, minimum=minimum, maximum=maximum, **fields)


def sidecar(name: str = "tensorboard", **fields: Any) -> RolePlan:
    """A page beside the training."""
    given = {"tracking": Tracking.SIDECAR, "restart": Restart.TASK, "join": Join.NOW}
    return role(name, ranked=False, watched=False, **{**given, **fields})


def server(name: str = "ps", tasks: int = 1, **fields: Any) -> RolePlan:
    """Serves the others and never ends by itself."""
    return role(name, tasks, tracking=Tracking.UNTRACKED, ranked=False, watched=False, **fields)


def plan(*roles: RolePlan, **fields: Any) -> Plan:
    return Plan(**{"job_id": "job", "roles": roles, "lease_s": 20.0, **fields})


def gang(draw: random.Random, size: int) -> Plan:
    """Synchronous training with a sidecar, half of the times with parameter servers."""
    worker: dict[str, Any] = {"chief": True, "hang_s": 5.0, "attempts": 4}
    roles = [sidecar()]
    if draw.random() < 0.5:
        roles.insert(0, server(tasks=2, restart=Restart.GANG))
        worker |= {
            "after": ("ps",),
            "attempts": draw.randint(1, 4),
            "processes": draw.choice([1, 1, 4]),
            "stop_on_failure": draw.random() < 0.1,
        }
    return random_plan(draw, [*roles, role("worker", size, **worker)])


def parameter_servers(draw: random.Random, size: int) -> Plan:
    """Workers and chief come back alone at the same address; the chief's success is the job's."""
    alone: dict[str, Any] = {"restart": Restart.TASK, "sticky_ports": True}
    return random_plan(
        draw,
        [
            role("chief", chief=True, after=("ps", "worker"), **alone),
            role("worker", size, watched=False, **alone),
            server(tasks=2, restart=draw.choice([Restart.GANG, Restart.TASK])),
        ],
        completion=Completion.CHIEF,
    )


def elastic(draw: random.Random, size: int) -> Plan:
    return random_plan(draw, [role("worker", draw.randint(1, size), size, chief=True), sidecar()])


def each(draw: random.Random, size: int) -> Plan:
    """Independent tasks, started one by one."""
    restart = draw.choice([Restart.TASK, Restart.TASK, Restart.GANG, Restart.NEVER])
    worker = role("worker", size, restart=restart, join=Join.NOW)
    return random_plan(draw, [worker], mode=Mode.EACH)


def stages(draw: random.Random, size: int) -> Plan:
    """A preparing stage, a server that lives on, then training; in either mode."""
    mode = draw.choice([Mode.GANG, Mode.GANG, Mode.EACH])
    worker = {"join": Join.NOW, "restart": Restart.TASK} if mode is Mode.EACH else {"chief": True}
    return random_plan(
        draw,
        [
            role("prepare", join=Join.NOW, ranked=False, restart=draw.choice(list(Restart)[:2])),
            server("database", restart=draw.choice([Restart.TASK, Restart.GANG]), join=Join.NOW),
            role("worker", size, stage=1, **worker),
            sidecar(),
        ],
        mode=mode,
    )


def tolerant(draw: random.Random, size: int) -> Plan:
    """All but the chief may fail; an evaluator comes after the workers."""
    restart = draw.choice([Restart.GANG, Restart.TASK])
    return random_plan(
        draw,
        [
            role("worker", size, chief=True, tolerated_from=draw.randint(0, 1), restart=restart),
            role("evaluator", after=("worker",), ranked=False, restart=Restart.TASK),
            server(restart=draw.choice([Restart.GANG, Restart.TASK])),
        ],
        mode=draw.choice([Mode.GANG, Mode.GANG, Mode.EACH]),
    )


SHAPES = (gang, parameter_servers, elastic, each, stages, tolerant)


def random_plan(draw: random.Random, roles: list[RolePlan], **fields: Any) -> Plan:
    return plan(
        *roles,
        hold_s=draw.choice([0.3, 5.0, 30.0]),
        allocation_s=draw.choice([None, None, 60.0]),
        total_s=draw.choice([None, None, None, 90.0]),
        lease_s=draw.choice([8.0, 20.0]),
        checkpoints=draw.random() < 0.5,
        **fields,
    )
