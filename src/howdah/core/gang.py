"""How a gang comes together: requests, agents, the barrier, the start.

Nothing starts before every member's agent is ready (mode gang), or each task starts when it is
ready (mode each). A part of a gang is never held for ever: after `Plan.hold_s` without the rest
it is given back, and asked for again after a growing, random delay, so that two jobs that each
hold a part of a cluster cannot block each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from howdah.core import containers, finish
from howdah.core.messages import (
    ContainerGranted,
    LaunchAgent,
    Level,
    NotifyCheckpoint,
    PrepareTask,
    ReleaseContainer,
    RequestRefused,
    StartTask,
    Task,
    Topology,
)
from howdah.core.plan import Join, RolePlan
from howdah.core.ranks import topology
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
from howdah.spec.model import Mode, Tracking

S = TaskState
_FORMING = (JobPhase.ALLOCATING, JobPhase.STARTING, JobPhase.RUNNING)


def allocate(turn: Turn) -> None:
    """Enter the phase in which the gang is brought together."""
    turn.enter(JobPhase.ALLOCATING)
    turn.set_timer("allocation", turn.plan.allocation_s)
    if turn.plan.mode is Mode.GANG and any(
        turn.count(role, (S.LAUNCHING, S.IDLE)) for role in turn.gang()
    ):
        _hold(turn)
    containers.request_missing(turn)
    advance(turn)


def on_granted(turn: Turn, event: ContainerGranted) -> None:
    state = turn.state
    task = state.requests.pop(event.request_id, None)
    if task is None:
        # Surplus, or the request was cancelled meanwhile: kept on the books until it has ended.
        if event.container_id in state.containers:
            return
        if state.phase is not JobPhase.FINISHED:
            state.containers[event.container_id] = ContainerData(
                container_id=event.container_id, node=event.node, task=None, granted=turn.now
            )
        turn.emit(ReleaseContainer(container_id=event.container_id))
        return
    data = state.tasks[str(task)]
    data.request_id = None
    data.container_id = event.container_id
    state.containers[event.container_id] = ContainerData(
        container_id=event.container_id, node=event.node, task=task, granted=turn.now
    )
    turn.move(data, S.LAUNCHING, "a container was granted")
    turn.emit(LaunchAgent(container_id=event.container_id, task=task))
    turn.set_timer(f"registration:{event.container_id}", turn.role(task).registration_s)
    if turn.plan.mode is Mode.GANG and state.phase is JobPhase.ALLOCATING:
        if "hold" not in state.timers:
            _hold(turn)


def _hold(turn: Turn) -> None:
    """Hold a part of the gang for a while; longer at each try, should the cluster only be slow."""
    turn.set_timer("hold", turn.plan.hold_s * 2 ** min(turn.state.allocations, 5))


def on_refused(turn: Turn, event: RequestRefused) -> None:
    task = turn.state.requests.pop(event.request_id, None)
    if task is None:
        return
    data = turn.state.tasks[str(task)]
    data.request_id = None
    role = turn.role(task)
    if role.tracking is Tracking.SIDECAR or task.index >= role.minimum:
        data.retired = True
        turn.record("request-refused", f"{task} gets no container: {event.reason}", data=data)
        return
    finish.begin(turn, Outcome.FAILED, f"{task} can never get its container: {event.reason}")


def on_hold_due(turn: Turn) -> None:
    """The rest of the gang did not come in time: give everything back and wait."""
    state = turn.state
    if state.phase is not JobPhase.ALLOCATING:
        return
    if all(role.maximum - turn.count(role, (S.WAITING,)) >= role.minimum for role in turn.gang()):
        return  # all are granted, their agents are on the way
    containers.cancel_requests(turn)
    held = [d for d in turn.tasks(turn.gang()) if d.container_id is not None]
    for data in held:
        if data.state in LIVE:
            continue
        containers.release(turn, data, "the rest of the gang did not come in time")
    state.allocations += 1
    delay = min(turn.plan.backoff_s * 2 ** (state.allocations - 1), turn.plan.backoff_max_s)
    delay *= 0.5 + turn.jitter()
    turn.set_timer("backoff", delay)
    turn.record(
        "gang-incomplete",
        f"only {len(held)} of the gang's containers came in time; they were given "
        f"back and all are asked for again in {delay:.1f}s",
        level=Level.WARNING,
    )


def on_backoff_due(turn: Turn) -> None:
    containers.request_missing(turn)
    advance(turn)


def advance(turn: Turn) -> None:
    """Do whatever has become possible: called after every event, so it looks at what is."""
    state = turn.state
    if state.phase not in _FORMING:
        return
    if turn.plan.mode is Mode.EACH:
        _advance_each(turn)
    elif state.phase is JobPhase.ALLOCATING:
        form(turn)
    _advance_single(turn)
    start_ready(turn)
    if state.phase is JobPhase.STARTING and state.missing == 0:
        turn.enter(JobPhase.RUNNING)
        turn.clear_timer(*[name for name in state.timers if name.startswith("startup:")])
        members = sum(data.member for data in turn.tasks(turn.gang()))
        who = f"all {members} tasks have started and found each other"
        turn.record("running", who if members != 1 else "its one task has started")
    if state.phase is JobPhase.RUNNING and turn.plan.mode is Mode.GANG:
        _watch_growth(turn)


def form(turn: Turn, patient: bool = True) -> None:
    """Form a generation once enough agents are idle; a patient elastic gang waits for more."""
    state, roles = turn.state, turn.gang()
    if state.phase is not JobPhase.ALLOCATING:
        return
    if any(turn.live([role]) for role in roles):
        return  # the last of the old generation are still ending
    if any(turn.count(role, (S.IDLE,)) < role.minimum for role in roles):
        return
    complete = all(turn.count(role, (S.IDLE,)) == role.maximum for role in roles)
    if not complete and patient:
        if "elastic" not in state.timers:
            turn.set_timer("elastic", turn.plan.elastic_wait_s)
        return
    turn.clear_timer("elastic", "hold", "allocation")
    state.allocations = 0
    state.generation += 1
    chosen = [data for data in turn.tasks(roles) if data.state is S.IDLE]
    for data in turn.tasks(roles):
        data.member = data.state is S.IDLE
        data.awaited = False
    state.topology, state.rewired, state.missing = None, False, 0
    state.released.clear()
    turn.enter(JobPhase.STARTING)
    turn.record(
        "generation-formed",
        f"generation {state.generation}: {len(chosen)} task{'s' * (len(chosen) != 1)}"
        + (f", from checkpoint {state.checkpoint}" if state.checkpoint else ""),
    )
    for data in chosen:
        prepare(turn, data)


def _advance_each(turn: Turn) -> None:
    state = turn.state
    for role in turn.gang():
        if not turn.count(role, (S.IDLE,)):
            continue
        for data in turn.tasks([role]):
            if data.state is S.IDLE:
                state.generation = max(state.generation, 1)
                data.member = True
                prepare(turn, data)
    if state.phase is JobPhase.ALLOCATING and all(
        turn.count(role, (*LIVE, *OVER)) >= role.minimum for role in turn.gang()
    ):
        turn.clear_timer("allocation")
        turn.enter(JobPhase.STARTING)


def _advance_single(turn: Turn) -> None:
    """Tasks outside the barrier: sidecars, earlier stages, and members that come back alone."""
    gang = turn.gang()
    returning = turn.state.phase in (JobPhase.STARTING, JobPhase.RUNNING)
    for role in turn.opened():
        if not turn.count(role, (S.IDLE,)) or (role in gang and not returning):
            continue
        for data in turn.tasks([role]):
            if data.state is S.IDLE and (role not in gang or data.member):
                prepare(turn, data)


def _returns(turn: Turn, data: TaskData) -> bool:
    """A member whose attempt ended alone and that the running gang takes back."""
    return data.member and turn.state.phase in (JobPhase.STARTING, JobPhase.RUNNING)


def prepare(turn: Turn, data: TaskData) -> None:
    """Begin a new attempt."""
    assert data.container_id is not None
    role = turn.role(data.task)
    returns = _returns(turn, data)
    keep = data.ports if role.sticky_ports and returns else ()
    turn.state.rewired |= returns
    if turn.in_gang(data.task) and not data.awaited:
        data.awaited = True
        turn.state.missing += 1
    data.attempt += 1
    data.generation = turn.state.generation
    data.pids, data.joined, data.exit, data.restored = (), False, None, None
    turn.move(data, S.PREPARING, "a new attempt begins")
    send_prepare(turn, data, keep)


def send_prepare(turn: Turn, data: TaskData, keep: Sequence[int] = ()) -> None:
    assert data.container_id is not None
    turn.emit(
        PrepareTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            generation=data.generation,
            ports=turn.role(data.task).ports,
            keep_ports=tuple(keep),
            restore=turn.state.checkpoint,
        )
    )


def start_ready(turn: Turn) -> None:
    """Start every prepared task that waits for nobody any more."""
    gang_started = False
    for role in turn.opened():
        if not turn.count(role, (S.PREPARED,)):
            continue
        if turn.in_gang(Task(role.name, 0)) and turn.plan.mode is Mode.GANG:
            if not _barrier_open(turn):
                continue
        if not _predecessors_ready(turn, role):
            continue
        for data in turn.tasks([role]):
            if data.state is S.PREPARED:
                start(turn, data)
                gang_started = True
    if gang_started and turn.state.phase is JobPhase.STARTING:
        for role in turn.gang():
            if f"startup:{role.name}" not in turn.state.timers:
                turn.set_timer(f"startup:{role.name}", role.startup_s)


def _barrier_open(turn: Turn) -> bool:
    """All members of the generation are prepared; stays open for it once it has been."""
    if turn.state.topology is not None:
        return True
    return not any(
        turn.count(role, (S.PREPARING,)) or (turn.count(role, (S.PREPARED,)) < _members(turn, role))
        for role in turn.gang()
    )


def _members(turn: Turn, role: RolePlan) -> int:
    if role.minimum == role.maximum:
        return role.maximum
    return sum(data.member for data in turn.tasks([role]))


def _predecessors_ready(turn: Turn, role: RolePlan) -> bool:
    for name in role.after:
        other = turn.plan.role(name)
        for data in turn.tasks([other]):
            if other.tracking is Tracking.SIDECAR and data.retired:
                continue
            if (data.member or data.task.index < other.minimum) and not (
                data.joined or data.state is S.SUCCEEDED
            ):
                return False
    return True


def start(turn: Turn, data: TaskData) -> None:
    """Start one prepared task with the topology of its generation."""
    assert data.container_id is not None
    turn.move(data, S.STARTING, "everyone it waits for is ready")
    turn.emit(
        StartTask(
            container_id=data.container_id,
            task=data.task,
            attempt=data.attempt,
            topology=place_of(turn, data),
            answer=turn.state.answer,
        )
    )


def place_of(turn: Turn, data: TaskData) -> Topology:
    """The topology a task is started with: its gang's, or for one beside the gang, with it added.

    Servers that an earlier stage left running are in it, so that the present one finds them.
    """
    state = turn.state
    members = (d for d in turn.tasks([*turn.gang(), *turn.servers()]) if d.member)
    if not turn.in_gang(data.task):
        return topology(turn.plan, state.generation, [*members, data])
    if state.topology is None or turn.plan.mode is Mode.EACH or state.rewired:
        state.topology = topology(turn.plan, state.generation, list(members))
        state.rewired = False
    return state.topology


def joined(turn: Turn, data: TaskData) -> None:
    """The task has met its peers, or needs them no more."""
    data.joined = True
    if data.awaited:
        data.awaited = False
        turn.state.missing -= 1


def _watch_growth(turn: Turn) -> None:
    """An elastic gang that runs below its maximum takes newly come agents in after a short wait."""
    state = turn.state
    newcomers = any(
        turn.count(role, (S.IDLE,)) for role in turn.gang() if role.maximum > role.minimum
    )
    if newcomers and "grow" not in state.timers:
        turn.set_timer("grow", turn.plan.elastic_wait_s)
        for data in turn.tasks(turn.gang()):
            if data.state is S.RUNNING:
                notify_checkpoint(turn, data, "the gang is about to grow")


def notify_checkpoint(turn: Turn, data: TaskData, reason: str) -> None:
    assert data.container_id is not None
    turn.emit(
        NotifyCheckpoint(
            container_id=data.container_id, task=data.task, attempt=data.attempt, reason=reason
        )
    )


def on_startup_due(turn: Turn, role_name: str) -> None:
    """Somebody has not met its peers in time: say who, and end the job."""
    state = turn.state
    if state.phase is not JobPhase.STARTING:
        return
    limit = turn.plan.role(role_name).startup_s
    missing = [data for data in turn.tasks(turn.gang()) if data.awaited]
    here = [data for data in turn.tasks(turn.gang()) if data.joined]
    finish.begin(
        turn,
        Outcome.TIMED_OUT,
        f"start-up time-out after {limit:g}s: {_missing(turn, missing)}"
        + (f"; waiting for it: {_names(here)}" if here else ""),
        culprits=missing,
    )


def _missing(turn: Turn, tasks: Iterable[TaskData]) -> str:
    parts: list[str] = []
    for data in tasks:
        if data.state in UP:
            one = len(data.ports) == 1
            ports = f"port{'' if one else 's'} {', '.join(map(str, data.ports)) or 'none'}"
            text = (
                f"{data.task} never joined (its program runs, but neither listens on its "
                f"{ports} nor is connected to a peer)"
                if turn.role(data.task).join is Join.NETWORK
                else f"{data.task} was not seen running"
            )
        else:
            text = f"{data.task} never started (it is {data.state.value})"
        parts.append(text)
    return "; ".join(parts[:5]) + (f"; and {len(parts) - 5} more" if len(parts) > 5 else "")


def _names(tasks: Sequence[TaskData]) -> str:
    names = [str(data.task) for data in tasks]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
