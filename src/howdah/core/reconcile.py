"""Compare what should be with what is, and emit commands until nothing changes.

`reconcile` runs after every event. It looks at what is, never at what has just happened, so a thing
that was missed is seen again: first start, restart of one task or of a gang, growth and take-over
are the same code. For jobs of ten thousand tasks it looks at roles through their counts, and of
single tasks only at those that this event has touched; with ``everything`` it looks at all of them,
which changes nothing if nothing was missed (`settled` of tests/invariants.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from howdah.core import containers, gang, job_completion, restart
from howdah.core import task as tasks
from howdah.core.causes import RULES, FailureCause
from howdah.core.event_context import EventContext
from howdah.core.messages import Exit, Level
from howdah.core.plan import Completion, Join, RolePlan
from howdah.core.restart import BREAKING, ENDING, WORKING, JobMustEnd
from howdah.core.state import (
    LIVE,
    OVER,
    UP,
    ContainerData,
    Failure,
    FailureReport,
    JobPhase,
    Outcome,
    RestartUnit,
    TaskData,
    TaskState,
    UnitKind,
)
from howdah.spec.model import Lingering, Tracking

S = TaskState
_ROUNDS = 1000
"""An event whose handling has not come to rest after so many rounds never will: a defect."""


def reconcile(context: EventContext, *, everything: bool = False) -> None:
    """Bring the job as far as it can come now."""
    if everything:
        for data in context.state.tasks.values():
            context.touch(data)
    for _ in range(_ROUNDS):
        changes = context.changes
        try:
            _round(context)
        except JobMustEnd as end:
            job_completion.finish(context, Outcome.FAILED, end.reason, end.advice)
        if context.changes == changes and not context.touched:
            return
    raise AssertionError(f"the machine does not come to rest after {context.cause}")


def _round(context: EventContext) -> None:
    state = context.state
    for timed in context.index.pop_due(context.now):
        _overdue(context, timed)
    restart.take_reports(context)
    if state.phase is JobPhase.FINISHED:
        context.touched.clear()
        return
    if context.passed(state.total_until):
        state.total_until = None
        _total_passed(context)
    _complete(context)
    _hang(context)
    gang.step(context)
    touched, context.touched = context.touched, {}
    for data in touched.values():
        _alone(context, data)
    _bring_up(context)
    _linger(context)
    job_completion.conclude(context)


# -- times that have come -----------------------------------------------------------------------------


def _overdue(context: EventContext, timed: TaskData | ContainerData | RestartUnit) -> None:
    if isinstance(timed, ContainerData):
        containers.on_overdue(context, timed)
    elif isinstance(timed, TaskData):
        _task_overdue(context, timed)
    elif timed.kind is not UnitKind.GANG:
        context.touched[timed.name] = context.state.tasks[timed.name]


def _task_overdue(context: EventContext, data: TaskData) -> None:
    """A program did not join its peers, or an attempt did not end, in time."""
    if data.deadline is None or data.deadline > context.now:
        return
    context.set_time(data, "deadline", None)
    container = context.container(data)
    if data.state not in (S.STARTING, S.RUNNING, S.STOPPING) or container is None:
        return
    if data.state is S.STOPPING or data.exit is not None:
        tasks.give_up(context, container, "its attempt could not be ended")
    elif context.in_gang(data.task) and context.state.phase is JobPhase.STARTING:
        _startup_passed(context, data)
    else:
        role = context.role(data.task)
        what = f"{data.task} did not join its peers within its start-up time-out of {role.startup_s:g}s"
        tasks.report_failure(context, data, FailureCause.STARTUP_TIMEOUT, what)
        tasks.stop(context, data, what, grace_s=role.restart_grace_s, save_s=0.0)


def _startup_passed(context: EventContext, late: TaskData) -> None:
    """Somebody has not met its peers in time: say who, and end the job."""
    limit = context.role(late.task).startup_s
    missing = [data for data in context.tasks(context.gang()) if data.awaited]
    joined = [data.task for data in context.tasks(context.gang()) if data.joined]
    reason = f"start-up time-out after {limit:g}s: {_missing(context, missing)}"
    reason += f"; waiting for it: {job_completion.names(joined)}" if joined else ""
    report = FailureReport(
        task=missing[0].task if missing else late.task,
        attempt=late.attempt,
        generation=context.state.generation,
        cause=FailureCause.STARTUP_TIMEOUT,
        time=context.now,
        what=reason,
    )
    context.state.failures.append(Failure(report=report, counted=False))
    job_completion.finish(
        context, Outcome.TIMED_OUT, reason, RULES[FailureCause.STARTUP_TIMEOUT].advice
    )


def _missing(context: EventContext, missing: Sequence[TaskData]) -> str:
    parts: list[str] = []
    for data in missing:
        if data.state in UP:
            one = len(data.ports) == 1
            ports = f"port{'' if one else 's'} {', '.join(map(str, data.ports)) or 'none'}"
            match context.role(data.task).join:
                case Join.NETWORK:
                    text = (
                        f"{data.task} never joined (its program runs, but neither listens on its "
                        f"{ports} nor is connected to a peer)"
                    )
                case Join.REPORT:
                    text = f"{data.task} never joined (its program runs, but did not say so)"
                case Join.NOW:
                    text = f"{data.task} was not seen running"
        else:
            text = f"{data.task} never started (it is {data.state.value})"
        parts.append(text)
    return "; ".join(parts[:5]) + (f"; and {len(parts) - 5} more" if len(parts) > 5 else "")


def _total_passed(context: EventContext) -> None:
    job_completion.finish(
        context,
        Outcome.TIMED_OUT,
        f"the job took longer than its total time-out of {context.plan.total_s:g}s",
        "Raise `[timeouts] total`, or checkpoint and continue with `howdah rerun --resume`.",
    )


# -- completion ---------------------------------------------------------------------------------------


def _complete(context: EventContext) -> None:
    """Which success completes a stage, and with the last stage the job.

    Also while a failure window is open: what has succeeded has, whatever failed beside it.
    """
    state = context.state
    if state.phase not in (*WORKING, JobPhase.FAILURE_WINDOW):
        return
    if context.plan.completion is Completion.CHIEF:
        for role in context.gang():
            if role.chief and role.tracking is Tracking.TRACKED:
                chief = context.state.tasks[f"{role.name}:0"]
                if chief.state is S.SUCCEEDED:
                    _stage_done(context, f"{chief.task} succeeded")
                return
    if _stage_succeeded(context):
        waited_for = " that were waited for" if state.released else ""
        _stage_done(context, f"all tracked tasks{waited_for} succeeded{_but(context)}")


def _but(context: EventContext) -> str:
    """Which tasks had failed, where that is tolerated."""
    roles = [role for role in context.plan.roles if role.tolerated_from is not None]
    failed = [data.task for data in context.in_states(roles, S.ENDED) if data.retired]
    return f" but {job_completion.names(failed)}, which may fail (tolerate)" if failed else ""


def _stage_succeeded(context: EventContext) -> bool:
    """Every tracked task of the present stage's generation has succeeded."""
    tracked = [
        role
        for role in context.gang()
        if role.tracking is Tracking.TRACKED and role.name not in context.state.released
    ]
    for role in tracked:
        succeeded = context.count(role, (S.SUCCEEDED,))
        if succeeded == role.maximum or _tolerably_over(context, role):
            continue
        if succeeded < role.minimum or role.minimum == role.maximum:
            return False
        if any(d.member and d.state is not S.SUCCEEDED for d in context.tasks([role])):
            return False
    return bool(tracked)


def _tolerably_over(context: EventContext, role: RolePlan) -> bool:
    """Each of its tasks has succeeded, or failed for good where that is tolerated."""
    if role.tolerated_from is None or context.count(role, OVER) < role.maximum:
        return False
    return all(data.retired for data in context.in_states([role], S.ENDED))


def _stage_done(context: EventContext, why: str) -> None:
    state = context.state
    if state.stage >= max(role.stage for role in context.plan.roles):
        job_completion.finish(context, Outcome.SUCCEEDED, why)
        return
    context.record("stage-done", f"stage {state.stage} is done: {why}")
    for data in context.in_states(context.gang(), *OVER):
        if data.container_id is not None and context.role(data.task).tracking is Tracking.TRACKED:
            tasks.release(context, data, "its stage is done")
    state.elastic_until = state.hold_until = state.growth = None
    state.stage += 1
    state.topology = None
    restart.pass_to_servers(context)
    for name in sorted(context.index.awaited):
        context.set_awaited(state.tasks[name], False)
    gang.allocate(context)
    for role in context.servers():
        for data in context.tasks([role]):
            context.touch(data)


# -- single tasks -------------------------------------------------------------------------------------


def _alone(context: EventContext, data: TaskData) -> None:
    """A task that restarts by itself: judge its failure, start it again when its time has come."""
    state = context.state
    if state.phase in ENDING or data.retired:
        return
    member = context.in_gang(data.task)
    unit = state.units.get(str(data.task))
    if member and state.phase in BREAKING:
        if unit is not None and context.passed(unit.retry_at):
            context.set_time(unit, "retry_at", None)
        return  # the gang brings it back
    done = data.state is S.SUCCEEDED and data.container_id is not None
    if done and (context.each() or not member):
        tasks.release(context, data, "it is done")  # others may wait for the room it takes
    if unit is not None and unit.kind is not UnitKind.GANG:
        restart.judge_alone(context, data, unit)
        if unit.window_until is not None or data.retired:
            return
        if unit.retry_at is not None:
            if not context.passed(unit.retry_at):
                return
            context.set_time(unit, "retry_at", None)
            if data.state in OVER and data.state is not S.SUCCEEDED:
                tasks.renew(context, data)
            return
    if not member and data.state is S.ENDED and _serves(context, data):
        tasks.renew(context, data)  # it was ended with a gang that is not its own


def _serves(context: EventContext, data: TaskData) -> bool:
    """Whether a task beside the gang is to run on: a sidecar, or a server of an earlier stage."""
    role = context.role(data.task)
    return role.tracking is not Tracking.TRACKED and role.name not in context.state.released


def _bring_up(context: EventContext) -> None:
    """Ask for containers, prepare and start, wherever that is possible now."""
    if context.state.phase in ENDING:
        return
    containers.forgive(context)
    _request_missing(context)
    _prepare_idle(context)
    _start_prepared(context)


def _request_missing(context: EventContext) -> None:
    wanted: list[TaskData] = []
    for role in context.opened():
        numbers = context.index.unrequested[role.name]
        if not numbers or not _container_wanted(context, role):
            continue
        for number in sorted(numbers):
            data = context.state.tasks[f"{role.name}:{number}"]
            unit = context.state.units.get(f"{role.name}:{number}")
            if data.retired or (unit is not None and unit.retry_at is not None):
                continue
            wanted.append(data)
    containers.request(context, wanted)


def _container_wanted(context: EventContext, role: RolePlan) -> bool:
    if role.tracking is Tracking.SIDECAR:
        return True
    if role.stage < context.state.stage:
        return role.tracking is Tracking.UNTRACKED
    if context.state.phase not in WORKING:
        return False
    retry_at = context.gang_unit.retry_at
    return retry_at is None or context.passed(retry_at)


def _prepare_idle(context: EventContext) -> None:
    running = context.state.phase in (JobPhase.STARTING, JobPhase.RUNNING)
    for role in context.opened():
        if not context.count(role, (S.IDLE,)):
            continue
        member = role.stage == context.state.stage and role.tracking is not Tracking.SIDECAR
        if member and not context.each() and not running:
            continue
        if member and context.state.phase not in WORKING:
            continue
        living = containers.still_living(context)
        for data in context.in_states([role], S.IDLE):
            if member and not context.each() and not data.member:
                continue
            if living and gang.blocked(context, [c for c in living if c.former == data.task]):
                continue
            if member and context.each():
                context.state.generation = max(context.state.generation, 1)
            if not member or context.each():
                data.member = data.member or member
            tasks.prepare(context, data, returns=member and data.attempt > 0 and running)


def _start_prepared(context: EventContext) -> None:
    """Start every prepared task that waits for nothing any more."""
    for role in context.opened():
        if not context.count(role, (S.PREPARED,)):
            continue
        member = role.stage == context.state.stage and role.tracking is not Tracking.SIDECAR
        if member and context.state.phase not in WORKING:
            continue
        if member and not context.each() and not _barrier_open(context):
            continue
        if not all(_ready(context, context.plan.role(name)) for name in role.after):
            continue
        for data in context.in_states([role], S.PREPARED):
            tasks.start(context, data)


def _barrier_open(context: EventContext) -> bool:
    """All members of the generation are prepared; stays open for it once it has been."""
    if context.state.topology is not None:
        return True
    for role in context.gang():
        if role.minimum == role.maximum:
            members = role.maximum
            if role.tolerated_from is not None:
                members -= sum(data.retired for data in context.in_states([role], S.ENDED))
        else:
            members = sum(data.member and not data.retired for data in context.tasks([role]))
        if context.count(role, (S.PREPARED,)) < members:
            return False
    return True


def _ready(context: EventContext, role: RolePlan) -> bool:
    """All its tasks that take part have joined, or have succeeded already."""
    if len(context.index.joined[role.name]) >= role.maximum:
        return True
    fixed = role.minimum == role.maximum and role.tolerated_from is None
    if fixed and role.tracking is not Tracking.SIDECAR:
        return False
    for data in context.tasks([role]):
        if data.retired:
            continue
        if data.member or data.task.index < role.minimum:
            if not (data.joined or data.state is S.SUCCEEDED):
                return False
    return True


# -- hang and linger ----------------------------------------------------------------------------------


def _hang(context: EventContext) -> None:
    """All stacks are there, or have been waited for long enough: the hung attempt is ended."""
    check = context.state.hang
    if check is None or (check.awaiting and not context.passed(check.until)):
        return
    context.state.hang = None
    context.changes += 1
    data = context.task(check.task)
    if data.attempt != check.attempt or data.state not in UP or context.state.phase not in WORKING:
        return
    lines = [
        f"{note.task}: {note.innermost or note.problem or '?'}"
        for note in sorted(check.stacks, key=lambda note: note.task)
    ]
    lines += [f"{task}: no stacks came" for task in check.awaiting]
    context.record("stacks", "; ".join(lines[:16]), level=Level.ERROR, data=data, stacks=lines)
    what = f"{data.task} hung: no progress for {check.idle_s:.0f}s"
    tasks.report_failure(context, data, FailureCause.HANG, what, Exit(tail=tuple(lines)))
    role = context.role(data.task)
    tasks.stop(context, data, what, grace_s=role.restart_grace_s, save_s=role.save_s)


def _linger(context: EventContext) -> None:
    """Time-outs that begin when other roles are done: an evaluator that never ends, a stuck worker."""
    state = context.state
    for role in context.plan.roles:
        if role.linger_s is None:
            continue
        waiting = (
            state.phase in WORKING
            and role.name not in state.released
            and context.count(role, LIVE) > 0
            and all(_done(context, context.plan.role(other)) for other in role.lingers_after)
        )
        if not waiting:
            state.linger.pop(role.name, None)
        elif role.name not in state.linger:
            state.linger[role.name] = context.now + role.linger_s
        elif context.passed(state.linger[role.name]):
            del state.linger[role.name]
            _linger_passed(context, role)


def _done(context: EventContext, role: RolePlan) -> bool:
    """All its tasks have succeeded, or failed where they may; of an elastic role, all that take part."""
    if _tolerably_over(context, role):
        return True
    succeeded = context.count(role, (S.SUCCEEDED,))
    if role.minimum == role.maximum:
        return succeeded == role.maximum
    return succeeded > 0 and all(d.state is S.SUCCEEDED for d in context.tasks([role]) if d.member)


def _linger_passed(context: EventContext, role: RolePlan) -> None:
    """The role had its time: the job has timed out, or goes on without it."""
    late = context.in_states([role], *LIVE)
    others = " and ".join(role.lingers_after)
    what = (
        f"{job_completion.names([data.task for data in late])} still ran {role.linger_s:g}s after {others} "
        "had succeeded"
    )
    if role.linger_then is Lingering.FAIL:
        advice = (
            "Find out why it does not end (`howdah stack` shows where it is), give it more time "
            f"(`[roles.{role.name}.linger] limit`), or let the job succeed without it "
            '(`then = "stop"`).'
        )
        job_completion.finish(context, Outcome.TIMED_OUT, what, advice)
        return
    context.record("role-released", f"{what}; it is no longer waited for", level=Level.WARNING)
    context.state.released.append(role.name)
    if role.linger_then is Lingering.UNTRACK:
        return
    for data in late:
        why = "it was waited for long enough"
        tasks.stop(context, data, why, grace_s=role.grace_s, save_s=role.save_s)
