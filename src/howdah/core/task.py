"""A task's life: one table (state, event) -> function, and what the reconciler has done with it.

Nobody else moves a task or writes the link between a task and its container. A pair that the table
does not have changes nothing: the event speaks of what is over, or of what was known before.
What goes wrong here is only reported (`Turn.reports`); what follows is decided in `restart`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from howdah.core.causes import RULES, FailureCause, describe_exit, name_and, of_exit
from howdah.core.messages import (
    AgentRegistered,
    ContainerGranted,
    DumpStacks,
    Exit,
    Held,
    HeldPhase,
    LaunchAgent,
    Level,
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
    TaskData,
    TaskState,
)
from howdah.core.turn import Turn

S = TaskState
ENDING_MARGIN_S = 15.0
"""An attempt that has not ended this long after its grace, or its time to save, loses its container."""
GIVE_BACK_S = 30.0
"""At the job's end, a container whose end is not confirmed is not waited for longer."""
_SILENT_EXIT = Exit(failed_to_start="its agent does not say how it ended")


# -- the link between a task and its container ------------------------------------------------------


def granted(turn: Turn, data: TaskData, event: ContainerGranted) -> None:
    """It has a container: have an agent started there."""
    turn.set_request(data, None)
    data.container_id = event.container_id
    container = ContainerData(
        container_id=event.container_id, node=event.node, task=data.task, granted=turn.now
    )
    turn.state.containers[event.container_id] = container
    turn.move(data, S.LAUNCHING, "a container was granted")
    turn.emit(LaunchAgent(container_id=event.container_id, task=data.task))
    limit = turn.role(data.task).registration_s
    turn.set_time(container, "deadline", None if limit is None else turn.now + limit)


def detach(turn: Turn, data: TaskData, container: ContainerData) -> None:
    """The task has this container no longer; it stays on the books until nothing lives in it."""
    data.container_id, data.pids = None, ()
    data.ports = ()  # they were that container's
    container.task = None
    # An agent that never registered is refused when it does: no program of ours will run there.
    container.former = data.task if container.registered else None
    container.former_attempt, container.over = data.attempt, data.state not in LIVE
    turn.index.given_up.add(container.container_id)
    turn.set_time(container, "deadline", None)
    turn.touch(data)


def give_back(turn: Turn, container: ContainerData) -> None:
    """Have a container's processes ended and itself taken back."""
    container.released = True
    turn.emit(ReleaseContainer(container_id=container.container_id))
    if turn.state.phase is JobPhase.FINISHING:
        turn.set_time(container, "deadline", turn.now + GIVE_BACK_S)
    elif container.silent:
        turn.set_time(container, "deadline", container.heard + turn.plan.lease_s)


def release(turn: Turn, data: TaskData, why: str) -> None:
    """Give a container back in which no attempt is held. Its task waits for another, or is over."""
    container = turn.container(data)
    assert container is not None and data.state not in LIVE
    detach(turn, data, container)
    container.former = None
    give_back(turn, container)
    if data.state not in OVER:
        turn.move(data, S.WAITING, why)


def lose(
    turn: Turn,
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
    detach(turn, data, container)
    what = f"{data.task} lost its container on {container.node} ({cause.value})"
    what += f": {detail}" if detail else ""
    turn.record("container-lost", what, level=Level.WARNING, data=data, node=container.node)
    if RULES[cause].node_fault and at_fault and not turn.optional(data):
        turn.state.node_faults.setdefault(container.node, []).append(turn.now)
    report = _report(turn, data, cause, what, container, None)
    if before in LIVE:
        turn.move(data, S.ENDED, what)
        agent_only = RULES[cause].strength <= RULES[FailureCause.AGENT_LOST].strength
        if not data.reported and not (before is S.STOPPING and agent_only):
            data.reported = True
            turn.reports.append(report)
    elif before not in OVER:
        turn.move(data, S.WAITING, what)
        turn.losses.append(report)


def preempting(turn: Turn, container: ContainerData) -> bool:
    """Whether the backend has said, and not too long ago to matter, that it takes this container back."""
    return container.noticed_until is not None and not turn.passed(container.noticed_until)


def give_up(turn: Turn, container: ContainerData, why: str) -> None:
    """Take a container for lost that the backend still has: give it back, its end is awaited."""
    if container.task is not None:
        cause = FailureCause.PREEMPTED if preempting(turn, container) else FailureCause.AGENT_LOST
        lose(turn, turn.task(container.task), container, cause, why)
    give_back(turn, container)


# -- what the reconciler wants ------------------------------------------------------------------------


def prepare(turn: Turn, data: TaskData, *, returns: bool) -> None:
    """Begin a new attempt; ``returns``: alone, into a gang that goes on."""
    role = turn.role(data.task)
    data.ports = data.keep_ports = data.ports if role.sticky_ports and returns else ()
    if turn.in_gang(data.task):
        turn.set_awaited(data, True)
    data.attempt += 1
    data.generation = turn.state.generation
    data.pids, data.exit, data.restored, data.reported = (), None, None, False
    data.trouble = ""
    data.started = None
    turn.set_joined(data, False)
    turn.move(data, S.PREPARING, "a new attempt begins")
    _send_prepare(turn, data)


def start(turn: Turn, data: TaskData) -> None:
    """Start a prepared task with the topology of its generation."""
    turn.move(data, S.STARTING, "everyone it waits for is ready")
    limit = turn.role(data.task).startup_s
    turn.set_time(data, "deadline", None if limit is None else turn.now + limit)
    _send_start(turn, data)


def stop(turn: Turn, data: TaskData, why: str, *, grace_s: float, save_s: float) -> None:
    """Stop a task's attempt, whatever it is doing. Said again, only to be firmer."""
    assert data.container_id is not None
    saving = data.deadline if data.exit is not None else None
    if data.state is not S.STOPPING:
        turn.move(data, S.STOPPING, why)
    turn.emit(
        StopTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            grace_s=grace_s,
            save_s=save_s,
        )
    )
    if saving is None:  # saving is waited for once the agent says that it saves
        turn.set_time(data, "deadline", turn.now + grace_s + ENDING_MARGIN_S)
    else:
        turn.set_time(data, "deadline", min(saving, turn.now + save_s + ENDING_MARGIN_S))


def renew(turn: Turn, data: TaskData) -> None:
    """A task whose attempt is over is to run again, in its container or in another."""
    container = turn.container(data)
    here = container is not None and container.registered
    turn.move(data, S.IDLE if here else S.WAITING, "it is to be started again")


def dump_stacks(turn: Turn, data: TaskData) -> None:
    assert data.container_id is not None
    turn.emit(DumpStacks(container_id=data.container_id, task=data.task, attempt=data.attempt))


def settle_joined(turn: Turn, data: TaskData) -> None:
    """The task has met its peers, or needs them no more."""
    turn.set_joined(data, True)
    if data.awaited:
        turn.set_awaited(data, False)
    if data.state in (S.STARTING, S.RUNNING):
        turn.set_time(data, "deadline", None)


def report_failure(
    turn: Turn, data: TaskData, cause: FailureCause, what: str, exit: Exit | None = None
) -> None:
    """Say what became of the task's attempt."""
    data.reported = True
    turn.reports.append(_report(turn, data, cause, what, turn.container(data), exit))


# -- rows of the table ----------------------------------------------------------------------------


def _registered(turn: Turn, data: TaskData, event: AgentRegistered) -> None:
    data.host = event.host
    turn.move(data, S.IDLE, "its agent registered")


def _registered_preparing(turn: Turn, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None:
        _send_prepare(turn, data)  # the first one was lost on the way
    elif not _over(turn, data, held):
        _on_prepared(turn, data, _as_prepared(held))


def _registered_prepared(turn: Turn, data: TaskData, event: AgentRegistered) -> None:
    if event.held is None:
        _forgotten(turn, data)
    else:
        _over(turn, data, event.held)


def _registered_starting(turn: Turn, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None:
        _forgotten(turn, data)
    elif held.phase is HeldPhase.PREPARED:
        _send_start(turn, data)  # the first one was lost on the way
    elif not _over(turn, data, held):
        _on_started(turn, data, TaskStarted(task=data.task, attempt=data.attempt, pids=held.pids))
        if held.joined:
            settle_joined(turn, data)


def _registered_running(turn: Turn, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None or held.phase is HeldPhase.PREPARED:
        _forgotten(turn, data)
    elif not _over(turn, data, held):
        if held.joined:
            settle_joined(turn, data)
        if turn.state.hang is not None and data.task in turn.state.hang.awaiting:
            dump_stacks(turn, data)


def _registered_stopping(turn: Turn, data: TaskData, event: AgentRegistered) -> None:
    held = event.held
    if held is None:
        dropped = Exit(detail="its agent holds it no longer")
        _on_stopped(turn, data, TaskExited(task=data.task, attempt=data.attempt, exit=dropped))
    elif not _over(turn, data, held):
        role = turn.role(data.task)
        if turn.state.phase is not JobPhase.FINISHING:
            grace_s, save_s = role.restart_grace_s, role.save_s
        else:
            grace_s, save_s = ending_limits(turn, data)
        stop(turn, data, "told again", grace_s=grace_s, save_s=save_s)


def _over(turn: Turn, data: TaskData, held: Held) -> bool:
    """Whether its programs have ended already, which is taken in here."""
    exit = held.exit or _SILENT_EXIT
    if held.phase is HeldPhase.EXITED:
        apply(turn, data, TaskExited(task=data.task, attempt=data.attempt, exit=exit))
    elif held.phase is HeldPhase.SAVING:
        saving = TaskSaving(task=data.task, attempt=data.attempt, exit=exit, limit_s=held.save_s)
        apply(turn, data, saving)
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


def _forgotten(turn: Turn, data: TaskData) -> None:
    what = f"{data.task}'s agent no longer knows of attempt {data.attempt}"
    report_failure(turn, data, FailureCause.AGENT_LOST, what)
    turn.move(data, S.ENDED, what)


def _on_prepared(turn: Turn, data: TaskData, event: TaskPrepared) -> None:
    data.host = event.host or data.host
    data.ports, data.restored = event.ports, event.restored
    if turn.state.topology is not None and data.member:
        turn.state.rewired = True  # it came back alone, and its address is known from now on
    turn.move(data, S.PREPARED, "checkpoint restored, ports reserved")
    if event.restored:
        turn.record(
            "checkpoint-restored",
            f"{data.task} restored checkpoint {event.restored}",
            data=data,
            checkpoint=event.restored,
        )


def _on_started(turn: Turn, data: TaskData, event: TaskStarted) -> None:
    data.pids, data.started = event.pids, turn.now
    if turn.state.started is None:
        turn.state.started = turn.now
    deadline = data.deadline
    turn.move(data, S.RUNNING, "the program runs")
    turn.set_time(data, "deadline", deadline)  # to join its peers, as before
    turn.record(
        "task-started",
        f"{data.task} started on {data.host}",
        data=data,
        pids=list(event.pids),
        ports=list(data.ports),
    )
    if turn.role(data.task).join is Join.NOW:
        settle_joined(turn, data)


def _note_pids(turn: Turn, data: TaskData, event: TaskStarted) -> None:
    data.pids = event.pids


def _on_joined(turn: Turn, data: TaskData, event: TaskJoined) -> None:
    if not data.joined:
        settle_joined(turn, data)


def _on_saving(turn: Turn, data: TaskData, event: TaskSaving) -> None:
    """Its programs have ended. A failure is known now, not only when all is saved."""
    if data.state is S.STOPPING:
        if _out_of_memory(data, event.exit):
            _fail(turn, data, event.exit)
    elif _failed(event.exit) and not event.exit.stopped:
        _fail(turn, data, event.exit)
        turn.move(data, S.STOPPING, "it failed; what it left is being saved")
    # Without an exit of its own the attempt counts as running still: see `overdue`.
    known = data.exit is not None and data.trouble != event.trouble
    data.exit, data.pids, data.trouble = event.exit, (), event.trouble
    turn.set_time(data, "deadline", turn.now + event.limit_s + ENDING_MARGIN_S)
    if known:
        return  # its agent notes what keeps it from saving
    turn.record(
        "task-saving",
        f"{data.task} is saving its checkpoint and outputs, up to {_duration(event.limit_s)}",
        data=data,
        limit_s=event.limit_s,
    )


def _on_exited(turn: Turn, data: TaskData, event: TaskExited) -> None:
    """A program ended that was not told to."""
    done = event.exit
    data.exit, data.pids = done, ()
    if done.stopped and not done.out_of_memory:
        _agent_ended(turn, data)
    elif _failed(done):
        _fail(turn, data, done)
        turn.move(data, S.ENDED, describe_exit(done, turn.role(data.task).run_s))
    else:
        _succeed(turn, data, done)


def _on_not_started(turn: Turn, data: TaskData, event: TaskExited) -> None:
    """An attempt is over before its program ran."""
    done = event.exit
    data.exit, data.pids = done, ()
    if done.stopped and not done.out_of_memory:
        _agent_ended(turn, data)
        return
    # One that is gone without a word after it was prepared was dropped by its agent.
    dropped = data.state is S.PREPARED and not done.failed_to_start
    _fail(turn, data, done, FailureCause.AGENT_LOST if dropped else None)
    turn.move(data, S.ENDED, describe_exit(done))


def _on_stopped(turn: Turn, data: TaskData, event: TaskExited) -> None:
    """A program ended that was told to. Whether that is why, its agent knows.

    The cause of a gang's end may be heard after what followed from it: a peer's error is sent first,
    and when the killed program's own end is heard, it has been told to stop.
    """
    done, out_of_memory = event.exit, _out_of_memory(data, event.exit)
    data.exit, data.pids = done, ()
    by_itself = done.stopped is False
    if by_itself and not _failed(done) and data.started is not None:
        _succeed(turn, data, done)
        return
    judged = turn.state.phase is JobPhase.FAILURE_WINDOW and turn.in_gang(data.task)
    proven = out_of_memory or (by_itself and judged and not data.reported)
    if _failed(done) and proven:
        _fail(turn, data, done)
    elif not data.reported:
        turn.record("task-stopped", f"{data.task} was stopped", data=data, **_numbers(done))
    turn.move(data, S.ENDED, describe_exit(done, turn.role(data.task).run_s))


def _succeed(turn: Turn, data: TaskData, done: Exit) -> None:
    if done.answer is not None:
        turn.state.answer = done.answer
    turn.move(data, S.SUCCEEDED, "it ended with exit code 0")
    settle_joined(turn, data)
    turn.record("task-succeeded", f"{data.task} succeeded", data=data, exit_code=0)


def _fail(turn: Turn, data: TaskData, done: Exit, cause: FailureCause | None = None) -> None:
    what = name_and(data.task, describe_exit(done, turn.role(data.task).run_s))
    turn.record("task-failed", what, level=Level.ERROR, data=data, **_numbers(done))
    report_failure(turn, data, cause or of_exit(done), what, exit=done)


def _agent_ended(turn: Turn, data: TaskData) -> None:
    """Its agent ended it although nothing here wanted that: the agent is being ended.

    A resource manager that takes a container back does it so; its own word on why comes later, and
    is waited for. Until then the container is not given back: that would become the reason.
    """
    container = turn.container(data)
    assert container is not None
    cause = FailureCause.PREEMPTED if preempting(turn, container) else FailureCause.AGENT_LOST
    lose(turn, data, container, cause, "its agent was told to end from outside", at_fault=False)
    container.over = True
    turn.set_time(container, "deadline", turn.now + turn.plan.reconnect_s)


_Row = Callable[[Turn, TaskData, Any], None]

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


def apply(turn: Turn, data: TaskData, event: Any) -> None:
    """Take in a fact about the task's present attempt or container."""
    kind: type[object] = event.__class__
    row = TABLE.get((data.state, kind))
    if row is not None:
        row(turn, data, event)


# -- helpers --------------------------------------------------------------------------------------


def ending_limits(turn: Turn, data: TaskData) -> tuple[float, float]:
    """Grace and time to save when the job ends."""
    role = turn.role(data.task)
    if turn.state.firm:
        return 0.0, 0.0
    return role.grace_s, role.save_s


def _send_prepare(turn: Turn, data: TaskData) -> None:
    assert data.container_id is not None
    turn.emit(
        PrepareTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            generation=data.generation,
            ports=turn.role(data.task).ports,
            keep_ports=data.keep_ports,
            restore=turn.state.checkpoint,
        )
    )


def _send_start(turn: Turn, data: TaskData) -> None:
    assert data.container_id is not None
    turn.emit(
        StartTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            topology=_place(turn, data),
            answer=turn.state.answer,
        )
    )


def _place(turn: Turn, data: TaskData) -> Topology:
    """The topology a task is started with: its gang's, or for one beside the gang, with it added.

    Servers that an earlier stage left running are in it, so that the present one finds them.
    """
    state = turn.state
    if turn.each() and turn.in_gang(data.task):
        if state.topology is None:
            servers = [d for d in turn.tasks(turn.servers()) if d.member]
            state.topology = planned(turn.plan, state.generation, turn.gang(), servers)
        after = [turn.plan.role(name) for name in turn.role(data.task).after]
        started = [server for server in turn.tasks(after) if server.ports]
        return with_own(turn.plan, state.topology, turn.gang(), data, started)
    members = (d for d in turn.tasks([*turn.gang(), *turn.servers()]) if d.member)
    if not turn.in_gang(data.task):
        return topology(turn.plan, state.generation, [*members, data])
    if state.topology is None or state.rewired:
        state.topology = topology(turn.plan, state.generation, list(members))
        state.rewired = False
    return state.topology


def _report(
    turn: Turn,
    data: TaskData,
    cause: FailureCause,
    what: str,
    container: ContainerData | None,
    exit: Exit | None,
) -> FailureReport:
    return FailureReport(
        task=data.task,
        attempt=data.attempt,
        generation=turn.state.generation,
        cause=cause,
        time=turn.now,
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
