"""Containers: asking for them, and whether anything may still live in one that was given up.

A container that is given up stays on the books until nothing can run in it: its end is proven, its
agent has closed its connection, or the agent's lease is over since it was last heard. Until then no
successor of its task starts (`may_live`).
"""

from __future__ import annotations

from collections.abc import Iterable

from howdah.core import task as tasks
from howdah.core.causes import RULES, FailureCause, of_container
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    AgentSilent,
    CancelRequests,
    ContainerEnded,
    ContainerGranted,
    ContainerRequest,
    CoordinatorStarted,
    HeldPhase,
    LaunchAgent,
    Level,
    ReleaseContainer,
    RequestContainers,
    StopTask,
    TaskExited,
)
from howdah.core.state import ContainerData, FailureReport, JobPhase, TaskData
from howdah.core.turn import Turn

SECONDS_AN_AGENT = 0.05
"""Added to the take-over's patience: over ten times what a handshake costs the coordinator."""


# -- asking ---------------------------------------------------------------------------------------


def request(turn: Turn, wanted: Iterable[TaskData]) -> None:
    """Ask for a container for each of these tasks, none of which has asked before."""
    state = turn.state
    requests: list[ContainerRequest] = []
    for data in wanted:
        turn.set_request(data, state.next_request)
        state.requests[state.next_request] = data.task
        requests.append(ContainerRequest(request_id=state.next_request, role=data.task.role))
        state.next_request += 1
    if requests:
        _choose_avoided(turn)
        turn.emit(RequestContainers(requests=tuple(requests), avoid_nodes=state.avoided))


def _choose_avoided(turn: Turn) -> None:
    """Nodes with several recent faults."""
    state, limit = turn.state, turn.plan.node_faults
    since = turn.now - turn.plan.node_fault_s
    for node, faults in list(state.node_faults.items()):
        recent = [at for at in faults if at > since][-limit:]
        if recent:
            state.node_faults[node] = recent
        else:
            del state.node_faults[node]
    state.avoided = tuple(n for n, faults in state.node_faults.items() if len(faults) >= limit)
    state.avoided_until = turn.now + turn.plan.avoid_s if state.avoided else None


def forgive(turn: Turn) -> None:
    """What could not be had without the avoided nodes is asked for again with them."""
    state = turn.state
    if not turn.passed(state.avoided_until):
        return
    state.avoided_until = None
    if state.requests:
        for node in state.avoided:
            state.node_faults.pop(node, None)
        cancel_requests(turn)


def cancel_requests(turn: Turn) -> None:
    """Take all outstanding requests back."""
    state = turn.state
    if state.requests:
        turn.emit(CancelRequests(request_ids=tuple(state.requests)))
    for task in state.requests.values():
        turn.set_request(turn.task(task), None)
    state.requests.clear()


def on_granted(turn: Turn, event: ContainerGranted) -> None:
    state = turn.state
    task = state.requests.pop(event.request_id, None)
    if task is not None:
        tasks.apply(turn, turn.task(task), event)
        return
    # Surplus, or the request was cancelled meanwhile: on the books until it has ended.
    if event.container_id in state.containers:
        return
    if state.phase is JobPhase.FINISHED:
        turn.emit(ReleaseContainer(container_id=event.container_id))
        return
    _take_unknown(turn, event.container_id, event.node)


def _take_unknown(turn: Turn, container_id: str, node: str) -> None:
    container = ContainerData(container_id=container_id, node=node, task=None, granted=turn.now)
    turn.state.containers[container_id] = container
    turn.index.given_up.add(container_id)
    tasks.give_back(turn, container)


# -- what becomes of one --------------------------------------------------------------------------


def may_live(container: ContainerData) -> bool:
    """Whether a program that was started in a given-up container may still run."""
    if container.former is None or container.over:
        return False
    return container.connected or container.silent


def still_living(turn: Turn) -> list[ContainerData]:
    """Given-up containers in which programs may still run."""
    given_up = map(turn.state.containers.__getitem__, sorted(turn.index.given_up))
    return [container for container in given_up if may_live(container)]


def on_ended(turn: Turn, event: ContainerEnded) -> None:
    container = turn.state.containers.get(event.container_id)
    if container is None:
        return
    if container.task is None:
        _strengthen(turn, container, event)
    else:
        if not event.proven and container.registered and not container.connected:
            container.silent = True  # it was given time to come back, and neither did its node
        cause = of_container(event.kind, tasks.preempting(turn, container))
        if cause is FailureCause.AGENT_LOST and not container.registered:
            cause = FailureCause.LAUNCH_FAILED
        tasks.lose(turn, turn.task(container.task), container, cause, event.detail)
    if event.proven or not may_live(container):
        _drop(turn, container)
        return
    container.ended = True
    tasks.give_back(turn, container)  # its agent is told over its own connection
    if container.former is not None:
        turn.touch(turn.task(container.former))  # why it was lost is known now


def _strengthen(turn: Turn, container: ContainerData, event: ContainerEnded) -> None:
    """The backend's own word on a container that was already given up may be the better one."""
    cause = of_container(event.kind, tasks.preempting(turn, container))
    for report in _open_reports(turn):
        own = report.container_id == container.container_id
        if report.cause is FailureCause.AGENT_LOST and (own or report.node == container.node):
            if RULES[cause].strength > RULES[report.cause].strength:
                report.cause = cause
                report.what += f" ({event.detail or cause.value})"


def _open_reports(turn: Turn) -> Iterable[FailureReport]:
    for unit in turn.state.units.values():
        yield from unit.reports


def _drop(turn: Turn, container: ContainerData) -> None:
    """Nothing lives in it any more."""
    del turn.state.containers[container.container_id]
    turn.index.given_up.discard(container.container_id)
    turn.set_time(container, "deadline", None)
    if container.former is not None:
        turn.touch(turn.task(container.former))
    turn.changes += 1


def on_registered(turn: Turn, event: AgentRegistered) -> None:
    """An agent is there, new or back."""
    container = turn.state.containers.get(event.container_id)
    if container is None:
        turn.emit(ReleaseContainer(container_id=event.container_id))
        return
    container.connected = container.registered = True
    container.silent = False
    container.heard, container.listen = turn.now, event.listen
    if container.task is None:
        held = event.held
        container.over = held is None or held.phase is HeldPhase.EXITED
        if held is not None:
            if container.former is not None:
                turn.touch(turn.task(container.former))  # which it may have waited for
            container.former, container.former_attempt = held.task, held.attempt
        turn.set_time(container, "deadline", None)
        tasks.give_back(turn, container)
        return
    turn.set_time(container, "deadline", None)
    data, held = turn.task(container.task), event.held
    if held is not None and (held.task != data.task or held.attempt != data.attempt):
        if held.phase is not HeldPhase.EXITED:
            turn.emit(
                StopTask(
                    container_id=event.container_id,
                    task=held.task,
                    attempt=held.attempt,
                    grace_s=0.0,
                )
            )
        event = AgentRegistered(
            container_id=event.container_id, host=event.host, listen=event.listen
        )
    tasks.apply(turn, data, event)


def on_disconnected(turn: Turn, event: AgentDisconnected) -> None:
    container = turn.state.containers.get(event.container_id)
    if container is None or not container.connected:
        return
    container.connected, container.heard = False, turn.now
    if container.task is not None:
        data, patience_s = turn.task(container.task), turn.plan.reconnect_s
        if data.exit is not None and data.deadline is not None:
            # Its programs have ended, and it saves: what it holds is worth waiting for.
            patience_s = max(patience_s, min(data.deadline - turn.now, turn.plan.lease_s))
        turn.set_time(container, "deadline", turn.now + patience_s)
    elif container.former is not None and not container.over:
        # It was told to go, but has not said that its programs are gone: it may not have heard.
        container.silent = True
        if turn.state.phase is not JobPhase.FINISHING:
            turn.set_time(container, "deadline", turn.now + turn.plan.lease_s)
    elif container.ended:
        _drop(turn, container)
    elif container.former is not None:
        turn.touch(turn.task(container.former))


def on_exit(turn: Turn, event: TaskExited) -> None:
    """An attempt has ended that its task has no part in any more."""
    for container_id in sorted(turn.index.given_up):
        container = turn.state.containers[container_id]
        if (container.former, container.former_attempt) == (event.task, event.attempt):
            container.over = True
            if container.ended and not container.connected:
                _drop(turn, container)
            else:
                turn.touch(turn.task(event.task))


def on_silent(turn: Turn, event: AgentSilent) -> None:
    container = turn.state.containers.get(event.container_id)
    if container is None or not container.connected:
        return
    container.connected, container.silent = False, True
    container.heard = turn.now - event.silent_s
    tasks.give_up(turn, container, f"its agent was silent for {event.silent_s:.0f}s")


def on_overdue(turn: Turn, container: ContainerData) -> None:
    """Its patience has ended."""
    if container.deadline is None or container.deadline > turn.now:
        return
    turn.set_time(container, "deadline", None)
    if turn.state.containers.get(container.container_id) is not container:
        return
    if container.task is None:
        _overdue_given_up(turn, container)
        return
    data = turn.task(container.task)
    if not container.registered:
        limit = turn.role(data.task).registration_s
        what = f"its agent did not register in {limit:g}s"
        tasks.lose(turn, data, container, FailureCause.LAUNCH_FAILED, what)
        tasks.give_back(turn, container)
    elif not container.connected:
        container.silent = True  # a connection that breaks says nothing of what it connected
        what = "its agent's connection was lost and did not come back"
        tasks.give_up(turn, container, what)


def _overdue_given_up(turn: Turn, container: ContainerData) -> None:
    ending = turn.state.phase is JobPhase.FINISHING
    if not container.released:
        tasks.give_back(turn, container)  # the backend has not said why its agent was ended
    elif ending:
        turn.record(
            "container-unconfirmed",
            f"{container.container_id} on {container.node} was given back but its end was not "
            "confirmed",
            level=Level.WARNING,
        )
        _drop(turn, container)
    elif container.silent:
        # Its lease is over: whatever ran there has been ended by its own agent.
        container.silent = False
        if container.ended:
            _drop(turn, container)
        elif container.former is not None:
            turn.touch(turn.task(container.former))


# -- a new coordinator ----------------------------------------------------------------------------


def patience(turn: Turn) -> float:
    """How long agents may take to come back: TLS handshakes of thousands queue up at one core."""
    return turn.plan.takeover_s + SECONDS_AN_AGENT * len(turn.state.containers)


def take_over(turn: Turn, event: CoordinatorStarted) -> None:
    """Compare the books with what the backend still has; agents have to register again."""
    state = turn.state
    alive = set(event.containers)
    for container in list(state.containers.values()):
        awaited = not event.others_ended and container.registered and container.task is not None
        if container.container_id in alive or awaited:
            # Where not all are named, the agent's own connection says first that it lives.
            _resume(turn, container)
        else:
            _vanished(turn, container, ended=event.others_ended)
    for container_id in sorted(alive - set(state.containers)):
        # Granted to the dead coordinator, which could not write it down.
        _take_unknown(turn, container_id, "?")
    cancel_requests(turn)


def _resume(turn: Turn, container: ContainerData) -> None:
    # Nothing is known of its agent until it registers: it may live where it can't be reached.
    container.connected, container.heard = False, turn.now
    container.silent = container.registered
    if container.task is None:
        tasks.give_back(turn, container)
    elif not container.registered:
        turn.emit(LaunchAgent(container_id=container.container_id, task=container.task))
        limit = turn.role(container.task).registration_s
        turn.set_time(container, "deadline", None if limit is None else turn.now + limit)
    else:
        turn.set_time(container, "deadline", turn.now + patience(turn))


def _vanished(turn: Turn, container: ContainerData, *, ended: bool) -> None:
    """The backend does not have it any more; ``ended``: so nothing runs in it."""
    if container.task is not None:
        container.silent, container.heard = container.registered, turn.now
        data = turn.task(container.task)
        cause = FailureCause.COORDINATOR_LOST
        tasks.lose(turn, data, container, cause, "it ended meanwhile")
    if container.connected:
        container.connected, container.silent, container.heard = False, True, turn.now
    if may_live(container) and (container.ended or not ended):
        container.ended = True
        tasks.give_back(turn, container)
    else:
        _drop(turn, container)
