"""Containers: asking for them, and whether anything may still live in one that was given up.

A container that is given up stays on the books until nothing can run in it: its end is proven, its
agent has closed its connection, or the agent's lease is over since it was last heard. Until then no
successor of its task starts (`may_live`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from howdah.core import task as tasks
from howdah.core.causes import RULES, FailureCause, of_container
from howdah.core.event_context import EventContext
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
from howdah.core.state import LIVE, ContainerData, FailureReport, JobPhase, TaskData

SECONDS_AN_AGENT = 0.05
"""Added to the take-over's patience: over ten times what a handshake costs the coordinator."""


# -- asking ---------------------------------------------------------------------------------------


def request(context: EventContext, wanted: Iterable[TaskData]) -> None:
    """Ask for a container for each of these tasks, none of which has asked before."""
    state = context.state
    requests: list[ContainerRequest] = []
    for data in wanted:
        context.set_request(data, state.next_request)
        state.requests[state.next_request] = data.task
        requests.append(ContainerRequest(request_id=state.next_request, role=data.task.role))
        state.next_request += 1
    if requests:
        _choose_avoided(context)
        context.emit(RequestContainers(requests=tuple(requests), avoid_nodes=state.avoided))


def _choose_avoided(context: EventContext) -> None:
    """Nodes with several recent faults."""
    state, limit = context.state, context.plan.node_faults
    since = context.now - context.plan.node_fault_s
    for node, faults in list(state.node_faults.items()):
        recent = [at for at in faults if at > since][-limit:]
        if recent:
            state.node_faults[node] = recent
        else:
            del state.node_faults[node]
    state.avoided = tuple(n for n, faults in state.node_faults.items() if len(faults) >= limit)
    state.avoided_until = context.now + context.plan.avoid_s if state.avoided else None


def forgive(context: EventContext) -> None:
    """What could not be had without the avoided nodes is asked for again with them."""
    state = context.state
    if not context.passed(state.avoided_until):
        return
    state.avoided_until = None
    if state.requests:
        for node in state.avoided:
            state.node_faults.pop(node, None)
        cancel_requests(context)


def cancel_requests(context: EventContext) -> None:
    """Take all outstanding requests back."""
    state = context.state
    if state.requests:
        context.emit(CancelRequests(request_ids=tuple(state.requests)))
    for task in state.requests.values():
        context.set_request(context.task(task), None)
    state.requests.clear()


def on_granted(context: EventContext, event: ContainerGranted) -> None:
    state = context.state
    task = state.requests.pop(event.request_id, None)
    if task is not None:
        tasks.apply(context, context.task(task), event)
        return
    # Surplus, or the request was cancelled meanwhile: on the books until it has ended.
    if event.container_id in state.containers:
        return
    if state.phase is JobPhase.FINISHED:
        context.emit(ReleaseContainer(container_id=event.container_id))
        return
    _take_unknown(context, event.container_id, event.node)


def _take_unknown(context: EventContext, container_id: str, node: str) -> None:
    container = ContainerData(container_id=container_id, node=node, task=None, granted=context.now)
    context.state.containers[container_id] = container
    context.index.given_up.add(container_id)
    tasks.give_back(context, container)


# -- what becomes of one --------------------------------------------------------------------------


def may_live(container: ContainerData) -> bool:
    """Whether a program that was started in a given-up container may still run."""
    if container.former is None or container.over:
        return False
    return container.connected or container.silent


def still_living(context: EventContext) -> list[ContainerData]:
    """Given-up containers in which programs may still run."""
    given_up = map(context.state.containers.__getitem__, sorted(context.index.given_up))
    return [container for container in given_up if may_live(container)]


def on_ended(context: EventContext, event: ContainerEnded) -> None:
    container = context.state.containers.get(event.container_id)
    if container is None:
        return
    _note_unsaved(context, container, event)
    if container.task is None:
        _strengthen(context, container, event)
    else:
        if not event.proven and container.registered and not container.connected:
            container.silent = True  # it was given time to come back, and neither did its node
        cause = of_container(event.kind, tasks.preempting(context, container))
        if cause is FailureCause.AGENT_LOST and not container.registered:
            cause = FailureCause.LAUNCH_FAILED
        tasks.lose(context, context.task(container.task), container, cause, event.detail)
    if event.proven or not may_live(container):
        _drop(context, container)
        return
    container.ended = True
    tasks.give_back(context, container)  # its agent is told over its own connection
    if container.former is not None:
        context.touch(context.task(container.former))  # why it was lost is known now


def _note_unsaved(context: EventContext, container: ContainerData, event: ContainerEnded) -> None:
    """Files of its task's newest attempt that did not come with it. A later attempt writes its own."""
    if not event.unsaved or container.task is not None or container.served is None:
        return
    data = context.task(container.served)
    if data.exit is None or data.state in LIVE or data.attempt != container.former_attempt:
        return
    data.exit = msgspec.structs.replace(data.exit, unsaved=data.exit.unsaved + event.unsaved)
    context.changes += 1
    what = f"files of {data.task} on {container.node} are not saved: {'; '.join(event.unsaved)}"
    context.record("files-lost", what, level=Level.WARNING, data=data, node=container.node)


def _strengthen(context: EventContext, container: ContainerData, event: ContainerEnded) -> None:
    """The backend's own word on a container that was already given up may be the better one."""
    cause = of_container(event.kind, tasks.preempting(context, container))
    for report in _open_reports(context):
        own = report.container_id == container.container_id
        if report.cause is FailureCause.AGENT_LOST and (own or report.node == container.node):
            if RULES[cause].strength > RULES[report.cause].strength:
                report.cause = cause
                report.what += f" ({event.detail or cause.value})"


def _open_reports(context: EventContext) -> Iterable[FailureReport]:
    for unit in context.state.units.values():
        yield from unit.reports


def _drop(context: EventContext, container: ContainerData) -> None:
    """Nothing lives in it any more."""
    del context.state.containers[container.container_id]
    context.index.given_up.discard(container.container_id)
    context.set_time(container, "deadline", None)
    if container.former is not None:
        context.touch(context.task(container.former))
    context.changes += 1


def on_registered(context: EventContext, event: AgentRegistered) -> None:
    """An agent is there, new or back."""
    container = context.state.containers.get(event.container_id)
    if container is None:
        context.emit(ReleaseContainer(container_id=event.container_id))
        return
    container.connected = container.registered = True
    container.silent = False
    container.heard, container.listen = context.now, event.listen
    if container.task is None:
        held = event.held
        container.over = held is None or held.phase is HeldPhase.EXITED
        if held is not None:
            if container.former is not None:
                context.touch(context.task(container.former))  # which it may have waited for
            container.former, container.former_attempt = held.task, held.attempt
        context.set_time(container, "deadline", None)
        tasks.give_back(context, container)
        return
    context.set_time(container, "deadline", None)
    data, held = context.task(container.task), event.held
    if held is not None and (held.task != data.task or held.attempt != data.attempt):
        if held.phase is not HeldPhase.EXITED:
            context.emit(
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
    tasks.apply(context, data, event)


def on_disconnected(context: EventContext, event: AgentDisconnected) -> None:
    container = context.state.containers.get(event.container_id)
    if container is None or not container.connected:
        return
    container.connected, container.heard = False, context.now
    if container.task is not None:
        data, patience_s = context.task(container.task), context.plan.reconnect_s
        if data.exit is not None and data.deadline is not None:
            # Its programs have ended, and it saves: what it holds is worth waiting for.
            patience_s = max(patience_s, min(data.deadline - context.now, context.plan.lease_s))
        context.set_time(container, "deadline", context.now + patience_s)
    elif container.former is not None and not container.over:
        # It was told to go, but has not said that its programs are gone: it may not have heard.
        container.silent = True
        if context.state.phase is not JobPhase.FINISHING:
            context.set_time(container, "deadline", context.now + context.plan.lease_s)
    elif container.ended:
        _drop(context, container)
    elif container.former is not None:
        context.touch(context.task(container.former))


def on_exit(context: EventContext, event: TaskExited) -> None:
    """An attempt has ended that its task has no part in any more."""
    for container_id in sorted(context.index.given_up):
        container = context.state.containers[container_id]
        if (container.former, container.former_attempt) == (event.task, event.attempt):
            container.over = True
            if container.ended and not container.connected:
                _drop(context, container)
            else:
                context.touch(context.task(event.task))


def on_silent(context: EventContext, event: AgentSilent) -> None:
    container = context.state.containers.get(event.container_id)
    if container is None or not container.connected:
        return
    container.connected, container.silent = False, True
    container.heard = context.now - event.silent_s
    tasks.give_up(context, container, f"its agent was silent for {event.silent_s:.0f}s")


def on_overdue(context: EventContext, container: ContainerData) -> None:
    """Its patience has ended."""
    if container.deadline is None or container.deadline > context.now:
        return
    context.set_time(container, "deadline", None)
    if context.state.containers.get(container.container_id) is not container:
        return
    if container.task is None:
        _overdue_given_up(context, container)
        return
    data = context.task(container.task)
    if not container.registered:
        limit = context.role(data.task).registration_s
        what = f"its agent did not register in {limit:g}s"
        tasks.lose(context, data, container, FailureCause.LAUNCH_FAILED, what)
        tasks.give_back(context, container)
    elif not container.connected:
        container.silent = True  # a connection that breaks says nothing of what it connected
        what = "its agent's connection was lost and did not come back"
        tasks.give_up(context, container, what)


def _overdue_given_up(context: EventContext, container: ContainerData) -> None:
    ending = context.state.phase is JobPhase.FINISHING
    if not container.released:
        tasks.give_back(context, container)  # the backend has not said why its agent was ended
    elif ending:
        context.record(
            "container-unconfirmed",
            f"{container.container_id} on {container.node} was given back but its end was not "
            "confirmed",
            level=Level.WARNING,
        )
        _drop(context, container)
    elif container.silent:
        # Its lease is over: whatever ran there has been ended by its own agent.
        container.silent = False
        if container.ended:
            _drop(context, container)
        elif container.former is not None:
            context.touch(context.task(container.former))


# -- a new coordinator ----------------------------------------------------------------------------


def patience(context: EventContext) -> float:
    """How long agents may take to come back: TLS handshakes of thousands queue up at one core."""
    return context.plan.takeover_s + SECONDS_AN_AGENT * len(context.state.containers)


def take_over(context: EventContext, event: CoordinatorStarted) -> None:
    """Compare the books with what the backend still has; agents have to register again."""
    state = context.state
    alive = set(event.containers)
    for container in list(state.containers.values()):
        awaited = not event.others_ended and container.registered and container.task is not None
        if container.container_id in alive or awaited:
            # Where not all are named, the agent's own connection says first that it lives.
            _resume(context, container)
        else:
            _vanished(context, container, ended=event.others_ended)
    for container_id in sorted(alive - set(state.containers)):
        # Granted to the dead coordinator, which could not write it down.
        _take_unknown(context, container_id, "?")
    cancel_requests(context)


def _resume(context: EventContext, container: ContainerData) -> None:
    # Nothing is known of its agent until it registers: it may live where it can't be reached.
    container.connected, container.heard = False, context.now
    container.silent = container.registered
    if container.task is None:
        tasks.give_back(context, container)
    elif not container.registered:
        context.emit(LaunchAgent(container_id=container.container_id, task=container.task))
        limit = context.role(container.task).registration_s
        context.set_time(container, "deadline", None if limit is None else context.now + limit)
    else:
        context.set_time(container, "deadline", context.now + patience(context))


def _vanished(context: EventContext, container: ContainerData, *, ended: bool) -> None:
    """The backend does not have it any more; ``ended``: so nothing runs in it."""
    if container.task is not None:
        container.silent, container.heard = container.registered, context.now
        data = context.task(container.task)
        cause = FailureCause.COORDINATOR_LOST
        tasks.lose(context, data, container, cause, "it ended meanwhile")
    if container.connected or container.silent:
        # The dead coordinator may have heard it, and renewed its lease, since this was written down.
        container.connected, container.silent, container.heard = False, True, context.now
    if may_live(container) and (container.ended or not ended):
        container.ended = True
        tasks.give_back(context, container)
    else:
        _drop(context, container)
