"""One turn of the machine: an event being handled, the state it changes, the commands it causes.

The rules in `gang`, `failure`, `finish` and `takeover` are functions of a turn. All changes of a
task's state or the job's phase go through `move` and `enter`, which hold them against the tables.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from howdah.core.messages import AnyCommand, Level, Record, StopTask, Task
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import (
    JOB_MOVES,
    LIVE,
    TASK_MOVES,
    UP,
    ContainerData,
    ImpossibleMove,
    JobPhase,
    JobState,
    Move,
    TaskData,
    TaskState,
)
from howdah.spec.model import Tracking

STORY_LENGTH = 20
"""Moves of a task that are remembered."""


class Turn:
    """The state, the time, and the commands so far."""

    def __init__(self, state: JobState, now: float) -> None:
        self.state = state
        self.now = now
        self.commands: list[AnyCommand] = []
        self.timers_set: list[tuple[float, str]] = []

    @property
    def plan(self) -> Plan:
        return self.state.job

    def role(self, task: Task) -> RolePlan:
        return self.plan.role(task.role)

    def emit(self, command: AnyCommand) -> None:
        self.commands.append(command)

    def record(
        self,
        kind: str,
        text: str,
        *,
        level: Level = Level.INFO,
        data: TaskData | None = None,
        **details: Any,
    ) -> None:
        """Add a line to the job's story."""
        self.emit(
            Record(
                kind=kind,
                text=text,
                level=level,
                task=data.task if data else None,
                attempt=data.attempt if data and data.attempt else None,
                generation=self.state.generation or None,
                data=details,
            )
        )

    # -- tasks --------------------------------------------------------------------------------

    def tasks(self, roles: Iterable[RolePlan]) -> Iterator[TaskData]:
        for role in roles:
            for index in range(role.maximum):
                yield self.state.tasks[f"{role.name}:{index}"]

    def find(self, task: Task, attempt: int) -> TaskData | None:
        """The task, if the attempt spoken of is its present one and an agent holds it."""
        data = self.state.tasks.get(str(task))
        if data is None or data.attempt != attempt or data.state not in LIVE:
            return None
        return data

    def move(self, data: TaskData, to: TaskState, why: str) -> None:
        """Change a task's state.

        Raises:
            ImpossibleMove: the table does not have the move.
        """
        before = data.state
        if (before, to) not in TASK_MOVES:
            told = "\n".join(f"  {m.time:.3f} {m.before} -> {m.after}: {m.why}" for m in data.story)
            raise ImpossibleMove(
                f"{data.task} attempt {data.attempt} cannot go from {before.value} to {to.value} "
                f"({why}) in phase {self.state.phase.value}; its story:\n{told}"
            )
        counts = self.state.counts[data.task.role]
        counts[before.value] -= 1
        counts[to.value] = counts.get(to.value, 0) + 1
        data.state = to
        data.since = self.now
        data.story.append(Move(self.now, before.value, to.value, why))
        del data.story[:-STORY_LENGTH]

    def count(self, role: RolePlan, states: Iterable[TaskState]) -> int:
        counts = self.state.counts[role.name]
        total = 0
        for state in states:
            total += counts.get(state.value, 0)
        return total

    def stop(self, data: TaskData, grace_s: float, why: str) -> None:
        """Stop a task's attempt, whatever it is doing; repeated only to be firmer."""
        assert data.container_id is not None
        if data.state is not TaskState.STOPPING:
            self.move(data, TaskState.STOPPING, why)
        self.emit(
            StopTask(
                container_id=data.container_id,
                task=data.task,
                attempt=data.attempt,
                grace_s=grace_s,
            )
        )

    # -- roles --------------------------------------------------------------------------------

    def opened(self) -> list[RolePlan]:
        """Roles whose stage has been reached."""
        return [role for role in self.plan.roles if role.stage <= self.state.stage]

    def present(self) -> list[RolePlan]:
        """Roles of the present stage."""
        return [role for role in self.plan.roles if role.stage == self.state.stage]

    def gang(self) -> list[RolePlan]:
        """Roles of the present stage that live and die together: all but sidecars."""
        return [role for role in self.present() if role.tracking is not Tracking.SIDECAR]

    def servers(self) -> list[RolePlan]:
        """Roles of earlier stages that go on beside the present one."""
        return [
            role
            for role in self.plan.roles
            if role.stage < self.state.stage and role.tracking is Tracking.UNTRACKED
        ]

    def in_gang(self, task: Task) -> bool:
        role = self.role(task)
        return role.stage == self.state.stage and role.tracking is not Tracking.SIDECAR

    def live(self, roles: Iterable[RolePlan]) -> int:
        """Attempts that agents hold."""
        return sum(self.count(role, LIVE) for role in roles)

    def up(self, roles: Iterable[RolePlan]) -> int:
        return sum(self.count(role, UP) for role in roles)

    def container(self, data: TaskData) -> ContainerData | None:
        return self.state.containers.get(data.container_id) if data.container_id else None

    # -- phase, timers, chance ----------------------------------------------------------------

    def enter(self, phase: JobPhase) -> None:
        """Change the job's phase.

        Raises:
            ImpossibleMove: the table does not have the move.
        """
        before = self.state.phase
        if (before, phase) not in JOB_MOVES:
            raise ImpossibleMove(f"the job cannot go from {before.value} to {phase.value}")
        self.state.phase = phase
        self.state.since = self.now

    def set_timer(self, name: str, after_s: float | None) -> None:
        if after_s is not None:
            self.state.timers[name] = self.now + after_s
            self.timers_set.append((self.now + after_s, name))

    def clear_timer(self, *names: str) -> None:
        for name in names:
            self.state.timers.pop(name, None)

    def jitter(self) -> float:
        """A number in [0, 1), the same at every replay."""
        self.state.draws += 1
        return random.Random(f"{self.state.seed}/{self.state.draws}").random()
