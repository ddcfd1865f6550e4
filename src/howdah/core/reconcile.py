"""Compare what should be with what is, and emit commands until nothing changes.

`reconcile` runs after every event. It looks at what is, never at what has just happened, so a thing
that was missed is seen again: first start, restart of one task or of a gang, growth and take-over
are the same code. For jobs of ten thousand tasks it looks at roles through their counts, and of
single tasks only at those that this turn has touched; with ``everything`` it looks at all of them,
which changes nothing if nothing was missed (`howdah.core.invariants.settled`).
"""

from __future__ import annotations

from collections.abc import Sequence

from howdah.core import containers, ending, gang, restart
from howdah.core import task as tasks
from howdah.core.causes import RULES, FailureCause
from howdah.core.messages import Exit, Level
from howdah.core.plan import Completion, Join, RolePlan
from howdah.core.restart import BREAKING, ENDING, WORKING, End
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
from howdah.core.turn import Turn
from howdah.spec.model import Lingering, Tracking

S = TaskState
_ROUNDS = 1000
"""A turn that has not come to rest after so many rounds never will: a defect."""


def reconcile(turn: Turn, *, everything: bool = False) -> None:
    """Bring the job as far as it can come now."""
    if everything:
        for data in turn.state.tasks.values():
            turn.touch(data)
    for _ in range(_ROUNDS):
        changes = turn.changes
        try:
            _round(turn)
        except End as end:
            ending.finish(turn, Outcome.FAILED, end.reason, end.advice)
        if turn.changes == changes and not turn.touched:
            return
    raise AssertionError(f"the machine does not come to rest after {turn.cause}")


def _round(turn: Turn) -> None:
    state = turn.state
    for timed in turn.index.pop_due(turn.now):
        _overdue(turn, timed)
    restart.take_reports(turn)
    if state.phase is JobPhase.FINISHED:
        turn.touched.clear()
        return
    if turn.passed(state.total_until):
        state.total_until = None
        _total_passed(turn)
    _complete(turn)
    _hang(turn)
    gang.step(turn)
    touched, turn.touched = turn.touched, {}
    for data in touched.values():
        _alone(turn, data)
    _bring_up(turn)
    _linger(turn)
    ending.conclude(turn)


# -- times that have come -----------------------------------------------------------------------------


def _overdue(turn: Turn, timed: TaskData | ContainerData | RestartUnit) -> None:
    if isinstance(timed, ContainerData):
        containers.on_overdue(turn, timed)
    elif isinstance(timed, TaskData):
        _task_overdue(turn, timed)
    elif timed.kind is not UnitKind.GANG:
        turn.touched[timed.name] = turn.state.tasks[timed.name]


def _task_overdue(turn: Turn, data: TaskData) -> None:
    """A program did not join its peers, or an attempt did not end, in time."""
    if data.deadline is None or data.deadline > turn.now:
        return
    turn.set_time(data, "deadline", None)
    container = turn.container(data)
    if data.state not in (S.STARTING, S.RUNNING, S.STOPPING) or container is None:
        return
    if data.state is S.STOPPING or data.exit is not None:
        tasks.give_up(turn, container, "its attempt could not be ended")
    elif turn.in_gang(data.task) and turn.state.phase is JobPhase.STARTING:
        _startup_passed(turn, data)
    else:
        role = turn.role(data.task)
        what = f"{data.task} did not join its peers within its start-up time-out of {role.startup_s:g}s"
        tasks.report_failure(turn, data, FailureCause.STARTUP_TIMEOUT, what)
        tasks.stop(turn, data, what, grace_s=role.restart_grace_s, save_s=0.0)


def _startup_passed(turn: Turn, late: TaskData) -> None:
    """Somebody has not met its peers in time: say who, and end the job."""
    limit = turn.role(late.task).startup_s
    missing = [data for data in turn.tasks(turn.gang()) if data.awaited]
    joined = [data.task for data in turn.tasks(turn.gang()) if data.joined]
    reason = f"start-up time-out after {limit:g}s: {_missing(turn, missing)}"
    reason += f"; waiting for it: {ending.names(joined)}" if joined else ""
    report = FailureReport(
        task=missing[0].task if missing else late.task,
        attempt=late.attempt,
        generation=turn.state.generation,
        cause=FailureCause.STARTUP_TIMEOUT,
        time=turn.now,
        what=reason,
    )
    turn.state.failures.append(Failure(report=report, counted=False))
    ending.finish(turn, Outcome.TIMED_OUT, reason, RULES[FailureCause.STARTUP_TIMEOUT].advice)


def _missing(turn: Turn, missing: Sequence[TaskData]) -> str:
    parts: list[str] = []
    for data in missing:
        if data.state in UP:
            one = len(data.ports) == 1
            ports = f"port{'' if one else 's'} {', '.join(map(str, data.ports)) or 'none'}"
            match turn.role(data.task).join:
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


def _total_passed(turn: Turn) -> None:
    ending.finish(
        turn,
        Outcome.TIMED_OUT,
        f"the job ran longer than its total time-out of {turn.plan.total_s:g}s",
        "Raise `[timeouts] total`, or checkpoint and continue with `howdah rerun --resume`.",
    )


# -- completion ---------------------------------------------------------------------------------------


def _complete(turn: Turn) -> None:
    """Which success completes a stage, and with the last stage the job.

    Also while a failure window is open: what has succeeded has, whatever failed beside it.
    """
    state = turn.state
    if state.phase not in (*WORKING, JobPhase.FAILURE_WINDOW):
        return
    if turn.plan.completion is Completion.CHIEF:
        for role in turn.gang():
            if role.chief and role.tracking is Tracking.TRACKED:
                chief = turn.state.tasks[f"{role.name}:0"]
                if chief.state is S.SUCCEEDED:
                    _stage_done(turn, f"{chief.task} succeeded")
                return
    if _stage_succeeded(turn):
        waited_for = " that were waited for" if state.released else ""
        _stage_done(turn, f"all tracked tasks{waited_for} succeeded{_but(turn)}")


def _but(turn: Turn) -> str:
    """Which tasks had failed, where that is tolerated."""
    roles = [role for role in turn.plan.roles if role.tolerated_from is not None]
    failed = [data.task for data in turn.in_states(roles, S.ENDED) if data.retired]
    return f" but {ending.names(failed)}, which may fail (tolerate)" if failed else ""


def _stage_succeeded(turn: Turn) -> bool:
    """Every tracked task of the present stage's generation has succeeded."""
    tracked = [
        role
        for role in turn.gang()
        if role.tracking is Tracking.TRACKED and role.name not in turn.state.released
    ]
    for role in tracked:
        succeeded = turn.count(role, (S.SUCCEEDED,))
        if succeeded == role.maximum or _tolerably_over(turn, role):
            continue
        if succeeded < role.minimum or role.minimum == role.maximum:
            return False
        if any(d.member and d.state is not S.SUCCEEDED for d in turn.tasks([role])):
            return False
    return bool(tracked)


def _tolerably_over(turn: Turn, role: RolePlan) -> bool:
    """Each of its tasks has succeeded, or failed for good where that is tolerated."""
    if role.tolerated_from is None or turn.count(role, OVER) < role.maximum:
        return False
    return all(data.retired for data in turn.in_states([role], S.ENDED))


def _stage_done(turn: Turn, why: str) -> None:
    state = turn.state
    if state.stage >= max(role.stage for role in turn.plan.roles):
        ending.finish(turn, Outcome.SUCCEEDED, why)
        return
    turn.record("stage-done", f"stage {state.stage} is done: {why}")
    for data in turn.in_states(turn.gang(), *OVER):
        if data.container_id is not None and turn.role(data.task).tracking is Tracking.TRACKED:
            tasks.release(turn, data, "its stage is done")
    state.elastic_until = state.hold_until = state.growth = None
    state.stage += 1
    state.topology = None
    restart.pass_to_servers(turn)
    for name in sorted(turn.index.awaited):
        turn.set_awaited(state.tasks[name], False)
    gang.allocate(turn)
    for role in turn.servers():
        for data in turn.tasks([role]):
            turn.touch(data)


# -- single tasks -------------------------------------------------------------------------------------


def _alone(turn: Turn, data: TaskData) -> None:
    """A task that restarts by itself: judge its failure, start it again when its time has come."""
    state = turn.state
    if state.phase in ENDING or data.retired:
        return
    member = turn.in_gang(data.task)
    unit = state.units.get(str(data.task))
    if member and state.phase in BREAKING:
        if unit is not None and turn.passed(unit.retry_at):
            turn.set_time(unit, "retry_at", None)
        return  # the gang brings it back
    if unit is not None and unit.kind is not UnitKind.GANG:
        restart.judge_alone(turn, data, unit)
        if unit.window_until is not None or data.retired:
            return
        if unit.retry_at is not None:
            if not turn.passed(unit.retry_at):
                return
            turn.set_time(unit, "retry_at", None)
            if data.state in OVER and data.state is not S.SUCCEEDED:
                tasks.renew(turn, data)
            return
    if not member and data.state is S.ENDED and _serves(turn, data):
        tasks.renew(turn, data)  # it was ended with a gang that is not its own


def _serves(turn: Turn, data: TaskData) -> bool:
    """Whether a task beside the gang is to run on: a sidecar, or a server of an earlier stage."""
    role = turn.role(data.task)
    return role.tracking is not Tracking.TRACKED and role.name not in turn.state.released


def _bring_up(turn: Turn) -> None:
    """Ask for containers, prepare and start, wherever that is possible now."""
    if turn.state.phase in ENDING:
        return
    containers.forgive(turn)
    _request_missing(turn)
    _prepare_idle(turn)
    _start_prepared(turn)


def _request_missing(turn: Turn) -> None:
    wanted: list[TaskData] = []
    for role in turn.opened():
        numbers = turn.index.unrequested[role.name]
        if not numbers or not _container_wanted(turn, role):
            continue
        for number in sorted(numbers):
            data = turn.state.tasks[f"{role.name}:{number}"]
            unit = turn.state.units.get(f"{role.name}:{number}")
            if data.retired or (unit is not None and unit.retry_at is not None):
                continue
            wanted.append(data)
    containers.request(turn, wanted)


def _container_wanted(turn: Turn, role: RolePlan) -> bool:
    if role.tracking is Tracking.SIDECAR:
        return True
    if role.stage < turn.state.stage:
        return role.tracking is Tracking.UNTRACKED
    if turn.state.phase not in WORKING:
        return False
    retry_at = turn.gang_unit.retry_at
    return retry_at is None or turn.passed(retry_at)


def _prepare_idle(turn: Turn) -> None:
    running = turn.state.phase in (JobPhase.STARTING, JobPhase.RUNNING)
    for role in turn.opened():
        if not turn.count(role, (S.IDLE,)):
            continue
        member = role.stage == turn.state.stage and role.tracking is not Tracking.SIDECAR
        if member and not turn.each() and not running:
            continue
        if member and turn.state.phase not in WORKING:
            continue
        living = containers.still_living(turn)
        for data in turn.in_states([role], S.IDLE):
            if member and not turn.each() and not data.member:
                continue
            if living and gang.blocked(turn, [c for c in living if c.former == data.task]):
                continue
            if member and turn.each():
                turn.state.generation = max(turn.state.generation, 1)
            if not member or turn.each():
                data.member = data.member or member
            tasks.prepare(turn, data, returns=member and data.attempt > 0 and running)


def _start_prepared(turn: Turn) -> None:
    """Start every prepared task that waits for nothing any more."""
    for role in turn.opened():
        if not turn.count(role, (S.PREPARED,)):
            continue
        member = role.stage == turn.state.stage and role.tracking is not Tracking.SIDECAR
        if member and turn.state.phase not in WORKING:
            continue
        if member and not turn.each() and not _barrier_open(turn):
            continue
        if not all(_ready(turn, turn.plan.role(name)) for name in role.after):
            continue
        for data in turn.in_states([role], S.PREPARED):
            tasks.start(turn, data)


def _barrier_open(turn: Turn) -> bool:
    """All members of the generation are prepared; stays open for it once it has been."""
    if turn.state.topology is not None:
        return True
    for role in turn.gang():
        if role.minimum == role.maximum:
            members = role.maximum
            if role.tolerated_from is not None:
                members -= sum(data.retired for data in turn.in_states([role], S.ENDED))
        else:
            members = sum(data.member and not data.retired for data in turn.tasks([role]))
        if turn.count(role, (S.PREPARED,)) < members:
            return False
    return True


def _ready(turn: Turn, role: RolePlan) -> bool:
    """All its tasks that take part have joined, or have succeeded already."""
    if len(turn.index.joined[role.name]) >= role.maximum:
        return True
    fixed = role.minimum == role.maximum and role.tolerated_from is None
    if fixed and role.tracking is not Tracking.SIDECAR:
        return False
    for data in turn.tasks([role]):
        if data.retired:
            continue
        if data.member or data.task.index < role.minimum:
            if not (data.joined or data.state is S.SUCCEEDED):
                return False
    return True


# -- hang and linger ----------------------------------------------------------------------------------


def _hang(turn: Turn) -> None:
    """All stacks are there, or have been waited for long enough: the hung attempt is ended."""
    check = turn.state.hang
    if check is None or (check.awaiting and not turn.passed(check.until)):
        return
    turn.state.hang = None
    turn.changes += 1
    data = turn.task(check.task)
    if data.attempt != check.attempt or data.state not in UP or turn.state.phase not in WORKING:
        return
    lines = [
        f"{note.task}: {note.innermost or note.problem or '?'}"
        for note in sorted(check.stacks, key=lambda note: note.task)
    ]
    lines += [f"{task}: no stacks came" for task in check.awaiting]
    turn.record("stacks", "; ".join(lines[:16]), level=Level.ERROR, data=data, stacks=lines)
    what = f"{data.task} hung: no progress for {check.idle_s:.0f}s"
    tasks.report_failure(turn, data, FailureCause.HANG, what, Exit(tail=tuple(lines)))
    role = turn.role(data.task)
    tasks.stop(turn, data, what, grace_s=role.restart_grace_s, save_s=role.save_s)


def _linger(turn: Turn) -> None:
    """Time-outs that begin when other roles are done: an evaluator that never ends, a stuck worker."""
    state = turn.state
    for role in turn.plan.roles:
        if role.linger_s is None:
            continue
        waiting = (
            state.phase in WORKING
            and role.name not in state.released
            and turn.count(role, LIVE) > 0
            and all(_done(turn, turn.plan.role(other)) for other in role.lingers_after)
        )
        if not waiting:
            state.linger.pop(role.name, None)
        elif role.name not in state.linger:
            state.linger[role.name] = turn.now + role.linger_s
        elif turn.passed(state.linger[role.name]):
            del state.linger[role.name]
            _linger_passed(turn, role)


def _done(turn: Turn, role: RolePlan) -> bool:
    """All its tasks have succeeded, or failed where they may; of an elastic role, all that take part."""
    if _tolerably_over(turn, role):
        return True
    succeeded = turn.count(role, (S.SUCCEEDED,))
    if role.minimum == role.maximum:
        return succeeded == role.maximum
    return succeeded > 0 and all(d.state is S.SUCCEEDED for d in turn.tasks([role]) if d.member)


def _linger_passed(turn: Turn, role: RolePlan) -> None:
    """The role had its time: the job has timed out, or goes on without it."""
    late = turn.in_states([role], *LIVE)
    others = " and ".join(role.lingers_after)
    what = (
        f"{ending.names([data.task for data in late])} still ran {role.linger_s:g}s after {others} "
        "had succeeded"
    )
    if role.linger_then is Lingering.FAIL:
        advice = (
            "Find out why it does not end (`howdah stack` shows where it is), give it more time "
            f"(`[roles.{role.name}.linger] limit`), or let the job succeed without it "
            '(`then = "stop"`).'
        )
        ending.finish(turn, Outcome.TIMED_OUT, what, advice)
        return
    turn.record("role-released", f"{what}; it is no longer waited for", level=Level.WARNING)
    turn.state.released.append(role.name)
    if role.linger_then is Lingering.UNTRACK:
        return
    for data in late:
        why = "it was waited for long enough"
        tasks.stop(turn, data, why, grace_s=role.grace_s, save_s=role.save_s)
