"""The machine: events in, commands out. No clock, no I/O, no threads.

`Machine.handle` is the only way to change a `JobState`. Which rule answers which event is one
table; after the rule, what has become possible is done (`gang.advance`, `settling.settle`,
`finish.conclude`), so that no rule needs to know all consequences of what it changed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from howdah.core import failure, finish, gang, hang, linger, settling, takeover
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    AnyCommand,
    AnyEvent,
    CheckpointSaved,
    ContainerEnded,
    ContainerGranted,
    CoordinatorStarted,
    JobSubmitted,
    PreemptionNoticed,
    RequestRefused,
    StacksTaken,
    StopRequested,
    Task,
    TaskExited,
    TaskHung,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
    TimerDue,
)
from howdah.core.state import ImpossibleMove, JobPhase, JobState, TaskData, TaskState
from howdah.core.turn import Turn


class Machine:
    """One job. Not thread-safe; equal events at equal times give equal states and commands."""

    def __init__(self, state: JobState | None = None) -> None:
        self.state = state or JobState()
        # Derived: the state's timers by due time, with entries that no longer hold skipped late.
        self._due = [(due, name) for name, due in self.state.timers.items()]
        heapq.heapify(self._due)

    def handle(self, event: AnyEvent, now: float) -> list[AnyCommand]:
        """Take one fact in; returns what is to be done, in order.

        Stale or repeated facts change nothing. ``now`` is in seconds and must not go backwards.

        Raises:
            ImpossibleMove: a defect of the machine, with the story of the task concerned.
        """
        if isinstance(event, JobSubmitted) != (self.state.plan is None):
            raise ImpossibleMove("JobSubmitted must be the first event of a job, and only that")
        turn = Turn(self.state, now)
        _RULES[type(event)](turn, event)
        gang.advance(turn)
        linger.watch(turn)
        settling.settle(turn)
        finish.conclude(turn)
        for timer in turn.timers_set:
            heapq.heappush(self._due, timer)
        return turn.commands

    def next_due(self) -> tuple[float, str] | None:
        """When the next timer comes due, and its name."""
        timers = self.state.timers
        while self._due and timers.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0] if self._due else None


def _on_submitted(turn: Turn, event: JobSubmitted) -> None:
    state = turn.state
    state.plan, state.seed, state.submitted = event.plan, event.seed, turn.now
    for role in event.plan.roles:
        state.counts[role.name] = {TaskState.WAITING.value: role.maximum}
        for index in range(role.maximum):
            task = Task(role.name, index)
            state.tasks[str(task)] = TaskData(task=task, since=turn.now)
    roles = ", ".join(
        f"{r.name} × {r.minimum}" + (f"..{r.maximum}" if r.maximum > r.minimum else "")
        for r in event.plan.roles
    )
    turn.record("submitted", f"job {event.plan.job_id}: {roles}")
    turn.set_timer("total", event.plan.total_s)
    gang.allocate(turn)


def _on_joined(turn: Turn, event: TaskJoined) -> None:
    data = turn.find(event.task, event.attempt)
    if data is not None and data.state in (TaskState.STARTING, TaskState.RUNNING):
        gang.joined(turn, data)


def _on_preemption(turn: Turn, event: PreemptionNoticed) -> None:
    container = turn.state.containers.get(event.container_id)
    if container is None or container.task is None or container.preempting:
        return
    container.preempting = True
    data = turn.state.tasks[str(container.task)]
    limit = "" if event.deadline_s is None else f" in {event.deadline_s:.0f}s"
    turn.record("preemption-noticed", f"{data.task} will be preempted{limit}", data=data)
    for member in _companions(turn, data):
        if member.state is TaskState.RUNNING:
            gang.notify_checkpoint(turn, member, f"{data.task} will be preempted{limit}")


def _companions(turn: Turn, data: TaskData) -> list[TaskData]:
    return list(turn.tasks(turn.gang())) if turn.in_gang(data.task) else [data]


def _on_progressed(turn: Turn, event: CheckpointSaved) -> None:
    state = turn.state
    data = state.tasks.get(str(event.task))
    if data is None or event.attempt > data.attempt:
        return
    state.uncharged = state.setbacks = 0
    state.checkpoint = event.name
    turn.record("checkpoint-saved", f"{event.task} saved checkpoint {event.name}", data=data)


def _on_stacks(turn: Turn, event: StacksTaken) -> None:
    hang.on_stacks(turn, event.task, event.innermost, event.path, event.problem)


def _on_timer(turn: Turn, event: TimerDue) -> None:
    due = turn.state.timers.get(event.timer)
    if due is None or due > turn.now:
        return
    del turn.state.timers[event.timer]
    name, _, argument = event.timer.partition(":")
    rule = _TIMERS[name]
    rule(turn, argument)


def _on_grow_due(turn: Turn) -> None:
    """Take newly come agents in: end the gang in peace and form a larger one."""
    newcomers = any(turn.count(role, (TaskState.IDLE,)) for role in turn.gang())
    if turn.state.phase is JobPhase.RUNNING and newcomers:
        turn.state.reform = True
        turn.record("growing", "more containers have come: the gang is formed anew")
        settling.break_gang(turn, "the gang grows")


_TIMERS: dict[str, Callable[[Turn, str], None]] = {
    "registration": failure.on_registration_due,
    "reconnect": failure.on_reconnect_due,
    "startup": gang.on_startup_due,
    "again": settling.on_again_due,
    "settle-max": lambda turn, _: failure.on_settle_max_due(turn),
    "settle": lambda turn, task: settling.on_settle_task_due(turn, task) if task else None,
    "hold": lambda turn, _: gang.on_hold_due(turn),
    "backoff": lambda turn, _: gang.on_backoff_due(turn),
    "elastic": lambda turn, _: gang.form(turn, patient=False),
    "grow": lambda turn, _: _on_grow_due(turn),
    "linger": linger.on_due,
    "stacks": lambda turn, _: hang.end_hang(turn),
    "restart": lambda turn, _: settling.on_restart_due(turn),
    "allocation": lambda turn, _: finish.on_allocation_due(turn),
    "total": lambda turn, _: finish.on_total_due(turn),
    "finish": lambda turn, _: finish.on_finish_due(turn),
    "give-back": lambda turn, _: finish.on_give_back_due(turn),
}

_RULES: dict[type[Any], Callable[[Turn, Any], None]] = {
    JobSubmitted: _on_submitted,
    CoordinatorStarted: takeover.on_coordinator_started,
    ContainerGranted: gang.on_granted,
    RequestRefused: gang.on_refused,
    ContainerEnded: failure.on_container_ended,
    PreemptionNoticed: _on_preemption,
    AgentRegistered: takeover.on_registered,
    AgentDisconnected: failure.on_disconnected,
    AgentSilent: failure.on_silent,
    TaskPrepared: takeover.on_prepared,
    TaskStarted: takeover.on_started,
    TaskJoined: _on_joined,
    TaskExited: failure.on_exited,
    TaskHung: hang.on_hung,
    StacksTaken: _on_stacks,
    CheckpointSaved: _on_progressed,
    StopRequested: finish.on_stop,
    TimerDue: _on_timer,
}
