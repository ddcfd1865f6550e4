"""Random worlds: a job, a cluster's habits and its troubles, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from howdah.core.messages import ContainerEndKind, Exit, PreemptionNoticed
from howdah.core.plan import Plan
from howdah.spec.model import Mode, Tracking
from tests.simulation.cluster import Agent, Habits, Phase, Program
from tests.simulation.plans import SHAPES
from tests.simulation.world import World

TROUBLE_S = 120.0
"""Faults end then, so that every job must end."""
QUIET_S = 500.0
"""So long after the last fault, everything that should run must run."""
_CHANCES = (0.0, 0.0, 0.02, 0.1)


class Faults(msgspec.Struct, kw_only=True):
    """Chances per simulated second, or per occasion, of what goes wrong."""

    kill: float = 0.0
    crash: float = 0.0
    out_of_memory: float = 0.0
    port_taken: float = 0.0
    agent: float = 0.0
    node: float = 0.0
    silent_node: float = 0.0
    preempt: float = 0.0
    partition: float = 0.0
    blip: float = 0.0
    coordinator: float = 0.0
    hang: float = 0.0
    stop: float = 0.0
    late: float = 0.0
    """Chance that a peer's own error is heard before the exit that caused it."""
    flaky: float = 0.0
    """Chance that a program fails when its work is done."""
    launch: float = 0.0
    """Chance that a launch fails, or is never heard of again."""
    prepare: float = 0.0
    """Chance that a preparation fails of something that passes."""
    refuse: float = 0.0
    """Chance that a request is refused for good."""
    saving: float = 0.0
    """Chance that an attempt has something to save."""


def world(seed: int, *, shape: int | None = None) -> World:
    """The world of a seed."""
    draw = random.Random(seed)
    make = SHAPES[seed % len(SHAPES) if shape is None else shape]
    plan = make(draw, draw.choice([1, 2, 2, 3, 5, 8]))
    one = World(plan, seed, _habits(draw, plan), nodes=draw.choice([1, 3, 6]))
    afflict(one, _faults(draw), draw)
    return one


def _faults(draw: random.Random) -> Faults:
    def chance() -> float:
        return draw.choice(_CHANCES)

    return Faults(
        kill=chance(),
        crash=chance(),
        out_of_memory=chance(),
        port_taken=chance(),
        agent=chance(),
        node=chance() / 2,
        silent_node=chance() / 2,
        preempt=chance(),
        partition=chance(),
        blip=chance(),
        coordinator=draw.choice([0.0, 0.0, 0.1, 0.5]),
        hang=chance(),
        stop=draw.choice([0.0, 0.0, 0.0, 0.01]),
        late=draw.choice([0.0, 0.5]),
        flaky=draw.choice([0.0, 0.0, 0.3]),
        launch=draw.choice([0.0, 0.0, 0.05, 0.3]),
        prepare=draw.choice([0.0, 0.0, 0.05, 0.3]),
        refuse=draw.choice([0.0, 0.0, 0.0, 0.02]),
        saving=draw.choice([0.0, 0.0, 0.5]),
    )


def _habits(draw: random.Random, plan: Plan) -> Habits:
    return Habits(
        delay_s=draw.choice([0.0, 0.005, 0.05, 0.5]),
        lease_s=plan.lease_s,
        backend_is_sure=draw.random() < 0.5,
        named_late_s=draw.choice([0.0, 0.0, 1.0, 30.0]),
        repeat=draw.choice(_CHANCES),
        forget=draw.choice([0.0, 0.0, 0.2]),
        release_s=draw.choice([0.0, 0.0, 2.0]),
    )


def afflict(one: World, faults: Faults, draw: random.Random) -> None:
    """Let the world's troubles begin."""
    Troubles(one, faults, draw).begin()


class Troubles:
    """What goes wrong in one world, until `TROUBLE_S`."""

    def __init__(self, one: World, faults: Faults, draw: random.Random) -> None:
        self.world = one
        self.cluster = one.cluster
        self.faults = faults
        self.random = one.random
        self.end = one.now + TROUBLE_S
        self.work_s = draw.choice([0.02, 2.0, 20.0, 20.0, TROUBLE_S + QUIET_S + 100])
        self.starving = self._starving(draw)
        self.grants = 0
        self.broken_sidecar = draw.random() < 0.1
        self.trickle_s = draw.choice([0.0, 0.0, 0.0, 20.0])

    def begin(self) -> None:
        one, habits = self.world, self.world.habits
        habits.grant_s = self._grant_s
        habits.refuse = lambda task: "too large" if self._now_and_then(self.faults.refuse) else ""
        habits.launch = self._launch
        habits.prepare = self._prepare
        habits.prepare_s = lambda task, attempt: self.random.uniform(0, 0.5)
        habits.work = self._work
        habits.save_s = self._save_s
        habits.checkpoint_s = lambda task, attempt: self.random.choice([None, 1.0, 10.0])
        habits.ignores_sigterm = lambda task, attempt: self.random.random() < 0.3
        habits.cannot_be_killed = lambda task, attempt: self._now_and_then(0.02)
        one.coordinator_dies = self.faults.coordinator
        one.clock.later(self.random.uniform(0.1, 1.0), self._act)
        one.clock.later(TROUBLE_S, lambda: setattr(one, "coordinator_dies", 0.0))
        if self.starving is None:
            one.clock.later(TROUBLE_S + QUIET_S, self._verify_all_run)

    def _verify_all_run(self) -> None:
        self.world.verify_all_run(sidecars=not self.broken_sidecar)

    # -- habits -----------------------------------------------------------------------------------

    def _starving(self, draw: random.Random) -> str | None:
        """Some clusters never have the first role's containers; some long lack the first one."""
        plan = self.world.plan
        if plan.allocation_s is not None and draw.random() < 0.2:
            return "for ever"
        first = [r for r in plan.roles if r.stage == 0 and r.tracking is not Tracking.SIDECAR]
        split = plan.mode is Mode.GANG and sum(r.maximum for r in first) > 1
        return "at first" if split and draw.random() < 0.15 else None

    def _grant_s(self, task: str) -> float | None:
        self.grants += 1
        role, _, index = task.partition(":")
        first = next(r for r in self.world.plan.roles if r.tracking is not Tracking.SIDECAR)
        if self.starving == "for ever" and role == first.name:
            return None
        if self.starving == "at first" and self.grants == 1:
            return 2 * TROUBLE_S
        if int(index) >= self.world.plan.role(role).minimum:
            return 0.1 + self.random.uniform(0, self.trickle_s * (int(index) + 1))
        return 0.1

    def _now_and_then(self, chance: float) -> bool:
        return self.world.now < self.end and self.cluster.chance(chance)

    def _launch(self, task: str) -> str | None:
        sidecars = self.world.plan.role(task.partition(":")[0]).tracking is Tracking.SIDECAR
        if self.broken_sidecar and sidecars:
            return "no such image"
        if self._now_and_then(self.faults.launch):
            return self.random.choice(["no such image", "no such image", None])
        return ""

    def _prepare(self, task: str, attempt: int) -> Exit | None:
        if not self._now_and_then(self.faults.prepare):
            return None
        if self.random.random() < 0.05:
            return Exit(failed_to_start="no such program")
        return Exit(failed_to_start="the store is in safe mode", transient=True)

    def _work(self, task: str, attempt: int) -> tuple[float, Exit] | None:
        if self.world.plan.role(task.partition(":")[0]).tracking is not Tracking.TRACKED:
            return None
        flaky = self._now_and_then(self.faults.flaky)
        after_s = self.work_s * (0.5 + self.random.random()) if self.work_s < 100 else self.work_s
        return after_s, Exit(code=3 if flaky else 0)

    def _save_s(self, task: str, attempt: int) -> float:
        return self.random.uniform(0, 60) if self._now_and_then(self.faults.saving) else 0.0

    # -- acts -------------------------------------------------------------------------------------

    def _some(self) -> tuple[Agent, Program] | None:
        running = list(self.cluster.running())
        return self.random.choice(running) if running else None

    def _act(self) -> None:
        one, faults, chance = self.world, self.faults, self.cluster.chance
        if one.done or one.now > self.end:
            return
        one.clock.later(self.random.expovariate(1.0), self._act)
        if chance(faults.coordinator):
            one.kill_coordinator(0.2 + self.cluster.lag())
        self._programs(faults, chance)
        self._containers(faults, chance)
        self._network(faults, chance)
        if chance(faults.stop):
            one.stop(firm=self.random.random() < 0.3)
            if self.random.random() < 0.5:
                firm = self.random.random() < 0.5
                one.clock.later(self.random.uniform(0, 15), lambda: one.stop(firm=firm))

    def _programs(self, faults: Faults, chance: Callable[[float], bool]) -> None:
        for likely, exit in (
            (faults.kill, Exit(signal=9)),
            (faults.crash, Exit(code=1, tail=("Error",))),
            (faults.out_of_memory, Exit(signal=9, out_of_memory=True)),
            (faults.port_taken, Exit(code=1, port_taken=True)),
        ):
            if chance(likely) and (victim := self._some()):
                self._fail(*victim, exit)
        if chance(faults.hang) and (victim := self._some()):
            agent, program = victim
            program.hung = True
            self.world.clock.later(5.0, lambda: self.world.report_hang(agent, program))
        if chance(0.3) and (victim := self._some()):
            self.cluster.save_checkpoint(*victim)

    def _fail(self, agent: Agent, program: Program, exit: Exit) -> None:
        """A program fails by itself; a peer may fail of that, and be heard of first."""
        late = self.cluster.chance(self.faults.late)
        self.cluster.exit(agent, program, exit, self.random.uniform(0, 0.5) if late else 0.0)
        if late and (peer := self._some()):
            self.cluster.exit(*peer, Exit(code=1, tail=("ConnectionResetError",)))

    def _containers(self, faults: Faults, chance: Callable[[float], bool]) -> None:
        cluster = self.cluster
        if chance(faults.agent) and cluster.agents:
            agent = self.random.choice(list(cluster.agents.values()))
            if not agent.node.silent:
                cluster.end_container(agent.container_id, ContainerEndKind.EXITED)
        if chance(faults.agent) and (victim := self._some()):
            self._take_back(*victim)
        if chance(faults.node):
            cluster.lose_node(self.random.choice(list(cluster.nodes.values())))
        if chance(faults.preempt) and cluster.containers:
            container_id = self.random.choice(list(cluster.containers))
            self.world.tell(PreemptionNoticed(container_id=container_id, deadline_s=3.0))
            self.world.clock.later(3.0, lambda: self._preempt(container_id))

    def _preempt(self, container_id: str) -> None:
        node = self.cluster.containers.get(container_id)
        if node is not None and not node.silent:
            self.cluster.end_container(container_id, ContainerEndKind.PREEMPTED)

    def _take_back(self, agent: Agent, program: Program) -> None:
        """The agent is told to end by what runs containers, ends its program, and goes. A program
        may well take that as a reason to end with exit code 0."""
        if agent.node.silent or program.phase is not Phase.RUNNING:
            return
        program.told_to_stop = True
        self.cluster.exit(agent, program, self.random.choice([Exit(code=0), Exit(signal=15)]))
        kind = self.random.choice(
            [ContainerEndKind.EXITED, ContainerEndKind.PREEMPTED, ContainerEndKind.OUT_OF_MEMORY]
        )
        self.world.clock.later(
            self.cluster.lag(),
            lambda: self.cluster.end_container(
                agent.container_id, kind, late_s=self.random.uniform(0, 2)
            ),
        )

    def _network(self, faults: Faults, chance: Callable[[float], bool]) -> None:
        cluster = self.cluster
        if chance(faults.blip) and cluster.agents:
            cluster.drop_connection(self.random.choice(list(cluster.agents.values())))
        if chance(faults.partition) and cluster.agents:
            agent = self.random.choice(list(cluster.agents.values()))
            cluster.cut(agent)
            if self.random.random() < 0.7:
                self.world.clock.later(self.random.uniform(0.5, 25.0), lambda: cluster.heal(agent))
        if chance(faults.silent_node) and len(cluster.nodes) > 1:
            node = self.random.choice(list(cluster.nodes.values()))
            cluster.silence_node(
                node,
                for_s=self.random.uniform(1, 40),
                expiry_s=self.random.uniform(2, 15),
                cut=self.random.random() < 0.5,
            )
