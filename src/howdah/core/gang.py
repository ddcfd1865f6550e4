"""The gang: brought together, formed, grown.

Containers of a gang are asked for together. Nothing is prepared before enough agents are there, and
nothing is started before every member is prepared (mode gang), or each task starts when it is ready
(mode each). A part of a gang is never held for ever: after `Plan.hold_s` without the rest it is given
back, and asked for again after a growing, random delay, so that two jobs that each hold a part of a
cluster cannot block each other.
"""

from __future__ import annotations

from howdah.core import containers, job_completion, restart
from howdah.core import task as tasks
from howdah.core.event_context import EventContext
from howdah.core.messages import Level
from howdah.core.plan import Join, RolePlan
from howdah.core.state import (
    LIVE,
    OVER,
    ContainerData,
    Growth,
    JobPhase,
    Outcome,
    TaskState,
)

S = TaskState


def allocate(context: EventContext) -> None:
    """Enter the phase in which the gang is brought together."""
    state = context.state
    context.enter(JobPhase.ALLOCATING)
    limit = context.plan.allocation_s
    state.allocation_until = None if limit is None else context.now + limit
    state.hold_until = None
    context.set_time(context.gang_unit, "retry_at", None)
    context.changes += 1


def step(context: EventContext) -> None:
    """Bring the gang from where it is to where it should be."""
    phase, gang = context.state.phase, context.gang_unit
    if phase is JobPhase.SUBMITTED:
        allocate(context)
    elif phase is JobPhase.ALLOCATING:
        if context.passed(context.state.allocation_until):
            _allocation_passed(context)
        elif not context.each():
            _hold(context)
            _form(context)
        elif all(context.count(role, (*LIVE, *OVER)) >= role.minimum for role in context.gang()):
            context.state.allocation_until = None
            context.enter(JobPhase.STARTING)
    elif phase is JobPhase.STARTING and not context.index.awaited:
        context.enter(JobPhase.RUNNING)
        members = sum(data.member for data in context.tasks(context.gang()))
        who = "its one task has started" if members == 1 else f"all {members} tasks have started"
        peers = members > 1 and any(role.join is not Join.NOW for role in context.gang())
        context.record("running", f"{who} and found each other" if peers else who)
    elif phase is JobPhase.RUNNING and not context.each():
        _grow(context)
    elif phase is JobPhase.FAILURE_WINDOW:
        restart.stop_gang(context, "the gang broke")
        restart.judge_gang(context)
    elif phase is JobPhase.RESTARTING and context.passed(gang.retry_at):
        restart.renew_gang(context)
        allocate(context)


def _hold(context: EventContext) -> None:
    """Hold a part of the gang for a while only: two jobs that each hold a part of a cluster would
    wait for each other for ever. Longer at each try, should the cluster only be slow."""
    state, roles = context.state, context.gang()
    short = any(context.count(role, (S.LAUNCHING, S.IDLE)) < role.minimum for role in roles)
    held = sum(context.count(role, (S.LAUNCHING, S.IDLE)) for role in roles)
    if not short or not held:
        state.hold_until = None
    elif state.hold_until is None:
        state.hold_until = context.now + context.plan.hold_s * 2 ** min(state.allocations, 5)
    elif context.passed(state.hold_until):
        state.hold_until = None
        _give_part_back(context)


def _give_part_back(context: EventContext) -> None:
    state, plan = context.state, context.plan
    gang_requests = [i for i, task in state.requests.items() if context.in_gang(task)]
    held = [
        d
        for d in context.in_states(context.gang(), S.LAUNCHING, S.IDLE)
        if d.container_id is not None
    ]
    if gang_requests:
        containers.cancel_requests(context)
    for data in held:
        tasks.release(context, data, "the rest of the gang did not come in time")
    state.allocations += 1
    delay = min(plan.backoff_s * 2 ** (state.allocations - 1), plan.backoff_max_s)
    delay *= 0.5 + context.jitter()
    context.set_time(context.gang_unit, "retry_at", context.now + delay)
    context.record(
        "gang-incomplete",
        f"only {len(held)} of the gang's containers came in time; they were given "
        f"back and all are asked for again in {delay:.1f}s",
        level=Level.WARNING,
    )


def _form(context: EventContext) -> None:
    """Form a generation once enough agents are idle and nothing of the last one can run any more.

    An elastic gang waits a little for more.
    """
    state, roles = context.state, context.gang()
    if context.live(roles) or any(context.count(role, (S.IDLE,)) < role.minimum for role in roles):
        state.elastic_until = None
        return
    living = containers.still_living(context)
    if blocked(context, [c for c in living if c.former and context.in_gang(c.former)]):
        return
    complete = all(
        context.count(role, (S.IDLE,)) >= role.maximum - _retired(context, role) for role in roles
    )
    if not complete and not context.passed(state.elastic_until):
        if state.elastic_until is None:
            state.elastic_until = context.now + context.plan.elastic_wait_s
        return
    state.elastic_until = state.hold_until = state.allocation_until = None
    state.allocations = 0
    state.generation += 1
    state.topology, state.rewired = None, False
    state.released.clear()
    chosen = context.in_states(roles, S.IDLE)
    for data in context.tasks(roles):
        data.member = data.state is S.IDLE
        if data.awaited:
            context.set_awaited(data, False)
    context.enter(JobPhase.STARTING)
    context.record(
        "generation-formed",
        f"generation {state.generation}: {len(chosen)} task{'s' * (len(chosen) != 1)}"
        + (f", from checkpoint {state.checkpoint} or newer" if state.checkpoint else ""),
    )
    for data in chosen:
        tasks.prepare(context, data, returns=False)


def _retired(context: EventContext, role: RolePlan) -> int:
    if role.minimum == role.maximum:
        return 0
    return sum(data.retired for data in context.tasks([role]))


def blocked(context: EventContext, living: list[ContainerData]) -> bool:
    """Whether an old agent may still run its program; said once for each."""
    for container in living:
        if container.silent and not container.announced:
            container.announced = True
            left = (container.deadline or context.now) - context.now
            context.record(
                "waiting-for-lease",
                f"the agent of {container.former} on {container.node} can't be reached; its program "
                f"may run for up to {left:.0f}s more, until its lease is over, and is not started "
                "elsewhere before",
                level=Level.WARNING,
            )
    return bool(living)


def _grow(context: EventContext) -> None:
    """An elastic gang that runs below its maximum takes new agents in: after a wait in which more may
    come, and once the checkpoint it is asked for is saved."""
    state, roles = context.state, context.gang()
    elastic = [role for role in roles if role.maximum > role.minimum]
    new = sum(context.count(role, (S.IDLE,)) for role in elastic)
    if not new or any(context.count(role, (S.SUCCEEDED,)) for role in roles):
        state.growth = None
        return
    growth = state.growth
    if growth is None:
        wait = context.plan.elastic_wait_s * 2 ** min(state.growths, 6)
        state.growth = growth = Growth(at=context.now + wait)
    if not growth.asked and context.passed(growth.at):
        growth.asked, growth.checkpoint = True, state.checkpoint
        limit = context.plan.grow_save_s if context.plan.checkpoints else 0.0
        growth.until = context.now + limit
        for data in context.in_states(roles, S.RUNNING):
            tasks.ask_to_save(context, data, "the gang is about to grow", growth.until)
    if growth.asked and (state.checkpoint != growth.checkpoint or context.passed(growth.until)):
        state.growing = True
        state.growths += 1
        context.record("growing", f"{new} more containers have come: the gang is formed anew")
        restart.break_gang(context, "the gang grows")


def _allocation_passed(context: EventContext) -> None:
    """The gang did not come together in time."""
    context.state.allocation_until = None
    missing = [
        data.task
        for role in context.gang()
        for data in context.in_states([role], S.WAITING, S.LAUNCHING)
        if data.task.index < role.minimum
    ]
    job_completion.finish(
        context,
        Outcome.TIMED_OUT,
        f"allocation time-out after {context.plan.allocation_s:g}s: no container for "
        f"{job_completion.names(missing)}",
        "Ask for less, wait longer (`[timeouts] allocation`), or free resources; "
        "`howdah doctor` shows what there is.",
    )
