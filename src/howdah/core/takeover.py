"""A new coordinator: what it knows from the journal is held against what is still there.

Commands of the dead one may or may not have been carried out. So nothing is assumed: requests are
made anew, the backend says which containers live, agents say what they hold when they come back,
and for each the difference between what is and what should be becomes a command.
"""

from __future__ import annotations

from howdah.core import containers, failure, gang
from howdah.core.causes import FailureCause
from howdah.core.messages import (
    AgentRegistered,
    CoordinatorStarted,
    DumpStacks,
    Exit,
    FinishJob,
    Held,
    HeldPhase,
    LaunchAgent,
    ReleaseContainer,
    StartTask,
    StopTask,
    TaskExited,
    TaskPrepared,
    TaskStarted,
)
from howdah.core.state import ContainerData, JobPhase, TaskData, TaskState
from howdah.core.turn import Turn

S = TaskState
SECONDS_AN_AGENT = 0.05
"""Added to the take-over window: over ten times what a handshake costs the coordinator."""
_MAY_SLIP = ("registration:", "startup:", "settle", "stacks", "hold", "elastic", "grow", "finish")
"""Timers that wait for agents; after a time without a coordinator they are given a fresh chance."""


def on_coordinator_started(turn: Turn, event: CoordinatorStarted) -> None:
    state = turn.state
    state.incarnation = event.incarnation
    if event.incarnation <= 1:
        return
    turn.record(
        "coordinator-took-over",
        f"coordinator {event.incarnation} took over with {len(event.containers)} containers",
        containers=len(event.containers),
    )
    if state.phase is JobPhase.FINISHED:
        for container_id in event.containers:
            turn.emit(ReleaseContainer(container_id=container_id))
        turn.emit(FinishJob())
        return
    for name, due in list(state.timers.items()):
        if name.startswith(_MAY_SLIP):
            turn.set_timer(name, max(due - turn.now, _patience(turn)))
    alive = set(event.containers)
    for container in list(state.containers.values()):
        if container.container_id in alive:
            _resume(turn, container)
        else:
            _vanished(turn, container)
    for container_id in sorted(alive - set(state.containers)):
        # Granted to the dead coordinator, which could not write it down.
        state.containers[container_id] = ContainerData(
            container_id=container_id, node="?", task=None, granted=turn.now
        )
        turn.emit(ReleaseContainer(container_id=container_id))
    if state.requests:
        containers.cancel_requests(turn)
    if state.phase not in (JobPhase.FINISHING, JobPhase.SETTLING, JobPhase.RESTARTING):
        containers.request_missing(turn)


def _patience(turn: Turn) -> float:
    """How long agents may take to come back: TLS handshakes of thousands queue up at one core."""
    return turn.plan.takeover_s + SECONDS_AN_AGENT * len(turn.state.containers)


def _resume(turn: Turn, container: ContainerData) -> None:
    if container.task is None:
        turn.emit(ReleaseContainer(container_id=container.container_id))
        return
    if not container.registered:
        turn.emit(LaunchAgent(container_id=container.container_id, task=container.task))
        return
    container.connected = False
    turn.set_timer(f"reconnect:{container.container_id}", _patience(turn))


def _vanished(turn: Turn, container: ContainerData) -> None:
    state = turn.state
    del state.containers[container.container_id]
    turn.clear_timer(
        f"registration:{container.container_id}", f"reconnect:{container.container_id}"
    )
    if container.task is not None:
        data = state.tasks[str(container.task)]
        failure.lose(turn, data, container, FailureCause.COORDINATOR_LOST, "it ended meanwhile")


def on_registered(turn: Turn, event: AgentRegistered) -> None:
    """An agent is there, new or back: bring it to where its task should be."""
    state = turn.state
    container = state.containers.get(event.container_id)
    if container is None or container.task is None:
        turn.emit(ReleaseContainer(container_id=event.container_id))
        return
    container.connected = container.registered = True
    container.listen = event.listen
    turn.clear_timer(f"registration:{event.container_id}", f"reconnect:{event.container_id}")
    data = state.tasks[str(container.task)]
    if data.state is S.LAUNCHING:
        data.host = event.host
        turn.move(data, S.IDLE, "its agent registered")
    held = event.held
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
        held = None
    _reconcile(turn, data, held)


def _reconcile(turn: Turn, data: TaskData, held: Held | None) -> None:
    assert data.container_id is not None
    if held is not None and held.phase is HeldPhase.EXITED:
        exit = held.exit or Exit(failed_to_start="the agent does not say how it ended")
        failure.on_exited(turn, TaskExited(task=data.task, attempt=data.attempt, exit=exit))
        return
    match data.state:
        case S.PREPARING if held is None:
            gang.send_prepare(turn, data)
        case S.PREPARING:
            assert held is not None
            on_prepared(
                turn,
                TaskPrepared(
                    task=data.task,
                    attempt=data.attempt,
                    host=held.host,
                    ports=held.ports,
                    restored=held.restored,
                ),
            )
        case S.STARTING if held is not None and held.phase is HeldPhase.PREPARED:
            assert turn.state.topology is not None or not turn.in_gang(data.task)
            turn.emit(
                StartTask(
                    container_id=data.container_id,
                    task=data.task,
                    attempt=data.attempt,
                    topology=gang.place_of(turn, data),
                    answer=turn.state.answer,
                )
            )
        case S.STARTING if held is not None:
            on_started(
                turn, TaskStarted(task=data.task, attempt=data.attempt, pids=held.pids), held.joined
            )
        case S.RUNNING if held is not None and held.phase is HeldPhase.RUNNING:
            if held.joined:
                gang.joined(turn, data)
            if turn.state.hang and data.task in turn.state.hang.awaiting:
                turn.emit(
                    DumpStacks(container_id=data.container_id, task=data.task, attempt=data.attempt)
                )
        case S.PREPARED | S.STARTING | S.RUNNING if held is None or data.state is S.RUNNING:
            failure.on_forgotten(turn, data)
        case S.STOPPING if held is None:
            failure.on_exited(
                turn, TaskExited(task=data.task, attempt=data.attempt, exit=Exit(detail="dropped"))
            )
        case S.STOPPING:
            grace = 0.0 if turn.state.firm else turn.role(data.task).restart_grace_s
            turn.stop(data, grace, "told again")
        case _:
            pass


def on_prepared(turn: Turn, event: TaskPrepared) -> None:
    data = turn.find(event.task, event.attempt)
    if data is None or data.state is not S.PREPARING:
        return
    data.host = event.host or data.host
    data.ports, data.restored = event.ports, event.restored
    turn.move(data, S.PREPARED, "checkpoint restored, ports reserved")
    if event.restored:
        turn.record(
            "checkpoint-restored",
            f"{data.task} restored checkpoint {event.restored}",
            data=data,
            checkpoint=event.restored,
        )


def on_started(turn: Turn, event: TaskStarted, joined: bool = False) -> None:
    data = turn.find(event.task, event.attempt)
    if data is None or data.state not in (S.STARTING, S.STOPPING):
        return
    data.pids = event.pids
    if data.state is S.STOPPING:
        return
    data.started = turn.now
    if turn.state.started is None:
        turn.state.started = turn.now
    turn.move(data, S.RUNNING, "the program runs")
    turn.record(
        "task-started",
        f"{data.task} started on {data.host}",
        data=data,
        pids=list(event.pids),
        ports=list(data.ports),
    )
    if joined or turn.role(data.task).join.value == "now":
        gang.joined(turn, data)
