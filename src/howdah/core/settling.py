"""From signs to a cause: a settling window, one judgement, a restart or the end.

At the first sign the survivors of a gang are ended at once, since a broken collective has nothing
left to save. Stronger signs may still come (the node was lost, the container was preempted), so the
cause is chosen when everything has ended and `Plan.settle_s` has passed. A task that restarts alone
settles alone, by the same rules.
"""

from __future__ import annotations

from howdah.core import containers, finish, gang
from howdah.core.causes import RULES, FailureCause
from howdah.core.messages import Exit, Level
from howdah.core.plan import RolePlan
from howdah.core.state import (
    LIVE,
    OVER,
    ContainerData,
    Failure,
    FailureReport,
    JobPhase,
    Outcome,
    TaskData,
    TaskState,
)
from howdah.core.turn import Turn
from howdah.spec.model import Restart, Tracking

S = TaskState
SETTLE_MAX_S = 15.0
"""A survivor that has not ended this long after its grace is given up with its container."""
WORKING = (JobPhase.ALLOCATING, JobPhase.STARTING, JobPhase.RUNNING)


def accuse(
    turn: Turn,
    data: TaskData,
    cause: FailureCause,
    what: str,
    *,
    exit: Exit | None = None,
    container: ContainerData | None = None,
) -> None:
    """Keep a sign, and begin to settle: alone, or with the whole gang. ``container`` is where it
    was, if it is not there any more."""
    state = turn.state
    container = container or turn.container(data)
    sign = FailureReport(
        task=data.task,
        attempt=data.attempt,
        generation=state.generation,
        cause=cause,
        time=turn.now,
        what=what,
        node=container.node if container else None,
        container_id=container.container_id if container else None,
        exit=exit,
    )
    if state.phase is JobPhase.FINISHING:
        return
    state.reports.append(sign)
    role = turn.role(data.task)
    if role.tracking is Tracking.SIDECAR:
        turn.set_timer(f"settle:{data.task}", turn.plan.settle_s)
    elif state.phase in WORKING:
        if _alone(turn, data, role) and not _fatal(role):
            turn.set_timer(f"settle:{data.task}", turn.plan.settle_s)
        else:
            break_gang(turn, what)


def _alone(turn: Turn, data: TaskData, role: RolePlan) -> bool:
    """It can come back without the others."""
    if not turn.in_gang(data.task):
        return role.restart is not Restart.NEVER
    if role.restart is not Restart.TASK:
        return False
    return not (role.sticky_ports and data.container_id is None)


def _fatal(role: RolePlan) -> bool:
    """Its failure ends the job whatever budget is left."""
    return role.stop_on_failure or role.restart is Restart.NEVER


def break_gang(turn: Turn, why: str) -> None:
    """End every member of the gang at once and begin to settle."""
    state = turn.state
    turn.enter(JobPhase.SETTLING)
    state.hang = None
    turn.clear_timer("stacks", "hold", "elastic", "grow", "allocation")
    turn.clear_timer(*[name for name in state.timers if name.startswith("startup:")])
    longest = 0.0
    for role in turn.gang():
        grace = role.grace_s if state.reform else role.restart_grace_s
        longest = max(longest, grace)
        for data in turn.tasks([role]):
            turn.clear_timer(f"settle:{data.task}", f"again:{data.task}")
            if data.state in LIVE and data.state is not S.STOPPING:
                turn.stop(data, grace, why)
    turn.set_timer("settle", turn.plan.settle_s)
    turn.set_timer("settle-max", turn.plan.settle_s + longest + SETTLE_MAX_S)


def settle(turn: Turn) -> None:
    """Judge the generation once the window is over and everything has ended."""
    state = turn.state
    if state.phase is not JobPhase.SETTLING or "settle" in state.timers:
        return
    if turn.live(turn.gang()) or any(c.task is None for c in state.containers.values()):
        if "settle-max" in state.timers:
            return
    turn.clear_timer("settle-max")
    grown, state.reform = state.reform, False
    signs = [s for s in state.reports if not _beside(turn, s)]
    state.reports = [s for s in state.reports if _beside(turn, s)]
    if signs:
        _judge(turn, signs)
    else:
        _restart(turn, 0.0, "the gang grows" if grown else "the gang broke")


def _beside(turn: Turn, sign: FailureReport) -> bool:
    return turn.role(sign.task).tracking is Tracking.SIDECAR


def _judge(turn: Turn, signs: list[FailureReport]) -> None:
    """Choose the cause, charge it, and start anew or end the job."""
    state = turn.state
    failure = _cause(turn, signs)
    rule, sign = RULES[failure.report.cause], failure.report
    role = turn.role(sign.task)
    if failure.counted:
        state.gang_charged += 1
    verdict = _verdict(turn, role, rule.again, failure.counted, state.gang_charged)
    turn.record(
        "generation-ended",
        f"{sign.what} [{sign.cause.value}]" + (f"; {verdict}" if verdict else ""),
        level=Level.ERROR,
        cause=sign.cause.value,
        task=str(sign.task),
        counted=failure.counted,
        secondary=failure.secondary,
    )
    if verdict:
        finish.begin(turn, Outcome.FAILED, f"{sign.what}; {verdict}", advice=rule.advice)
    else:
        _restart(turn, _delay(turn, failure.counted), sign.what)


def _cause(turn: Turn, signs: list[FailureReport]) -> Failure:
    """The strongest sign; of equals the earliest."""
    sign = min(signs, key=lambda s: (-RULES[s.cause].strength, s.time))
    failure = Failure(
        report=sign,
        counted=RULES[sign.cause].counted,
        secondary=len(signs) - 1,
        lines=sign.exit.tail if sign.exit else (),
    )
    turn.state.failures.append(failure)
    return failure


def _verdict(turn: Turn, role: RolePlan, again: bool, counted: bool, spent: int) -> str:
    """Why the job ends now, or nothing if it may go on."""
    if role.stop_on_failure:
        return f"a failure of role {role.name} ends the job (stop-on-failure)"
    if role.restart is Restart.NEVER:
        return f'role {role.name} is not restarted (restart = "never")'
    if not again:
        return "trying again would not help"
    if counted and spent >= role.attempts:
        if role.attempts == 1:
            return "its one attempt is spent"
        return f"all {role.attempts} attempts are spent"
    if not counted and turn.state.uncharged >= turn.plan.uncharged_limit:
        return f"{turn.state.uncharged} restarts in a row without progress"
    return ""


def _delay(turn: Turn, counted: bool) -> float:
    """The first restart comes at once, repeated ones without progress later and later."""
    state = turn.state
    if not counted:
        state.uncharged += 1
        return 0.0
    state.setbacks += 1
    if state.setbacks == 1:
        return 0.0
    delay = min(turn.plan.backoff_s * 2 ** (state.setbacks - 2), turn.plan.backoff_max_s)
    return delay * (0.5 + turn.jitter())


def _restart(turn: Turn, delay_s: float, why: str) -> None:
    turn.state.restarts += 1
    turn.enter(JobPhase.RESTARTING)
    turn.set_timer("restart", delay_s)
    turn.record(
        "restarting", "the gang starts anew" + (f" in {delay_s:.1f}s" if delay_s else ""), why=why
    )


def on_restart_due(turn: Turn) -> None:
    """Free the members for the next generation and bring the gang together again."""
    for data in turn.tasks(turn.gang()):
        if data.state in OVER:
            renew(turn, data)
    gang.allocate(turn)


def renew(turn: Turn, data: TaskData) -> None:
    """A task whose attempt is over is to run again, in its container or in another."""
    container = turn.container(data)
    if container is not None and container.registered:
        turn.move(data, S.IDLE, "it is to be started again")
    else:
        turn.move(data, S.WAITING, "it is to be started again")


def on_settle_task_due(turn: Turn, name: str) -> None:
    """Judge one task that failed alone."""
    state = turn.state
    data = state.tasks[name]
    role = turn.role(data.task)
    sidecar = role.tracking is Tracking.SIDECAR
    if state.phase not in WORKING and not sidecar:
        return
    if data.state in LIVE or state.phase not in WORKING:
        turn.set_timer(f"settle:{name}", turn.plan.settle_s)
        return
    signs = [sign for sign in state.reports if sign.task == data.task]
    if not signs:
        return
    if any(_unexplained(turn, sign) for sign in signs):
        turn.set_timer(f"settle:{name}", turn.plan.settle_s)
        return
    if not _alone(turn, data, role) and not sidecar:
        break_gang(turn, signs[0].what)  # meanwhile its container was lost, and its address with it
        return
    state.reports = [sign for sign in state.reports if sign.task != data.task]
    failure = _cause(turn, signs)
    sign, rule = failure.report, RULES[failure.report.cause]
    if failure.counted:
        data.counted += 1
    verdict = _verdict(turn, role, rule.again, failure.counted, data.counted)
    if sidecar:
        _judge_sidecar(turn, data, sign, verdict)
        return
    if verdict:
        finish.begin(turn, Outcome.FAILED, f"{sign.what}; {verdict}", advice=rule.advice)
        return
    state.restarts += 1
    delay = _delay(turn, failure.counted)
    turn.record(
        "task-restarting",
        f"{sign.what} [{sign.cause.value}]; it is started again"
        + (f" in {delay:.1f}s" if delay else ""),
        level=Level.WARNING,
        data=data,
        cause=sign.cause.value,
        counted=failure.counted,
    )
    turn.set_timer(f"again:{name}", delay)


def _unexplained(turn: Turn, sign: FailureReport) -> bool:
    """An agent was lost, and the backend's word on its container may still come."""
    lost = sign.cause is FailureCause.AGENT_LOST and sign.container_id in turn.state.containers
    return lost and turn.now - sign.time < SETTLE_MAX_S


def _judge_sidecar(turn: Turn, data: TaskData, sign: FailureReport, verdict: str) -> None:
    if verdict:
        data.retired = True
        turn.record(
            "sidecar-retired",
            f"{sign.what}; {verdict}; the job goes on without it",
            level=Level.WARNING,
            data=data,
        )
        return
    turn.set_timer(f"again:{data.task}", turn.plan.backoff_s * 2 ** min(data.counted, 5))


def on_again_due(turn: Turn, name: str) -> None:
    """Start one task again."""
    data = turn.state.tasks[name]
    if turn.state.phase in WORKING and data.state in OVER:
        renew(turn, data)
        containers.request_missing(turn)
