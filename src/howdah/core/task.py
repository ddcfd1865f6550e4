"""A task's life: one table (state, event) -> function, and what the reconciler has done with it.

Nobody else moves a task or writes the link between a task and its container. A pair that the table
does not have changes nothing: the event speaks of what is over, or of what was known before.
What goes wrong here is only reported (`EventContext.reports`); what follows is decided in `restart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from howdah.core.causes import RULES, FailureCause, describe_exit, name_and, of_exit
from howdah.core.event_context import EventContext
from howdah.core.messages import (
    AgentRegistered,
    ContainerGranted,
    DumpStacks,
    Exit,
    Held,
    HeldPhase,
    LaunchAgent,
    Level,
    NotifyCheckpoint,
    PrepareTask,
    ReleaseContainer,
    StartTask,
    StopTask,
    TaskExited,
    TaskJoined,
    TaskPrepared,
    TaskSaving,
    TaskStarted,
    Topology,
)
from howdah.core.plan import Join
from howdah.core.ranks import planned, topology, with_own
from howdah.core.state import (
    LIVE,
    OVER,
    ContainerData,
    FailureReport,
    JobPhase,
    SaveRequest,
    TaskData,
    TaskState,
)

S = TaskState
ENDING_MARGIN_S = 15.0
"""An attempt that has not ended this long after its grace, or its time to save, loses its container."""
_SILENT_EXIT = Exit(failed_to_start="its agent does not say how it ended")


# -- the link between a task and its container ------------------------------------------------------


def granted(context: EventContext, data: TaskData, event: ContainerGranted) -> None:
    """It has a container: have an agent started there."""
    context.set_request(data, None)
    data.container_id = event.container_id
    container = ContainerData(
        container_id=event.container_id, node=event.node, task=data.task, granted=context.now
    )
    context.state.containers[event.container_id] = container
    context.move(data, S.LAUNCHING, "a container was granted")
    context.emit(LaunchAgent(container_id=event.container_id, task=data.task))
    limit = context.role(data.task).registration_s
    context.set_time(container, "deadline", None if limit is None else context.now + limit)


def detach(context: EventContext, data: TaskData, container: ContainerData) -> None:
    """The task has this container no longer; it stays on the books until nothing lives in it."""
    data.container_id, data.pids = None, ()
    data.ports = ()  # they were that container's
    container.task, container.served = None, data.task
    # An agent that never registered is refused when it does: no program of ours will run there.
    container.former = data.task if container.registered else None
    container.former_attempt, container.over = data.attempt, data.state not in LIVE
    context.index.given_up.add(container.container_id)
    context.set_time(container, "deadline", None)
    context.touch(data)


def give_back(context: EventContext, container: ContainerData) -> None:
    """Have a container's processes ended and itself taken back."""
    container.released = True
    context.emit(ReleaseContainer(container_id=container.container_id))
    if context.state.phase is JobPhase.FINISHING:
        context.set_time(container, "deadline", context.now + context.plan.give_back_s)
    elif container.silent:
        context.set_time(container, "deadline", container.heard + context.plan.lease_s)


def release(context: EventContext, data: TaskData, why: str) -> None:
    """Give a container back in which no attempt is held. Its task waits for another, or is over."""
    container = context.container(data)
    assert container is not None and data.state not in LIVE
    detach(context, data, container)
    container.former = None
    give_back(context, container)
    if data.state not in OVER:
        context.move(data, S.WAITING, why)


def lose(
    context: EventContext,
    data: TaskData,
    container: ContainerData,
    cause: FailureCause,
    detail: str,
    *,
    at_fault: bool = True,
) -> None:
    """A task has lost its container, with whatever ran in it; ``at_fault``: as its node's fault,
    where such a loss is one."""
    before = data.state
    detach(context, data, container)
    what = f"{data.task} lost its container on {container.node} ({cause.value})"
    what += f": {detail}" if detail else ""
    context.record("container-lost", what, level=Level.WARNING, data=data, node=container.node)
    if RULES[cause].node_fault and at_fault and not context.optional(data):
        context.state.node_faults.setdefault(container.node, []).append(context.now)
    report = _report(context, data, cause, what, container, None)
    if before in LIVE:
        context.move(data, S.ENDED, what)
        agent_only = RULES[cause].strength <= RULES[FailureCause.AGENT_LOST].strength
        if not data.reported and not (before is S.STOPPING and agent_only):
            data.reported = True
            context.reports.append(report)
    elif before not in OVER:
        context.move(data, S.WAITING, what)
        context.losses.append(report)


def preempting(context: EventContext, container: ContainerData) -> bool:
    """Whether the backend has said, and not too long ago to matter, that it takes this container back."""
    return container.noticed_until is not None and not context.passed(container.noticed_until)


def give_up(context: EventContext, container: ContainerData, why: str) -> None:
    """Take a container for lost that the backend still has: give it back, its end is awaited."""
    if container.task is not None:
        cause = (
            FailureCause.PREEMPTED if preempting(context, container) else FailureCause.AGENT_LOST
        )
        lose(context, context.task(container.task), container, cause, why)
    give_back(context, container)


# -- what the reconciler wants ------------------------------------------------------------------------


def prepare(context: EventContext, data: TaskData, *, returns: bool) -> None:
    """Begin a new attempt; ``returns``: alone, into a gang that goes on."""
    role = context.role(data.task)
    data.ports = data.keep_ports = data.ports if role.sticky_ports and returns else ()
    if context.in_gang(data.task):
        context.set_awaited(data, True)
    data.attempt += 1
    data.generation = context.state.generation
    data.pids, data.exit, data.restored, data.reported = (), None, None, False
    data.trouble = ""
    data.save_request = None
    data.started = None
    context.set_joined(data, False)
    context.move(data, S.PREPARING, "a new attempt begins")
    _send_prepare(context, data)


def start(context: EventContext, data: TaskData) -> None:
    """Start a prepared task with the topology of its generation."""
    context.move(data, S.STARTING, "everyone it waits for is ready")
    limit = context.role(data.task).startup_s
    context.set_time(data, "deadline", None if limit is None else context.now + limit)
    _send_start(context, data)


def stop(context: EventContext, data: TaskData, why: str, *, grace_s: float, save_s: float) -> None:
    """Stop a task's attempt, whatever it is doing. Said again, only to be firmer."""
    assert data.container_id is not None
    saving = data.deadline if data.exit is not None else None
    if data.state is not S.STOPPING:
        context.move(data, S.STOPPING, why)
    context.emit(
        StopTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            grace_s=grace_s,
            save_s=save_s,
        )
    )
    if saving is None:  # saving is waited for once the agent says that it saves
        context.set_time(data, "deadline", context.now + grace_s + ENDING_MARGIN_S)
    else:
        context.set_time(data, "deadline", min(saving, context.now + save_s + ENDING_MARGIN_S))


def renew(context: EventContext, data: TaskData) -> None:
    """A task whose attempt is over is to run again, in its container or in another."""
    container = context.container(data)
    here = container is not None and container.registered
    context.move(data, S.IDLE if here else S.WAITING, "it is to be started again")


def dump_stacks(context: EventContext, data: TaskData) -> None:
    assert data.container_id is not None
    context.emit(DumpStacks(container_id=data.container_id, task=data.task, attempt=data.attempt))


def ask_to_save(context: EventContext, data: TaskData, reason: str, until: float) -> None:
    """Ask a program for a checkpoint, once it runs; it is of use until then."""
    data.save_request = SaveRequest(reason=reason, until=until)
    if data.state is S.RUNNING:
        _send_save_request(context, data, reason)


def settle_joined(context: EventContext, data: TaskData) -> None:
    """The task has met its peers, or needs them no more."""
    context.set_joined(data, True)
    if data.awaited:
        context.set_awaited(data, False)
    if data.state in (S.STARTING, S.RUNNING):
        context.set_time(data, "deadline", None)


def report_failure(
    context: EventContext, data: TaskData, cause: FailureCause, what: str, exit: Exit | None = None
) -> None:
    """Say what became of the task's attempt."""
    data.reported = True
    context.reports.append(_report(context, data, cause, what, context.container(data), exit))


# -- rows of the table ----------------------------------------------------------------------------


def _registered(context: EventContext, data: TaskData, event: AgentRegistered) -> None:
    data.host = event.host
    context.move(data, S.IDLE, "its agent registered")


def _registered_preparing(context: EventContext, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None:
        _send_prepare(context, data)  # the first one was lost on the way
    elif not _over(context, data, held):
        _on_prepared(context, data, _as_prepared(held))


def _registered_prepared(context: EventContext, data: TaskData, event: AgentRegistered) -> None:
    if event.held is None:
        _forgotten(context, data)
    else:
        _over(context, data, event.held)


def _registered_starting(context: EventContext, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None:
        _forgotten(context, data)
    elif held.phase is HeldPhase.PREPARED:
        _send_start(context, data)  # the first one was lost on the way
    elif not _over(context, data, held):
        _on_started(
            context, data, TaskStarted(task=data.task, attempt=data.attempt, pids=held.pids)
        )
        if held.joined:
            settle_joined(context, data)


def _registered_running(context: EventContext, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None or held.phase is HeldPhase.PREPARED:
        _forgotten(context, data)
    elif not _over(context, data, held):
        if held.joined:
            settle_joined(context, data)
        if context.state.hang is not None and data.task in context.state.hang.awaiting:
            dump_stacks(context, data)
        _ask_if_not_saved(context, data)


def _registered_stopping(context: EventContext, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None:
        dropped = Exit(detail="its agent holds it no longer")
        _on_stopped(context, data, TaskExited(task=data.task, attempt=data.attempt, exit=dropped))
    elif not _over(context, data, held):
        role = context.role(data.task)
        if context.state.phase is not JobPhase.FINISHING:
            grace_s, save_s = role.restart_grace_s, role.save_s
        else:
            grace_s, save_s = ending_limits(context, data)
        stop(context, data, "told again", grace_s=grace_s, save_s=save_s)


def _over(context: EventContext, data: TaskData, held: Held) -> bool:
    """Whether its programs have ended already, which is taken in here."""
    exit = held.exit or _SILENT_EXIT
    if held.phase is HeldPhase.EXITED:
        apply(context, data, TaskExited(task=data.task, attempt=data.attempt, exit=exit))
    elif held.phase is HeldPhase.SAVING:
        saving = TaskSaving(task=data.task, attempt=data.attempt, exit=exit, limit_s=held.save_s)
        apply(context, data, saving)
    else:
        return False
    return True


def _as_prepared(held: Held) -> TaskPrepared:
    return TaskPrepared(
        task=held.task,
        attempt=held.attempt,
        host=held.host,
        ports=held.ports,
        restored=held.restored,
    )


def _forgotten(context: EventContext, data: TaskData) -> None:
    what = f"{data.task}'s agent no longer knows of attempt {data.attempt}"
    report_failure(context, data, FailureCause.AGENT_LOST, what)
    context.move(data, S.ENDED, what)


def _on_prepared(context: EventContext, data: TaskData, event: TaskPrepared) -> None:
    data.host = event.host or data.host
    data.ports, data.restored = event.ports, event.restored
    if context.state.topology is not None and data.member:
        context.state.rewired = True  # it came back alone, and its address is known from now on
    context.move(data, S.PREPARED, "checkpoint restored, ports reserved")
    if event.restored:
        context.record(
            "checkpoint-restored",
            f"{data.task} restored checkpoint {event.restored}",
            data=data,
            checkpoint=event.restored,
        )


def _on_started(context: EventContext, data: TaskData, event: TaskStarted) -> None:
    data.pids, data.started = event.pids, context.now
    if context.state.started is None:
        context.state.started = context.now
    deadline = data.deadline
    context.move(data, S.RUNNING, "the program runs")
    context.set_time(data, "deadline", deadline)  # to join its peers, as before
    context.record(
        "task-started",
        f"{data.task} started on {data.host}",
        data=data,
        pids=list(event.pids),
        ports=list(data.ports),
    )
    if context.role(data.task).join is Join.NOW:
        settle_joined(context, data)
    _ask_if_not_saved(context, data)


def _note_pids(context: EventContext, data: TaskData, event: TaskStarted) -> None:
    data.pids = event.pids


def _on_joined(context: EventContext, data: TaskData, event: TaskJoined) -> None:
    if not data.joined:
        settle_joined(context, data)


def _on_saving(context: EventContext, data: TaskData, event: TaskSaving) -> None:
    """Its programs have ended. A failure is known now, not only when all is saved."""
    if data.state is S.STOPPING:
        if _out_of_memory(data, event.exit):
            _fail(context, data, event.exit)
    elif _failed(event.exit) and not event.exit.stopped:
        _fail(context, data, event.exit)
        context.move(data, S.STOPPING, "it failed; what it left is being saved")
    # Without an exit of its own the attempt counts as running still: see `overdue`.
    known = data.exit is not None and data.trouble != event.trouble
    data.exit, data.pids, data.trouble = event.exit, (), event.trouble
    context.set_time(data, "deadline", context.now + event.limit_s + ENDING_MARGIN_S)
    if known:
        return  # its agent notes what keeps it from saving
    context.record(
        "task-saving",
        f"{data.task} is saving its checkpoint and outputs, up to {_duration(event.limit_s)}",
        data=data,
        limit_s=event.limit_s,
    )


def _on_exited(context: EventContext, data: TaskData, event: TaskExited) -> None:
    """A program ended that was not told to."""
    done = event.exit
    data.exit, data.pids = done, ()
    if done.stopped and not done.out_of_memory:
        _agent_ended(context, data)
    elif _failed(done):
        _fail(context, data, done)
        context.move(data, S.ENDED, describe_exit(done, context.role(data.task).run_s))
    else:
        _succeed(context, data, done)


def _on_not_started(context: EventContext, data: TaskData, event: TaskExited) -> None:
    """An attempt is over before its program ran."""
    done = event.exit
    data.exit, data.pids = done, ()
    if done.stopped and not done.out_of_memory:
        _agent_ended(context, data)
        return
    # One that is gone without a word after it was prepared was dropped by its agent.
    dropped = data.state is S.PREPARED and not done.failed_to_start
    _fail(context, data, done, FailureCause.AGENT_LOST if dropped else None)
    context.move(data, S.ENDED, describe_exit(done))


def _on_stopped(context: EventContext, data: TaskData, event: TaskExited) -> None:
    """A program ended that was told to. Whether that is why, its agent knows.

    The cause of a gang's end may be heard after what followed from it: a peer's error is sent first,
    and when the killed program's own end is heard, it has been told to stop.
    """
    done, out_of_memory = event.exit, _out_of_memory(data, event.exit)
    data.exit, data.pids = done, ()
    by_itself = done.stopped is False
    if by_itself and not _failed(done) and data.started is not None:
        _succeed(context, data, done)
        return
    judged = context.state.phase is JobPhase.FAILURE_WINDOW and context.in_gang(data.task)
    proven = out_of_memory or (by_itself and judged and not data.reported)
    if _failed(done) and proven:
        _fail(context, data, done)
    elif not data.reported:
        context.record("task-stopped", f"{data.task} was stopped", data=data, **_numbers(done))
    context.move(data, S.ENDED, describe_exit(done, context.role(data.task).run_s))


def _succeed(context: EventContext, data: TaskData, done: Exit) -> None:
    if done.answer is not None:
        context.state.answer = done.answer
    context.move(data, S.SUCCEEDED, "it ended with exit code 0")
    settle_joined(context, data)
    context.record("task-succeeded", f"{data.task} succeeded", data=data, exit_code=0)


def _fail(
    context: EventContext, data: TaskData, done: Exit, cause: FailureCause | None = None
) -> None:
    what = name_and(data.task, describe_exit(done, context.role(data.task).run_s))
    context.record("task-failed", what, level=Level.ERROR, data=data, **_numbers(done))
    report_failure(context, data, cause or of_exit(done), what, exit=done)


def _agent_ended(context: EventContext, data: TaskData) -> None:
    """Its agent ended it although nothing here wanted that: the agent is being ended.

    A resource manager that takes a container back does it so; its own word on why comes later, and
    is waited for. Until then the container is not given back: that would become the reason.
    """
    container = context.container(data)
    assert container is not None
    cause = FailureCause.PREEMPTED if preempting(context, container) else FailureCause.AGENT_LOST
    lose(context, data, container, cause, "its agent was told to end from outside", at_fault=False)
    container.over = True
    context.set_time(container, "deadline", context.now + context.plan.reconnect_s)


_Row = Callable[[EventContext, TaskData, Any], None]

TABLE: Mapping[tuple[TaskState, type[Any]], _Row] = {
    (S.WAITING, ContainerGranted): granted,
    (S.LAUNCHING, AgentRegistered): _registered,
    (S.PREPARING, AgentRegistered): _registered_preparing,
    (S.PREPARED, AgentRegistered): _registered_prepared,
    (S.STARTING, AgentRegistered): _registered_starting,
    (S.RUNNING, AgentRegistered): _registered_running,
    (S.STOPPING, AgentRegistered): _registered_stopping,
    (S.PREPARING, TaskPrepared): _on_prepared,
    (S.STARTING, TaskStarted): _on_started,
    (S.STOPPING, TaskStarted): _note_pids,
    (S.STARTING, TaskJoined): _on_joined,
    (S.RUNNING, TaskJoined): _on_joined,
    (S.STARTING, TaskSaving): _on_saving,
    (S.RUNNING, TaskSaving): _on_saving,
    (S.STOPPING, TaskSaving): _on_saving,
    (S.PREPARING, TaskExited): _on_not_started,
    (S.PREPARED, TaskExited): _on_not_started,
    (S.STARTING, TaskExited): _on_exited,
    (S.RUNNING, TaskExited): _on_exited,
    (S.STOPPING, TaskExited): _on_stopped,
}


def apply(context: EventContext, data: TaskData, event: Any) -> None:
    """Take in a fact about the task's present attempt or container."""
    kind: type[object] = event.__class__
    row = TABLE.get((data.state, kind))
    if row is not None:
        row(context, data, event)


# -- helpers --------------------------------------------------------------------------------------


def ending_limits(context: EventContext, data: TaskData) -> tuple[float, float]:
    """Grace and time to save when the job ends."""
    role = context.role(data.task)
    if context.state.firm:
        return 0.0, 0.0
    return role.grace_s, role.save_s


def _send_prepare(context: EventContext, data: TaskData) -> None:
    assert data.container_id is not None
    context.emit(
        PrepareTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            generation=data.generation,
            ports=context.role(data.task).ports,
            keep_ports=data.keep_ports,
            restore=context.state.checkpoint,
        )
    )


def _send_start(context: EventContext, data: TaskData) -> None:
    assert data.container_id is not None
    context.emit(
        StartTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            topology=_place(context, data),
            answer=context.state.answer,
        )
    )


def _ask_if_not_saved(context: EventContext, data: TaskData) -> None:
    request = data.save_request
    if request is not None and not context.passed(request.until):
        _send_save_request(context, data, request.reason)


def _send_save_request(context: EventContext, data: TaskData, reason: str) -> None:
    assert data.container_id is not None
    context.emit(
        NotifyCheckpoint(
            container_id=data.container_id, task=data.task, attempt=data.attempt, reason=reason
        )
    )


def _place(context: EventContext, data: TaskData) -> Topology:
    """The topology a task is started with: its gang's, or for one beside the gang, with it added.

    Servers that an earlier stage left running are in it, so that the present one finds them.
    """
    state = context.state
    if context.each() and context.in_gang(data.task):
        if state.topology is None:
            servers = [d for d in context.tasks(context.servers()) if d.member]
            state.topology = planned(context.plan, state.generation, context.gang(), servers)
        after = [context.plan.role(name) for name in context.role(data.task).after]
        started = [server for server in context.tasks(after) if server.ports]
        return with_own(context.plan, state.topology, context.gang(), data, started)
    members = (d for d in context.tasks([*context.gang(), *context.servers()]) if d.member)
    if not context.in_gang(data.task):
        return topology(context.plan, state.generation, [*members, data])
    if state.topology is None or state.rewired:
        state.topology = topology(context.plan, state.generation, list(members))
        state.rewired = False
    return state.topology


def _report(
    context: EventContext,
    data: TaskData,
    cause: FailureCause,
    what: str,
    container: ContainerData | None,
    exit: Exit | None,
) -> FailureReport:
    return FailureReport(
        task=data.task,
        attempt=data.attempt,
        generation=context.state.generation,
        cause=cause,
        time=context.now,
        what=what,
        node=container.node if container else None,
        container_id=container.container_id if container else None,
        exit=exit,
    )


def _out_of_memory(data: TaskData, exit: Exit) -> bool:
    """Whether that is what ended it, and not known yet."""
    return exit.out_of_memory and not (data.exit is not None and data.exit.out_of_memory)


def _failed(exit: Exit) -> bool:
    return exit.code != 0 or bool(exit.failed_to_start) or exit.out_of_memory


def _numbers(exit: Exit) -> dict[str, Any]:
    return {"exit_code": exit.code, "signal": exit.signal}


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"
