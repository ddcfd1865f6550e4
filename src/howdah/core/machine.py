"""The machine: events in, commands out. No clock, no I/O, no threads.

`Machine.handle` is the only way to change a `JobState`. It first takes the fact in: what it says of
a task goes through one table (`howdah.core.task.TABLE`), the rest is below. Then it compares what
should be with what is (`howdah.core.reconcile`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from howdah.core import containers, job_completion, reconcile, restart
from howdah.core import task as tasks
from howdah.core.event_context import GANG, EventContext, StateIndex
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
    FinishJob,
    JobSubmitted,
    Level,
    PreemptionNoticed,
    ReleaseContainer,
    RequestRefused,
    StacksTaken,
    StopRequested,
    Task,
    TaskExited,
    TaskHung,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
    TimePassed,
)
from howdah.core.restart import WORKING
from howdah.core.state import (
    LIVE,
    HangCheck,
    ImpossibleMove,
    JobPhase,
    JobState,
    Outcome,
    RestartUnit,
    StackNote,
    TaskData,
    TaskState,
    UnitKind,
)
from howdah.spec.model import Restart

S = TaskState
LEAST_TOTAL_S = 60.0
"""Of its total time, what a job has left that waited so long for its coordinator."""
STACKS_S = 10.0
"""How long stack dumps of a hung gang are waited for."""
NOTICE_S = 60.0
"""When a preemption is expected whose notice names no time."""
NOTICE_MARGIN_S = 30.0
"""A notice explains an end this long after its time: its own delays, and those of what it announces."""


class Machine:
    """One job. Not thread-safe; equal events at equal times give equal states and commands."""

    def __init__(self, state: JobState | None = None) -> None:
        self.state: JobState = state or JobState()
        self._index = StateIndex(self.state)
        self._now = float("-inf")

    def handle(self, event: AnyEvent, now: float, cause: str = "") -> list[AnyCommand]:
        """Take one fact in; returns what is to be done, in order.

        Stale or repeated facts change nothing. ``now`` is in seconds and must not go backwards;
        ``cause`` names the event in every command that follows from it.

        Raises:
            ImpossibleMove: a defect of the machine, with the moves of the task concerned.
        """
        if isinstance(event, JobSubmitted) != (self.state.plan is None):
            raise ImpossibleMove("JobSubmitted must be the first event of a job, and only that")
        context = EventContext(self.state, self._index, now, cause or type(event).__name__)
        self._now = now
        if isinstance(event, _OF_A_TASK):
            _on_task_event(context, event)
        else:
            _RULES[type(event)](context, event)
        reconcile.reconcile(context, everything=isinstance(event, CoordinatorStarted))
        return context.commands

    def next_due(self) -> float | None:
        """When `TimePassed` is to come: the earliest time that something waits for, None if nothing
        does. Times that had come when the machine last looked are not among them."""
        times = [at for at in _job_times(self.state) if at > self._now]
        if (at := self._index.next_due()) is not None:
            times.append(at)
        return min(times, default=None)


def _job_times(state: JobState) -> Iterator[float]:
    """What the job as a whole waits for; tasks, containers and units are in the `StateIndex`."""
    growth, hang = state.growth, state.hang
    for at in (
        state.total_until,
        state.allocation_until,
        state.hold_until,
        state.elastic_until,
        state.avoided_until,
        growth.at if growth is not None and not growth.asked else None,
        growth.until if growth is not None else None,
        hang.until if hang is not None else None,
        *state.linger.values(),
    ):
        if at is not None:
            yield at


# -- facts about a task's attempt -----------------------------------------------------------------


_OF_A_TASK = (TaskPrepared, TaskStarted, TaskJoined, TaskSaving, TaskExited)


def _on_task_event(
    context: EventContext, event: TaskPrepared | TaskStarted | TaskJoined | TaskSaving | TaskExited
) -> None:
    data = context.state.tasks.get(str(event.task))
    if data is None:
        return
    current = data.attempt == event.attempt
    if isinstance(event, TaskExited) and not (current and data.state in LIVE):
        containers.on_exit(context, event)
    elif current:
        tasks.apply(context, data, event)


# -- facts about the job ----------------------------------------------------------------------------


def _on_submitted(context: EventContext, event: JobSubmitted) -> None:
    state = context.state
    state.plan, state.seed, state.submitted = event.plan, event.seed, context.now
    state.units[GANG] = RestartUnit(name=GANG, kind=UnitKind.GANG)
    for role in event.plan.roles:
        context.index.add_role(role)
        numbers = set(range(role.maximum))
        context.index.by_state[role.name][S.WAITING] = numbers
        context.index.unrequested[role.name] = set(numbers)
        for index in range(role.maximum):
            task = Task(role.name, index)
            state.tasks[str(task)] = TaskData(task=task, since=context.now)
    roles = ", ".join(
        f"{r.name} × {r.minimum}" + (f"..{r.maximum}" if r.maximum > r.minimum else "")
        for r in event.plan.roles
    )
    context.record("submitted", f"job {event.plan.job_id}: {roles}")
    if (total_s := event.plan.total_s) is not None:
        left_s = max(total_s - event.waited_s, min(total_s, LEAST_TOTAL_S))
        state.total_until = context.now + left_s


def _on_coordinator_started(context: EventContext, event: CoordinatorStarted) -> None:
    state = context.state
    state.incarnation = event.incarnation
    if event.incarnation <= 1:
        return
    context.record(
        "coordinator-took-over",
        f"coordinator {event.incarnation} took over with {len(event.containers)} containers",
        containers=len(event.containers),
    )
    if state.phase is JobPhase.FINISHED:
        for container_id in event.containers:
            context.emit(ReleaseContainer(container_id=container_id))
        context.emit(FinishJob())
        return
    patience_s = containers.patience(context)
    least = context.now + patience_s
    _give_more_time(context, context.now - patience_s, lambda at: max(at, least))
    containers.take_over(context, event)


def _give_more_time(context: EventContext, since: float, later: Callable[[float], float]) -> None:
    """What waits for agents waited for nothing while no coordinator listened, or acted. What was over
    by ``since`` stays over."""
    state = context.state
    for data in state.tasks.values():
        if data.deadline is not None:
            context.set_time(data, "deadline", later(data.deadline))
        request = data.save_request
        if request is not None and request.until > since:
            request.until = later(request.until)
    for container in state.containers.values():
        if container.deadline is not None:
            context.set_time(container, "deadline", later(container.deadline))
    for unit in state.units.values():
        if unit.explain_until is not None:
            context.set_time(unit, "explain_until", later(unit.explain_until))
    if state.hold_until is not None:
        state.hold_until = later(state.hold_until)
    if state.elastic_until is not None:
        state.elastic_until = later(state.elastic_until)
    if state.growth is not None:
        state.growth.at = later(state.growth.at)
        if state.growth.until is not None:
            state.growth.until = later(state.growth.until)
    if state.hang is not None:
        state.hang.until = later(state.hang.until)


def _on_refused(context: EventContext, event: RequestRefused) -> None:
    task = context.state.requests.pop(event.request_id, None)
    if task is None:
        return
    data = context.task(task)
    context.set_request(data, None)
    if not context.optional(data):
        why = f"{task} can never get its container: {event.reason}"
        job_completion.finish(context, Outcome.FAILED, why)
        return
    restart.retire(context, data, f"{task} gets no container: {event.reason}")


def _on_preemption(context: EventContext, event: PreemptionNoticed) -> None:
    container = context.state.containers.get(event.container_id)
    if container is None or container.task is None:
        return
    known = tasks.preempting(context, container)
    soon_s = NOTICE_S if event.deadline_s is None else event.deadline_s
    container.noticed_until = context.now + soon_s + NOTICE_MARGIN_S
    if known:
        return
    data = context.task(container.task)
    limit = "" if event.deadline_s is None else f" in {event.deadline_s:.0f}s"
    what = f"{data.task} will be preempted{limit}"
    context.record("preemption-noticed", what, data=data)
    roles = context.gang() if context.in_gang(data.task) else []
    for member in context.in_states(roles, *LIVE) or [data]:
        if member.state in LIVE and member.state is not S.STOPPING:
            tasks.ask_to_save(context, member, what, container.noticed_until)


def _on_checkpoint(context: EventContext, event: CheckpointSaved) -> None:
    state = context.state
    data = state.tasks.get(str(event.task))
    if data is None or event.attempt != data.attempt:
        return  # of an attempt that is over: its successor does not restore it
    if data.saved is not None and (len(event.name), event.name) <= (len(data.saved), data.saved):
        return  # told again, to a new coordinator that might not have heard of it
    data.saved = event.name
    data.save_request = None
    restart.progressed(context.gang_unit)
    if (own := state.units.get(str(event.task))) is not None:
        restart.progressed(own)
    newest = state.checkpoint or ""
    state.checkpoint = max(newest, event.name, key=lambda name: (len(name), name))
    context.record("checkpoint-saved", f"{event.task} saved checkpoint {event.name}", data=data)


def _on_hung(context: EventContext, event: TaskHung) -> None:
    """Take the stacks of everybody first: they are the evidence."""
    state = context.state
    data = state.tasks.get(str(event.task))
    if data is None or data.attempt != event.attempt or data.state is not S.RUNNING:
        return
    if state.hang is not None or state.phase not in WORKING:
        return
    alone = context.each() or context.alone(data) or context.role(data.task).restart is Restart.TASK
    running = [data] if alone else context.in_states(context.gang(), S.RUNNING)
    context.record(
        "hang",
        f"no progress for {event.idle_s:.0f}s (seen at {data.task}): taking the stacks of "
        f"{len(running)} task{'s' * (len(running) != 1)}",
        level=Level.ERROR,
        data=data,
    )
    state.hang = HangCheck(
        task=data.task,
        attempt=data.attempt,
        idle_s=event.idle_s,
        awaiting=[member.task for member in running],
        stacks=[],
        until=context.now + STACKS_S,
    )
    for member in running:
        tasks.dump_stacks(context, member)


def _on_stacks(context: EventContext, event: StacksTaken) -> None:
    check = context.state.hang
    if check is None or event.task not in check.awaiting:
        return
    check.awaiting.remove(event.task)
    note = StackNote(
        task=event.task, innermost=event.innermost, path=event.path, problem=event.problem
    )
    check.stacks.append(note)


def _on_stop(context: EventContext, event: StopRequested) -> None:
    """Stop gracefully; a firm request, first or later, is without grace and without saving."""
    state = context.state
    if state.phase is JobPhase.FINISHED:
        return
    if state.phase is not JobPhase.FINISHING:
        state.firm = event.firm
        why = f"stopped by {event.by}" + (f": {event.reason}" if event.reason else "")
        try:
            failed = restart.judge_at_stop(context)
        except restart.JobMustEnd as end:
            job_completion.finish(context, Outcome.FAILED, end.reason, end.advice)
        else:
            why += f" after {failed}" if failed else ""
            job_completion.finish(context, Outcome.STOPPED, why)
    elif event.firm and not state.firm:
        # Said again without being firm, it is the same wish: clients repeat what may be lost.
        state.firm = True
        context.record("stop-firm", f"{event.by} wants it stopped at once")
        job_completion.stop_all(context)


def _on_time(context: EventContext, event: TimePassed) -> None:
    """What has come due is looked at by `reconcile`."""
    if event.late_s:
        _give_more_time(context, context.now - event.late_s, lambda at: at + event.late_s)


_RULES: Mapping[type[Any], Callable[[EventContext, Any], None]] = {
    JobSubmitted: _on_submitted,
    CoordinatorStarted: _on_coordinator_started,
    ContainerGranted: containers.on_granted,
    RequestRefused: _on_refused,
    ContainerEnded: containers.on_ended,
    PreemptionNoticed: _on_preemption,
    AgentRegistered: containers.on_registered,
    AgentDisconnected: containers.on_disconnected,
    AgentSilent: containers.on_silent,
    TaskHung: _on_hung,
    StacksTaken: _on_stacks,
    CheckpointSaved: _on_checkpoint,
    StopRequested: _on_stop,
    TimePassed: _on_time,
}
