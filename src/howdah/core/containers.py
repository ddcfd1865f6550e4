"""Asking for containers and giving them back."""

from __future__ import annotations

from howdah.core.messages import (
    CancelRequests,
    ContainerRequest,
    ReleaseContainer,
    RequestContainers,
)
from howdah.core.state import LIVE, OVER, TaskData, TaskState
from howdah.core.turn import Turn

S = TaskState


def request_missing(turn: Turn) -> None:
    """Ask for a container for every task of the opened stages that has none and needs one."""
    if "backoff" in turn.state.timers:
        return
    wanted: list[ContainerRequest] = []
    for role in turn.opened():
        if not turn.count(role, (S.WAITING,)):
            continue
        for data in turn.tasks([role]):
            if data.state is S.WAITING and data.request_id is None and not data.retired:
                data.request_id = turn.state.next_request
                turn.state.next_request += 1
                turn.state.requests[data.request_id] = data.task
                wanted.append(ContainerRequest(request_id=data.request_id, role=role.name))
    if wanted:
        avoided = [
            node
            for node, faults in turn.state.node_faults.items()
            if faults >= turn.plan.node_faults
        ]
        turn.emit(RequestContainers(requests=tuple(wanted), avoid_nodes=tuple(avoided)))


def cancel_requests(turn: Turn) -> None:
    """Take all outstanding requests back."""
    state = turn.state
    if state.requests:
        turn.emit(CancelRequests(request_ids=tuple(state.requests)))
    for task in state.requests.values():
        state.tasks[str(task)].request_id = None
    state.requests.clear()


def release(turn: Turn, data: TaskData, why: str) -> None:
    """Give a container back in which no attempt is held. Its task waits for another one, or is over."""
    assert data.container_id is not None and data.state not in LIVE
    container = turn.state.containers[data.container_id]
    container.task = None
    turn.clear_timer(
        f"registration:{container.container_id}", f"reconnect:{container.container_id}"
    )
    turn.emit(ReleaseContainer(container_id=container.container_id))
    data.container_id = None
    if data.state not in OVER:
        turn.move(data, S.WAITING, why)
