"""One policy for every unit: from failure reports to a cause, and from the cause to a restart or the end.

At the first report a failure window opens. A gang's survivors are ended at once, since a broken
collective does nothing useful; stronger reports may still come (the node was lost, the container was
preempted), so the cause is chosen when the window is over and everything has ended. Then it is
counted: against the unit's budget, or among the restarts in a row without progress that do not
count; both back off. A task that restarts alone, a server of an earlier stage and a sidecar are
judged by the same rules, each by itself. What is optional never ends the job.
"""

from __future__ import annotations

from howdah.core import task as tasks
from howdah.core.causes import RULES, FailureCause
from howdah.core.event_context import EventContext
from howdah.core.messages import Level, Task
from howdah.core.plan import RolePlan
from howdah.core.state import (
    LIVE,
    OVER,
    Failure,
    FailureReport,
    JobPhase,
    RestartUnit,
    TaskData,
    TaskState,
    UnitKind,
)
from howdah.spec.model import Restart, Tracking

S = TaskState
EXPLAIN_S = 15.0
"""The backend's word on why an agent was lost is waited for so long."""
STICKY_TRIES = 3
"""Attempts to come back at the same address before the whole gang moves."""
WORKING = (JobPhase.ALLOCATING, JobPhase.STARTING, JobPhase.RUNNING)
BREAKING = (JobPhase.FAILURE_WINDOW, JobPhase.RESTARTING)
ENDING = (JobPhase.FINISHING, JobPhase.FINISHED)


class JobMustEnd(Exception):
    """The job has to end: raised by what judges, caught by `reconcile`."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice


# -- reports ----------------------------------------------------------------------------------------


def take_reports(context: EventContext) -> None:
    """Give each report to the unit that is to restart."""
    reports, context.reports = context.reports, []
    losses, context.losses = context.losses, []
    if context.state.phase in ENDING:
        return
    for report in reports:
        data = context.task(report.task)
        unit = _unit_of(context, data, report)
        unit.reports.append(report)
        context.changes += 1
        if unit.window_until is None:
            context.set_time(unit, "window_until", context.now + context.plan.failure_window_s)
        if unit.kind is UnitKind.GANG and context.state.phase in WORKING:
            break_gang(context, report.what)
        context.touch(data)
    for report in losses:
        _lost_before_start(context, report)


def _unit_of(context: EventContext, data: TaskData, report: FailureReport) -> RestartUnit:
    """Whose failure this is: the task's alone, or its gang's."""
    if context.alone(data):
        return context.own_unit(data)
    if context.state.phase in BREAKING:
        return context.gang_unit
    if _alone(context, data) or _tolerated(context, report):
        return context.own_unit(data)
    return context.gang_unit


def _tolerated(context: EventContext, report: FailureReport) -> bool:
    """A failure of the task's own, which the job does without the task after. A machine that was
    lost is no such failure."""
    return context.tolerated(report.task) and RULES[report.cause].counted


def _alone(context: EventContext, data: TaskData) -> bool:
    """A member of the gang that can come back without the others."""
    role = context.role(data.task)
    if role.restart is not Restart.TASK or role.stop_on_failure:
        return False
    return not (role.sticky_ports and data.container_id is None)


def break_gang(context: EventContext, why: str) -> None:
    """End every member of the gang at once; what its members have reported alone is the gang's now."""
    state, gang = context.state, context.gang_unit
    context.enter(JobPhase.FAILURE_WINDOW)
    state.hang = state.growth = None
    state.hold_until = state.elastic_until = state.allocation_until = None
    if gang.window_until is None:
        context.set_time(gang, "window_until", context.now + context.plan.failure_window_s)
    context.set_time(gang, "retry_at", None)
    for unit in list(state.units.values()):
        if unit is not gang and context.in_gang(state.tasks[unit.name].task):
            gang.reports += unit.reports
            unit.reports = []
            context.set_time(unit, "window_until", None)
            context.set_time(unit, "explain_until", None)
            context.set_time(unit, "retry_at", None)
    stop_gang(context, why)


def stop_gang(context: EventContext, why: str) -> None:
    """Tell every member that is not ending yet to end."""
    for role in context.gang():
        grace_s = role.grace_s if context.state.growing else role.restart_grace_s
        for data in context.in_states([role], S.PREPARING, S.PREPARED, S.STARTING, S.RUNNING):
            tasks.stop(context, data, why, grace_s=grace_s, save_s=role.save_s)


# -- judging ----------------------------------------------------------------------------------------


def judge_gang(context: EventContext) -> None:
    """When the window is over and everything has ended: name the cause, restart or end.

    Raises:
        End: no restart is left.
    """
    state, gang = context.state, context.gang_unit
    if gang.window_until is None or not context.passed(gang.window_until):
        return
    if context.live(context.gang()):
        return
    if _may_be_explained(context, gang):
        return
    grown, state.growing = state.growing, False
    reports = _close_window(context, gang)
    if not reports:
        why = "the gang grows" if grown else "the gang broke"
        _restart_gang(context, 0.0, why)
        return
    failure = _classify(context, gang, reports)
    report = failure.report
    optional = context.optional(context.task(report.task))
    verdict = _judge(context, gang, failure, context.role(report.task))
    context.record(
        "generation-ended",
        f"{report.what} [{report.cause.value}]" + (f"; {verdict}" if verdict else ""),
        level=Level.ERROR,
        cause=report.cause.value,
        task=str(report.task),
        counted=failure.counted,
        secondary=failure.secondary,
    )
    if verdict and not (optional and _can_shrink(context, report.task)):
        raise JobMustEnd(f"{report.what}; {verdict}", RULES[report.cause].advice)
    if verdict:
        retire(context, context.task(report.task), f"{report.what}; {verdict}")
    _restart_gang(context, _delay(context, gang, failure.counted), report.what)


def judge_at_stop(context: EventContext) -> str:
    """Judge the failures that are known and not judged yet, since a stop ends the wait for others.

    Returns what failed, or nothing.

    Raises:
        JobMustEnd: no restart would have been left: the job has failed, whoever stops it then.
    """
    seen = ""
    for unit in context.state.units.values():
        if unit.kind is UnitKind.SIDECAR or not unit.reports:
            continue
        failure = _classify(context, unit, _close_window(context, unit))
        report = failure.report
        if _tolerated(context, report):
            continue
        verdict = _judge(context, unit, failure, context.role(report.task))
        if verdict and not context.optional(context.task(report.task)):
            raise JobMustEnd(f"{report.what}; {verdict}", RULES[report.cause].advice)
        seen = seen or report.what
    return seen


def _can_shrink(context: EventContext, task: Task) -> bool:
    role = context.role(task)
    return not role.stop_on_failure and role.restart is not Restart.NEVER


def _may_be_explained(context: EventContext, unit: RestartUnit) -> bool:
    """Whether the backend's own word on a lost container may still come, and is waited for."""
    unexplained = any(
        not container.ended and _concerns(context, unit, container.former)
        for container in map(context.state.containers.__getitem__, context.index.given_up)
    )
    if not unexplained:
        return False
    if unit.explain_until is None:
        context.set_time(unit, "explain_until", context.now + EXPLAIN_S)
    return not context.passed(unit.explain_until)


def _concerns(context: EventContext, unit: RestartUnit, former: Task | None) -> bool:
    if former is None:
        return False
    return context.in_gang(former) if unit.kind is UnitKind.GANG else unit.name == str(former)


def _close_window(context: EventContext, unit: RestartUnit) -> list[FailureReport]:
    context.set_time(unit, "window_until", None)
    context.set_time(unit, "explain_until", None)
    reports, unit.reports = unit.reports, []
    return reports


def judge_alone(context: EventContext, data: TaskData, unit: RestartUnit) -> None:
    """The same for a task that restarts alone.

    Raises:
        End: no restart is left, and the job cannot do without it.
    """
    if unit.window_until is None or not context.passed(unit.window_until) or not unit.reports:
        return
    if data.state in LIVE:
        return  # it has a deadline of its own to end
    if _may_be_explained(context, unit):
        return
    tolerated = all(_tolerated(context, report) for report in unit.reports)
    if unit.kind is UnitKind.TASK and not _alone(context, data) and not tolerated:
        break_gang(context, unit.reports[0].what)  # with its container went its address
        return
    failure = _classify(context, unit, _close_window(context, unit))
    report = failure.report
    if _tolerated(context, report):
        failure.counted = False
        retire(context, data, f"{report.what} [{report.cause.value}]")
        if _all_failed(context):
            raise JobMustEnd(
                f"{report.what}; every tracked task has failed", RULES[report.cause].advice
            )
        return
    verdict = _judge(context, unit, failure, context.role(data.task))
    if failure.counted:
        data.counted = unit.counted
    if verdict:
        if not context.optional(data):
            raise JobMustEnd(f"{report.what}; {verdict}", RULES[report.cause].advice)
        retire(context, data, f"{report.what}; {verdict}")
        return
    if report.cause is FailureCause.PORT_TAKEN and unit.ports_taken >= STICKY_TRIES:
        if unit.kind is UnitKind.TASK and context.role(data.task).sticky_ports:
            context.record("address-lost", f"{report.what}; the gang moves", level=Level.WARNING)
            break_gang(context, report.what)
            return
    context.state.restarts += 1
    delay = _delay(context, unit, failure.counted)
    if unit.kind is UnitKind.SIDECAR:
        delay = context.plan.backoff_s * 2 ** min(unit.counted + unit.uncounted, 9)
    context.record(
        "task-restarting",
        f"{report.what} [{report.cause.value}]; it is started again"
        + (f" in {delay:.1f}s" if delay else ""),
        level=Level.WARNING,
        data=data,
        cause=report.cause.value,
        counted=failure.counted,
    )
    context.set_time(unit, "retry_at", context.now + delay)


def _all_failed(context: EventContext) -> bool:
    """No tracked task has succeeded, or may yet."""
    tracked = (role for role in context.plan.roles if role.tracking is Tracking.TRACKED)
    return all(data.retired for data in context.tasks(tracked))


def _classify(context: EventContext, unit: RestartUnit, reports: list[FailureReport]) -> Failure:
    """The strongest report; of equals the earliest."""
    report = min(reports, key=lambda r: (-RULES[r.cause].strength, r.time))
    failure = Failure(
        report=report,
        counted=_counts(unit, report),
        secondary=len(reports) - 1,
        lines=report.exit.tail if report.exit else (),
    )
    if context.role(report.task).tracking is Tracking.SIDECAR and not failure.counted:
        # It may go on for as long as the job: the newest one tells all.
        context.state.failures = [f for f in context.state.failures if not _same_again(f, report)]
    context.state.failures.append(failure)
    return failure


def _counts(unit: RestartUnit, report: FailureReport) -> bool:
    """Whether it counts against the unit's budget."""
    rule = RULES[report.cause]
    if rule.free is None:
        return rule.counted
    unit.ports_taken += 1
    return unit.ports_taken > rule.free


def _same_again(failure: Failure, report: FailureReport) -> bool:
    old = failure.report
    return not failure.counted and (old.task, old.cause) == (report.task, report.cause)


def _judge(context: EventContext, unit: RestartUnit, failure: Failure, role: RolePlan) -> str:
    """Count the failure; returns why there is no restart, or nothing if there is one."""
    rule = RULES[failure.report.cause]
    _count(context, unit, failure.counted)
    if role.stop_on_failure:
        return f"a failure of role {role.name} ends the job (stop-on-failure)"
    if role.restart is Restart.NEVER:
        return f'role {role.name} is not restarted (restart = "never")'
    if not rule.again and not (
        failure.report.cause is FailureCause.STARTUP_TIMEOUT and unit.kind is not UnitKind.GANG
    ):
        return "trying again would not help"
    if _same_defect(context, unit, failure):
        return "it failed in the same way twice, so trying again would not help"
    if failure.counted and unit.counted >= role.attempts:
        if role.attempts == 1:
            return "its one attempt is spent"
        return f"all {role.attempts} attempts are spent"
    if unit.kind is UnitKind.SIDECAR and not failure.counted:
        return ""  # it waits longer and longer for better times
    if not failure.counted and unit.uncounted > context.plan.retry_limit:
        return f"{unit.uncounted - 1} restarts in a row without progress"
    return ""


def _same_defect(context: EventContext, unit: RestartUnit, failure: Failure) -> bool:
    """Whether the failure before was the same defect of the program, with no progress since."""
    before = context.state.failures[-2:-1]
    return (
        unit.setbacks > 1
        and bool(_defect(failure))
        and any(_defect(old) == _defect(failure) for old in before)
    )


def _defect(failure: Failure) -> str:
    exit = failure.report.exit
    return exit.defect if exit is not None else ""


def _count(context: EventContext, unit: RestartUnit, counted: bool) -> None:
    quiet = (
        unit.last_failure is not None and context.now - unit.last_failure >= context.plan.progress_s
    )
    if quiet:
        progressed(unit)
    unit.last_failure = context.now
    if counted:
        unit.counted += 1
        unit.setbacks += 1
    else:
        unit.uncounted += 1


def progressed(unit: RestartUnit) -> None:
    """What does not count is no longer in a row."""
    unit.setbacks = unit.uncounted = 0


def _delay(context: EventContext, unit: RestartUnit, counted: bool) -> float:
    """The first restart comes at once, repeated ones without progress later and later."""
    repeats = unit.setbacks if counted else unit.uncounted
    if repeats <= 1:
        return 0.0
    delay = min(context.plan.backoff_s * 2 ** min(repeats - 2, 16), context.plan.backoff_max_s)
    return delay * (0.5 + context.jitter())


def _restart_gang(context: EventContext, delay_s: float, why: str) -> None:
    context.state.restarts += 1
    context.enter(JobPhase.RESTARTING)
    context.set_time(context.gang_unit, "retry_at", context.now + delay_s)
    context.record(
        "restarting", "the gang restarts" + (f" in {delay_s:.1f}s" if delay_s else ""), why=why
    )


# -- what had not begun, and what is given up ---------------------------------------------------------


def _lost_before_start(context: EventContext, report: FailureReport) -> None:
    """No program ran in it yet: another container will do, unless that goes on for ever."""
    state = context.state
    data, rule = context.task(report.task), RULES[report.cause]
    alone = context.optional(data) or context.alone(data) or _alone(context, data)
    unit = context.own_unit(data) if alone else context.gang_unit
    if unit.kind is UnitKind.GANG and state.phase in BREAKING:
        return
    _count(context, unit, counted=False)
    if unit.uncounted > context.plan.retry_limit and not context.optional(data):
        raise JobMustEnd(f"{report.what}; too many in a row", rule.advice)
    if unit.uncounted > 2:
        delay = context.plan.backoff_s * 2 ** min(unit.uncounted - 3, 6)
        delay = min(delay, context.plan.backoff_max_s) * (0.5 + context.jitter())
        if unit.retry_at is None:
            context.set_time(unit, "retry_at", context.now + delay)


def retire(context: EventContext, data: TaskData, why: str) -> None:
    """The job goes on without this task, which is optional or tolerated to fail."""
    data.retired = True
    # The others keep their ranks, and its place in the world.
    data.member = data.member and context.tolerated(data.task)
    if data.awaited:
        context.set_awaited(data, False)
    context.index.unrequested[data.task.role].discard(data.task.index)
    unit = context.own_unit(data)
    context.set_time(unit, "retry_at", None)
    context.set_time(unit, "window_until", None)
    if data.container_id is not None and data.state not in LIVE:
        tasks.release(context, data, "it is not started again")
    sidecar = context.role(data.task).tracking is Tracking.SIDECAR
    context.record(
        "sidecar-retired" if sidecar else "task-retired",
        f"{why}; the job goes on without it",
        level=Level.WARNING,
        data=data,
    )


def pass_to_servers(context: EventContext) -> None:
    """A stage is done whatever failed in it: only its servers are still to be judged, each alone."""
    context.state.growing = False
    for report in _close_window(context, context.gang_unit):
        data = context.task(report.task)
        if context.role(data.task).tracking is not Tracking.TRACKED:
            unit = context.own_unit(data)
            unit.reports.append(report)
            context.set_time(unit, "window_until", context.now + context.plan.failure_window_s)


def renew_gang(context: EventContext) -> None:
    """Free the members for the next generation, and try again what had failed and was tolerated."""
    _close_window(context, context.gang_unit)
    for role in context.gang():
        for data in context.in_states([role], *OVER):
            if context.tolerated(data.task):
                data.retired = False
            if not data.retired:
                tasks.renew(context, data)
