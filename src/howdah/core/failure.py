"""Signs of failure: a program's exit, a container's end, an agent that is gone.

Each is turned into evidence (`howdah.core.settling.accuse`), or into a new request where nothing
had run yet.
"""

from __future__ import annotations

from typing import Any

from howdah.core import completion, containers, finish, gang
from howdah.core.causes import (
    RULES,
    FailureCause,
    describe_exit,
    name_and,
    of_container,
    of_exit,
)
from howdah.core.messages import (
    AgentDisconnected,
    AgentSilent,
    ContainerEnded,
    Exit,
    Level,
    ReleaseContainer,
    TaskExited,
)
from howdah.core.settling import accuse
from howdah.core.state import (
    LIVE,
    OVER,
    UP,
    ContainerData,
    JobPhase,
    Outcome,
    TaskData,
    TaskState,
)
from howdah.core.turn import Turn

S = TaskState


def on_exited(turn: Turn, event: TaskExited) -> None:
    data = turn.find(event.task, event.attempt)
    if data is None:
        return
    before, done = data.state, event.exit
    data.exit, data.pids = done, ()
    if done.stopped and before is not S.STOPPING and not done.out_of_memory:
        _agent_ended(turn, data)
        return
    clean = done.code == 0 and not done.failed_to_start and before in UP
    if clean:
        if done.answer is not None:
            turn.state.answer = done.answer
        turn.move(data, S.SUCCEEDED, "it ended with exit code 0")
        gang.joined(turn, data)
        turn.record("task-succeeded", f"{data.task} succeeded", data=data, exit_code=0)
        if turn.state.phase is not JobPhase.FINISHING:
            completion.after_success(turn, data)
        return
    what = describe_exit(done, turn.role(data.task).run_s)
    turn.move(data, S.ENDED, what)
    if before is S.STOPPING and not _by_itself(turn, data, done):
        turn.record("task-stopped", f"{data.task} was stopped", data=data, **_numbers(done))
        return
    turn.record(
        "task-failed",
        name_and(data.task, what),
        level=Level.ERROR,
        data=data,
        **_numbers(done),
    )
    # An attempt that never started and is gone without a word was dropped by its agent.
    dropped = before is S.PREPARED and not done.failed_to_start
    cause = FailureCause.AGENT_LOST if dropped else of_exit(done)
    accuse(turn, data, cause, name_and(data.task, what), exit=done)


def _by_itself(turn: Turn, data: TaskData, done: Exit) -> bool:
    """Whether the end of a task that was told to stop is a sign nevertheless.

    The cause of a gang's end may be heard after its echo: a peer's error is sent first, and when
    the killed program's own end is told, it has been told to stop. Its agent knows which was first.
    """
    if done.out_of_memory:
        return True
    failed = done.code != 0 or bool(done.failed_to_start)
    judged = turn.state.phase is JobPhase.SETTLING and turn.in_gang(data.task)
    return failed and done.stopped is False and judged


def _agent_ended(turn: Turn, data: TaskData) -> None:
    """Its agent ended it although nobody here wanted that: somebody ends the agent.

    A resource manager that takes a container back does it so; its own word on why comes later, and
    is waited for. Until then the container is not given back: that would become the reason.
    """
    container = turn.container(data)
    assert container is not None
    container.task = None
    turn.set_timer(f"reconnect:{container.container_id}", turn.plan.reconnect_s)
    cause = FailureCause.PREEMPTED if container.preempting else FailureCause.AGENT_LOST
    lose(turn, data, container, cause, "its agent was told to end from outside", at_fault=False)


def on_forgotten(turn: Turn, data: TaskData) -> None:
    """Its agent came back without the attempt."""
    what = f"{data.task}'s agent no longer knows of attempt {data.attempt}"
    turn.move(data, S.ENDED, what)
    accuse(turn, data, FailureCause.AGENT_LOST, what)


def on_container_ended(turn: Turn, event: ContainerEnded) -> None:
    container = turn.state.containers.pop(event.container_id, None)
    if container is None:
        return
    turn.clear_timer(f"registration:{event.container_id}", f"reconnect:{event.container_id}")
    if container.task is None:
        _strengthen(turn, container, event)
        return
    data = turn.state.tasks[str(container.task)]
    cause = of_container(event.kind, container.preempting)
    if cause is FailureCause.AGENT_LOST and not container.registered:
        cause = FailureCause.LAUNCH_FAILED
    lose(turn, data, container, cause, event.detail)


def _strengthen(turn: Turn, container: ContainerData, event: ContainerEnded) -> None:
    """The backend's own word on a container that was already given up may be the better one."""
    cause = of_container(event.kind, container.preempting)
    for sign in turn.state.reports:
        own = sign.container_id == container.container_id
        if sign.cause is FailureCause.AGENT_LOST and (own or sign.node == container.node):
            if RULES[cause].strength > RULES[sign.cause].strength:
                sign.cause = cause
                sign.what += f" ({event.detail or cause.value})"


def on_disconnected(turn: Turn, event: AgentDisconnected) -> None:
    container = turn.state.containers.get(event.container_id)
    if container is None or not container.connected:
        return
    container.connected = False
    turn.set_timer(f"reconnect:{event.container_id}", turn.plan.reconnect_s)


def on_silent(turn: Turn, event: AgentSilent) -> None:
    container = turn.state.containers.get(event.container_id)
    if container is not None and container.connected:
        give_up(turn, container, f"its agent was silent for {event.silent_s:.0f}s")


def on_reconnect_due(turn: Turn, container_id: str) -> None:
    container = turn.state.containers.get(container_id)
    if container is not None and not container.connected:
        give_up(turn, container, "its agent's connection was lost and did not come back")


def on_registration_due(turn: Turn, container_id: str) -> None:
    container = turn.state.containers.get(container_id)
    if container is None or container.registered or container.task is None:
        return
    limit = turn.role(container.task).registration_s
    data = turn.state.tasks[str(container.task)]
    container.task = None
    turn.emit(ReleaseContainer(container_id=container_id))
    lose(
        turn,
        data,
        container,
        FailureCause.LAUNCH_FAILED,
        f"its agent did not register in {limit:g}s",
    )


def give_up(turn: Turn, container: ContainerData, why: str) -> None:
    """Take a container for lost that the backend still has: give it back, its end is awaited."""
    task, container.task = container.task, None
    turn.clear_timer(f"reconnect:{container.container_id}")
    turn.emit(ReleaseContainer(container_id=container.container_id))
    if task is not None:
        cause = FailureCause.PREEMPTED if container.preempting else FailureCause.AGENT_LOST
        lose(turn, turn.state.tasks[str(task)], container, cause, why)


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
    what = f"{data.task} lost its container on {container.node} ({cause.value})"
    what += f": {detail}" if detail else ""
    data.container_id, data.pids = None, ()
    turn.record("container-lost", what, level=Level.WARNING, data=data, node=container.node)
    if RULES[cause].node_fault and at_fault:
        faults = turn.state.node_faults
        faults[container.node] = faults.get(container.node, 0) + 1
    if before in OVER or before is S.WAITING:
        return
    if before in LIVE:
        turn.move(data, S.ENDED, what)
        if (
            before is not S.STOPPING
            or RULES[cause].strength > RULES[FailureCause.AGENT_LOST].strength
        ):
            accuse(turn, data, cause, what, container=container)
        return
    # No program ran in it yet: another container will do, unless that goes on for ever.
    turn.move(data, S.WAITING, what)
    if turn.state.phase in (JobPhase.FINISHING, JobPhase.SETTLING, JobPhase.RESTARTING):
        return
    turn.state.uncharged += 1
    if turn.state.uncharged > turn.plan.uncharged_limit:
        finish.begin(turn, Outcome.FAILED, f"{what}; too many in a row", advice=RULES[cause].advice)
        return
    if turn.state.uncharged > 2 and "backoff" not in turn.state.timers:
        delay = turn.plan.backoff_s * 2 ** min(turn.state.uncharged - 3, 6)
        turn.set_timer("backoff", min(delay, turn.plan.backoff_max_s) * (0.5 + turn.jitter()))
    containers.request_missing(turn)


def on_settle_max_due(turn: Turn) -> None:
    """Some survivor will not end: its container goes."""
    for data in turn.tasks(turn.gang()):
        container = turn.container(data)
        if data.state in LIVE and container is not None:
            give_up(turn, container, "its attempt could not be ended")


def _numbers(exit: Exit) -> dict[str, Any]:
    return {"exit_code": exit.code, "signal": exit.signal}
