"""The gang: brought together, formed, grown.

Containers of a gang are asked for together. Nothing is prepared before enough agents are there, and
nothing is started before every member is prepared (mode gang), or each task starts when it is ready
(mode each). A part of a gang is never held for ever: after `Plan.hold_s` without the rest it is given
back, and asked for again after a growing, random delay, so that two jobs that each hold a part of a
cluster cannot block each other.
"""

from __future__ import annotations

from howdah.core import containers, ending, restart
from howdah.core import task as tasks
from howdah.core.messages import Level, NotifyCheckpoint
from howdah.core.plan import RolePlan
from howdah.core.state import (
    LIVE,
    OVER,
    ContainerData,
    Growth,
    JobPhase,
    Outcome,
    TaskData,
    TaskState,
)
from howdah.core.turn import Turn

S = TaskState


def allocate(turn: Turn) -> None:
    """Enter the phase in which the gang is brought together."""
    state = turn.state
    turn.enter(JobPhase.ALLOCATING)
    limit = turn.plan.allocation_s
    state.allocation_until = None if limit is None else turn.now + limit
    state.hold_until = None
    turn.set_time(turn.gang_unit, "retry_at", None)
    turn.changes += 1


def step(turn: Turn) -> None:
    """Bring the gang from where it is to where it should be."""
    phase, gang = turn.state.phase, turn.gang_unit
    if phase is JobPhase.SUBMITTED:
        allocate(turn)
    elif phase is JobPhase.ALLOCATING:
        if turn.passed(turn.state.allocation_until):
            _allocation_passed(turn)
        elif not turn.each():
            _hold(turn)
            _form(turn)
        elif all(turn.count(role, (*LIVE, *OVER)) >= role.minimum for role in turn.gang()):
            turn.state.allocation_until = None
            turn.enter(JobPhase.STARTING)
    elif phase is JobPhase.STARTING and not turn.index.awaited:
        turn.enter(JobPhase.RUNNING)
        members = sum(data.member for data in turn.tasks(turn.gang()))
        who = f"all {members} tasks have started and found each other"
        turn.record("running", who if members != 1 else "its one task has started")
    elif phase is JobPhase.RUNNING and not turn.each():
        _grow(turn)
    elif phase is JobPhase.FAILURE_WINDOW:
        restart.stop_gang(turn, "the gang broke")
        restart.judge_gang(turn)
    elif phase is JobPhase.RESTARTING and turn.passed(gang.retry_at):
        restart.renew_gang(turn)
        allocate(turn)


def _hold(turn: Turn) -> None:
    """Hold a part of the gang for a while only: two jobs that each hold a part of a cluster would
    wait for each other for ever. Longer at each try, should the cluster only be slow."""
    state, roles = turn.state, turn.gang()
    short = any(turn.count(role, (S.LAUNCHING, S.IDLE)) < role.minimum for role in roles)
    held = sum(turn.count(role, (S.LAUNCHING, S.IDLE)) for role in roles)
    if not short or not held:
        state.hold_until = None
    elif state.hold_until is None:
        state.hold_until = turn.now + turn.plan.hold_s * 2 ** min(state.allocations, 5)
    elif turn.passed(state.hold_until):
        state.hold_until = None
        _give_part_back(turn)


def _give_part_back(turn: Turn) -> None:
    state, plan = turn.state, turn.plan
    gang_requests = [i for i, task in state.requests.items() if turn.in_gang(task)]
    held = [
        d for d in turn.in_states(turn.gang(), S.LAUNCHING, S.IDLE) if d.container_id is not None
    ]
    if gang_requests:
        containers.cancel_requests(turn)
    for data in held:
        tasks.release(turn, data, "the rest of the gang did not come in time")
    state.allocations += 1
    delay = min(plan.backoff_s * 2 ** (state.allocations - 1), plan.backoff_max_s)
    delay *= 0.5 + turn.jitter()
    turn.set_time(turn.gang_unit, "retry_at", turn.now + delay)
    turn.record(
        "gang-incomplete",
        f"only {len(held)} of the gang's containers came in time; they were given "
        f"back and all are asked for again in {delay:.1f}s",
        level=Level.WARNING,
    )


def _form(turn: Turn) -> None:
    """Form a generation once enough agents are idle and nothing of the last one can run any more.

    An elastic gang waits a little for more.
    """
    state, roles = turn.state, turn.gang()
    if turn.live(roles) or any(turn.count(role, (S.IDLE,)) < role.minimum for role in roles):
        state.elastic_until = None
        return
    if blocked(turn, [c for c in containers.still_living(turn) if _of_gang(turn, c)]):
        return
    complete = all(
        turn.count(role, (S.IDLE,)) >= role.maximum - _retired(turn, role) for role in roles
    )
    if not complete and not turn.passed(state.elastic_until):
        if state.elastic_until is None:
            state.elastic_until = turn.now + turn.plan.elastic_wait_s
        return
    state.elastic_until = state.hold_until = state.allocation_until = None
    state.allocations = 0
    state.generation += 1
    state.topology, state.rewired = None, False
    state.released.clear()
    chosen = turn.in_states(roles, S.IDLE)
    for data in turn.tasks(roles):
        data.member = data.state is S.IDLE
        if data.awaited:
            turn.set_awaited(data, False)
    turn.enter(JobPhase.STARTING)
    turn.record(
        "generation-formed",
        f"generation {state.generation}: {len(chosen)} task{'s' * (len(chosen) != 1)}"
        + (f", from checkpoint {state.checkpoint} or newer" if state.checkpoint else ""),
    )
    for data in chosen:
        tasks.prepare(turn, data, returns=False)


def _retired(turn: Turn, role: RolePlan) -> int:
    if role.minimum == role.maximum:
        return 0
    return sum(data.retired for data in turn.tasks([role]))


def _of_gang(turn: Turn, container: ContainerData) -> bool:
    return container.former is not None and turn.in_gang(container.former)


def blocked(turn: Turn, living: list[ContainerData]) -> bool:
    """Whether an old agent may still run its program; said once for each."""
    for container in living:
        if container.silent and not container.announced:
            container.announced = True
            left = (container.deadline or turn.now) - turn.now
            turn.record(
                "waiting-for-lease",
                f"the agent of {container.former} on {container.node} can't be reached; its program "
                f"may run for up to {left:.0f}s more, until its lease is over, and is not started "
                "elsewhere before",
                level=Level.WARNING,
            )
    return bool(living)


def _grow(turn: Turn) -> None:
    """An elastic gang that runs below its maximum takes new agents in: after a wait in which more may
    come, and once the checkpoint it is asked for is saved."""
    state, roles = turn.state, turn.gang()
    elastic = [role for role in roles if role.maximum > role.minimum]
    new = sum(turn.count(role, (S.IDLE,)) for role in elastic)
    if not new or any(turn.count(role, (S.SUCCEEDED,)) for role in roles):
        state.growth = None
        return
    growth = state.growth
    if growth is None:
        wait = turn.plan.elastic_wait_s * 2 ** min(state.growths, 6)
        state.growth = growth = Growth(at=turn.now + wait)
    if not growth.asked and turn.passed(growth.at):
        growth.asked, growth.checkpoint = True, state.checkpoint
        limit = turn.plan.grow_save_s if turn.plan.checkpoints else 0.0
        growth.until = turn.now + limit
        for data in turn.in_states(roles, S.RUNNING):
            notify_checkpoint(turn, data, "the gang is about to grow")
    if growth.asked and (state.checkpoint != growth.checkpoint or turn.passed(growth.until)):
        state.growing = True
        state.growths += 1
        turn.record("growing", f"{new} more containers have come: the gang is formed anew")
        restart.break_gang(turn, "the gang grows")


def notify_checkpoint(turn: Turn, data: TaskData, reason: str) -> None:
    """Have a running program asked to save."""
    assert data.container_id is not None
    turn.emit(
        NotifyCheckpoint(
            container_id=data.container_id, task=data.task, attempt=data.attempt, reason=reason
        )
    )


def _allocation_passed(turn: Turn) -> None:
    """The gang did not come together in time."""
    turn.state.allocation_until = None
    missing = [
        data.task
        for role in turn.gang()
        for data in turn.in_states([role], S.WAITING, S.LAUNCHING)
        if data.task.index < role.minimum
    ]
    ending.finish(
        turn,
        Outcome.TIMED_OUT,
        f"allocation time-out after {turn.plan.allocation_s:g}s: no container for "
        f"{ending.names(missing)}",
        "Ask for less, wait longer (`[timeouts] allocation`), or free resources; "
        "`howdah doctor` shows what there is.",
    )
