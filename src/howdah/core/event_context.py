"""The handling of one event: the state it changes, the commands it causes.

All changes of a task's state, of the job's phase and of a time something waits for go through an
`EventContext`, which holds them against the tables and keeps the `StateIndex`.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from howdah.core.messages import AnyCommand, Level, Record, Task
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import (
    JOB_MOVES,
    LIVE,
    TASK_MOVES,
    ContainerData,
    FailureReport,
    ImpossibleMove,
    JobPhase,
    JobState,
    Move,
    RestartUnit,
    TaskData,
    TaskState,
    UnitKind,
)
from howdah.spec.model import Mode, Tracking

MOVES_KEPT = 20
"""Moves of a task that are remembered."""
GANG = "gang"
"""Name of the unit that is always there."""

Timed = TaskData | ContainerData | RestartUnit
TimedField = Literal["deadline", "window_until", "explain_until", "retry_at"]
_FIELDS: tuple[TimedField, ...] = ("deadline", "window_until", "explain_until", "retry_at")


class StateIndex:
    """What the state says, arranged so that no step has to look at every task.

    Derived: made anew from any state, never stored. `EventContext` keeps it up to date.
    """

    def __init__(self, state: JobState) -> None:
        self.by_state: dict[str, dict[TaskState, set[int]]] = {}
        """Indexes of tasks, by role and state."""
        self.unrequested: dict[str, set[int]] = {}
        """Of those that wait, the ones for which no container is asked for."""
        self.awaited: set[str] = set()
        """Names of members that have not joined yet."""
        self.joined: dict[str, set[int]] = {}
        self.given_up: set[str] = set()
        """Containers that are being given back."""
        self.roles: dict[str, RolePlan] = {}
        self._opened: dict[int, list[RolePlan]] = {}
        self._gang: dict[int, list[RolePlan]] = {}
        self._due: list[tuple[float, int, TimedField, Timed]] = []
        self._pushed = 0
        for role in state.plan.roles if state.plan is not None else ():
            self.add_role(role)
        for name, data in state.tasks.items():
            role, number = data.task.role, data.task.index
            self.by_state[role].setdefault(data.state, set()).add(number)
            if data.state is TaskState.WAITING and data.request_id is None:
                self.unrequested[role].add(number)
            if data.awaited:
                self.awaited.add(name)
            if data.joined:
                self.joined[role].add(number)
        for container in state.containers.values():
            if container.task is None:
                self.given_up.add(container.container_id)
        for timed in (*state.tasks.values(), *state.containers.values(), *state.units.values()):
            for field in _FIELDS:
                if (at := getattr(timed, field, None)) is not None:
                    self.push(at, field, timed)

    def add_role(self, role: RolePlan) -> None:
        self.roles[role.name] = role
        self.by_state[role.name] = {}
        self.unrequested[role.name] = set()
        self.joined[role.name] = set()

    def opened(self, stage: int) -> list[RolePlan]:
        """Roles whose stage has been reached."""
        if (roles := self._opened.get(stage)) is None:
            roles = [role for role in self.roles.values() if role.stage <= stage]
            self._opened[stage] = roles
        return roles

    def gang(self, stage: int) -> list[RolePlan]:
        """Roles of the stage that live and die together: all but sidecars."""
        if (roles := self._gang.get(stage)) is None:
            present = (role for role in self.roles.values() if role.stage == stage)
            roles = [role for role in present if role.tracking is not Tracking.SIDECAR]
            self._gang[stage] = roles
        return roles

    def push(self, at: float, field: TimedField, timed: Timed) -> None:
        self._pushed += 1
        heapq.heappush(self._due, (at, self._pushed, field, timed))

    def next_due(self) -> float | None:
        """The earliest time of a task, container or unit; entries that no longer hold are dropped."""
        while self._due:
            at, _, field, timed = self._due[0]
            if getattr(timed, field) == at:
                return at
            heapq.heappop(self._due)
        return None

    def pop_due(self, now: float) -> Iterator[Timed]:
        """Whose time has come, earliest first."""
        while (at := self.next_due()) is not None and at <= now:
            yield heapq.heappop(self._due)[3]


class EventContext:
    """The state, the time, and the commands so far."""

    def __init__(self, state: JobState, index: StateIndex, now: float, cause: str) -> None:
        self.state = state
        self.index = index
        self.now = now
        self.cause = cause
        self.commands: list[AnyCommand] = []
        self.changes: int = 0
        """Grows with everything that is done: `reconcile` goes on until it stands still."""
        self.touched: dict[str, TaskData] = {}
        """Tasks outside the gang's rules to be looked at: whose state, unit or time has changed."""
        self.reports: list[FailureReport] = []
        """Failures of attempts, for `restart` to judge."""
        self.losses: list[FailureReport] = []
        """Containers that were lost before an attempt had begun in them."""

    @property
    def plan(self) -> Plan:
        return self.state.job

    @property
    def gang_unit(self) -> RestartUnit:
        return self.state.units[GANG]

    def role(self, task: Task) -> RolePlan:
        return self.index.roles[task.role]

    def emit(self, command: AnyCommand) -> None:
        # Stamped here once instead of at each of its fifty makings.
        msgspec.structs.force_setattr(command, "cause", self.cause)
        self.commands.append(command)
        self.changes += 1

    def record(
        self,
        kind: str,
        text: str,
        *,
        level: Level = Level.INFO,
        data: TaskData | None = None,
        **details: Any,
    ) -> None:
        """Add a line to the job's event log."""
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

    def task(self, task: Task) -> TaskData:
        return self.state.tasks[str(task)]

    def tasks(self, roles: Iterable[RolePlan]) -> Iterator[TaskData]:
        for role in roles:
            for number in range(role.maximum):
                yield self.state.tasks[f"{role.name}:{number}"]

    def in_states(self, roles: Iterable[RolePlan], *states: TaskState) -> list[TaskData]:
        """Tasks of these roles in one of these states, by role and index."""
        found: list[TaskData] = []
        for role in roles:
            by_state = self.index.by_state[role.name]
            numbers: set[int] = set()
            numbers.update(*(by_state.get(state, ()) for state in states))
            found += [self.state.tasks[f"{role.name}:{number}"] for number in sorted(numbers)]
        return found

    def count(self, role: RolePlan, states: Iterable[TaskState]) -> int:
        by_state = self.index.by_state[role.name]
        total = 0
        for state in states:
            if (numbers := by_state.get(state)) is not None:
                total += len(numbers)
        return total

    def move(self, data: TaskData, to: TaskState, why: str) -> None:
        """Change a task's state.

        Raises:
            ImpossibleMove: the table does not have the move.
        """
        before = data.state
        if (before, to) not in TASK_MOVES:
            moves = "\n".join(
                f"  {m.time:.3f} {m.before} -> {m.after}: {m.why} ({m.cause})" for m in data.moves
            )
            raise ImpossibleMove(
                f"{data.task} attempt {data.attempt} cannot go from {before.value} to {to.value} "
                f"({why}; {self.cause}) in phase {self.state.phase.value}; its moves:\n{moves}"
            )
        role, number = data.task.role, data.task.index
        by_state = self.index.by_state[role]
        by_state[before].discard(number)
        by_state.setdefault(to, set()).add(number)
        if to is TaskState.WAITING:
            self.index.unrequested[role].add(number)
        elif before is TaskState.WAITING:
            self.index.unrequested[role].discard(number)
        data.state = to
        data.since = self.now
        data.moves.append(Move(self.now, before.value, to.value, why, self.cause))
        del data.moves[:-MOVES_KEPT]
        self.set_time(data, "deadline", None)
        self.touch(data)
        self.changes += 1

    def set_request(self, data: TaskData, request_id: int | None) -> None:
        data.request_id = request_id
        unrequested = self.index.unrequested[data.task.role]
        if request_id is None and data.state is TaskState.WAITING:
            unrequested.add(data.task.index)
        else:
            unrequested.discard(data.task.index)
        self.changes += 1

    def set_awaited(self, data: TaskData, awaited: bool) -> None:
        data.awaited = awaited
        (self.index.awaited.add if awaited else self.index.awaited.discard)(str(data.task))
        self.changes += 1

    def set_joined(self, data: TaskData, joined: bool) -> None:
        data.joined = joined
        data.joined_at = self.now if joined else None
        numbers = self.index.joined[data.task.role]
        (numbers.add if joined else numbers.discard)(data.task.index)
        self.changes += 1

    def touch(self, data: TaskData) -> None:
        """Look at this task, and at the unit that restarts it, while this event is handled."""
        self.touched[str(data.task)] = data

    # -- roles and units ----------------------------------------------------------------------

    def opened(self) -> list[RolePlan]:
        return self.index.opened(self.state.stage)

    def gang(self) -> list[RolePlan]:
        """Roles of the present stage that live and die together: all but sidecars."""
        return self.index.gang(self.state.stage)

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

    def alone(self, data: TaskData) -> bool:
        """Outside the gang's barrier: a sidecar or a server of an earlier stage."""
        return not self.in_gang(data.task)

    def each(self) -> bool:
        return self.plan.mode is Mode.EACH

    def optional(self, data: TaskData) -> bool:
        """The job can do without it."""
        role = self.role(data.task)
        return role.tracking is Tracking.SIDECAR or data.task.index >= role.minimum

    def tolerated(self, task: Task) -> bool:
        """It may fail by its own fault without failing the job."""
        first = self.role(task).tolerated_from
        if first is None or task.role in self.state.released:
            return False
        return task.index >= first

    def own_unit(self, data: TaskData) -> RestartUnit:
        """The unit of that task alone, made if there is none."""
        name = str(data.task)
        if self.role(data.task).tracking is Tracking.SIDECAR:
            kind = UnitKind.SIDECAR
        else:
            kind = UnitKind.TASK if self.in_gang(data.task) else UnitKind.SERVER
        unit = self.state.units.setdefault(name, RestartUnit(name=name, kind=kind))
        unit.kind = kind
        return unit

    def live(self, roles: Iterable[RolePlan]) -> int:
        """Attempts that agents hold."""
        return sum(self.count(role, LIVE) for role in roles)

    def container(self, data: TaskData) -> ContainerData | None:
        return self.state.containers.get(data.container_id) if data.container_id else None

    # -- phase, times, chance -----------------------------------------------------------------

    def enter(self, phase: JobPhase) -> None:
        """Change the job's phase; entering the present one again changes nothing.

        Raises:
            ImpossibleMove: the table does not have the move.
        """
        before = self.state.phase
        if before is phase:
            return
        if (before, phase) not in JOB_MOVES:
            raise ImpossibleMove(
                f"the job cannot go from {before.value} to {phase.value} ({self.cause})"
            )
        self.state.phase = phase
        self.state.since = self.now
        self.changes += 1

    def set_time(self, timed: Timed, field: TimedField, at: float | None) -> None:
        """Set when that waits no longer."""
        if getattr(timed, field) == at:
            return
        setattr(timed, field, at)
        if at is not None:
            self.index.push(at, field, timed)
        self.changes += 1

    def passed(self, at: float | None) -> bool:
        return at is not None and at <= self.now

    def jitter(self) -> float:
        """A number in [0, 1), the same at every replay."""
        self.state.draws += 1
        return random.Random(f"{self.state.seed}/{self.state.draws}").random()
