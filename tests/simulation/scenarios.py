"""Random jobs and random troubles, each from one seed."""

from __future__ import annotations

import random

from howdah.core.plan import Completion, Join, Plan, RolePlan
from howdah.spec.model import Mode, Restart, Tracking
from tests.simulation.world import Faults, World

_CHANCES = (0.0, 0.0, 0.02, 0.1)


def gang(draw: random.Random, size: int) -> Plan:
    """Synchronous training with a parameter server beside it and a sidecar."""
    roles = [
        RolePlan(name="worker", minimum=size, maximum=size, chief=True, hang_s=5, attempts=4),
        RolePlan(
            name="tensorboard",
            minimum=1,
            maximum=1,
            tracking=Tracking.SIDECAR,
            restart=Restart.TASK,
            join=Join.NOW,
            ranked=False,
        ),
    ]
    if draw.random() < 0.5:
        roles.insert(0, _ps(Restart.GANG))
        roles[1] = RolePlan(
            name="worker",
            minimum=size,
            maximum=size,
            chief=True,
            after=("ps",),
            attempts=draw.randint(1, 4),
            processes=draw.choice([1, 1, 4]),
            stop_on_failure=draw.random() < 0.1,
        )
    return _plan(draw, roles)


def parameter_servers(draw: random.Random, size: int) -> Plan:
    """Workers and chief come back alone at the same address; the chief's success is the job's."""
    return _plan(
        draw,
        [
            RolePlan(
                name="chief",
                minimum=1,
                maximum=1,
                chief=True,
                restart=Restart.TASK,
                sticky_ports=True,
                after=("ps", "worker"),
            ),
            RolePlan(
                name="worker",
                minimum=size,
                maximum=size,
                restart=Restart.TASK,
                sticky_ports=True,
                watched=False,
            ),
            _ps(Restart.GANG),
        ],
        completion=Completion.CHIEF,
    )


def elastic(draw: random.Random, size: int) -> Plan:
    return _plan(
        draw,
        [RolePlan(name="worker", minimum=draw.randint(1, size), maximum=size, chief=True)],
    )


def each(draw: random.Random, size: int) -> Plan:
    """Independent tasks, started one by one."""
    restart = draw.choice([Restart.TASK, Restart.TASK, Restart.GANG, Restart.NEVER])
    return _plan(
        draw,
        [RolePlan(name="worker", minimum=size, maximum=size, restart=restart, join=Join.NOW)],
        mode=Mode.EACH,
    )


def stages(draw: random.Random, size: int) -> Plan:
    """A preparing stage, a server that lives on, then training."""
    return _plan(
        draw,
        [
            RolePlan(name="prepare", minimum=1, maximum=1, join=Join.NOW, ranked=False),
            RolePlan(
                name="database",
                minimum=1,
                maximum=1,
                tracking=Tracking.UNTRACKED,
                ranked=False,
                restart=draw.choice([Restart.TASK, Restart.GANG]),
            ),
            RolePlan(name="worker", minimum=size, maximum=size, chief=True, stage=1),
        ],
    )


SHAPES = (gang, parameter_servers, elastic, each, stages)


def world(seed: int, *, shape: int | None = None) -> World:
    """The world of a seed: a shape, a size, faults and habits of its own."""
    draw = random.Random(seed)
    make = SHAPES[seed % len(SHAPES) if shape is None else shape]
    plan = make(draw, draw.choice([1, 2, 2, 3, 5, 8]))
    return World(
        plan,
        seed,
        faults(draw),
        nodes=draw.choice([1, 3, 6]),
        work_s=draw.choice([0.02, 2.0, 20.0, 20.0]),
        stingy=draw.choice([0, 0, 0, 1]) if _can_be_split(plan) else 0,
        starved=plan.allocation_s is not None and draw.random() < 0.2,
    )


def _can_be_split(plan: Plan) -> bool:
    """A part of the first stage's gang can be granted without the rest."""
    first = [r for r in plan.roles if r.stage == 0 and r.tracking is not Tracking.SIDECAR]
    return plan.mode is Mode.GANG and sum(role.maximum for role in first) > 1


def faults(draw: random.Random) -> Faults:
    def chance() -> float:
        return draw.choice(_CHANCES)

    return Faults(
        kill=chance(),
        crash=chance(),
        out_of_memory=chance(),
        port_taken=chance(),
        agent=chance(),
        node=chance() / 2,
        preempt=chance(),
        partition=chance(),
        coordinator=draw.choice([0.0, 0.0, 0.1, 0.5]),
        hang=chance(),
        repeat=chance(),
        echo=draw.choice([0.0, 0.5]),
        flaky=draw.choice([0.0, 0.0, 0.3]),
        forget=draw.choice([0.0, 0.0, 0.2]),
        stop=draw.choice([0.0, 0.0, 0.0, 0.01]),
        delay_s=draw.choice([0.0, 0.005, 0.05, 0.5]),
    )


def _ps(restart: Restart) -> RolePlan:
    return RolePlan(
        name="ps",
        minimum=2,
        maximum=2,
        tracking=Tracking.UNTRACKED,
        restart=restart,
        ranked=False,
        watched=False,
    )


def _plan(draw: random.Random, roles: list[RolePlan], **rules: object) -> Plan:
    return Plan(
        job_id="job",
        roles=tuple(roles),
        hold_s=draw.choice([0.3, 5.0, 30.0]),
        allocation_s=draw.choice([None, None, 60.0]),
        total_s=draw.choice([None, None, None, 90.0]),
        **rules,  # type: ignore[arg-type]
    )
