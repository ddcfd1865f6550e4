"""How a job ends: the outcome is decided once, then everything is stopped and given back."""

from __future__ import annotations

from collections.abc import Sequence

from howdah.core import containers
from howdah.core.causes import RULES, FailureCause
from howdah.core.messages import FinishJob, Level, ReleaseContainer, StopRequested
from howdah.core.state import (
    LIVE,
    Failure,
    FailureReport,
    JobPhase,
    Outcome,
    TaskData,
    TaskState,
)
from howdah.core.turn import Turn

S = TaskState
FINISH_MAX_S = 20.0
"""After the longest grace, a program that has not ended loses its container."""
GIVE_BACK_S = 30.0
"""A container whose end the backend does not confirm is not waited for longer."""

_LEVELS = {
    Outcome.SUCCEEDED: Level.INFO,
    Outcome.STOPPED: Level.WARNING,
    Outcome.FAILED: Level.ERROR,
    Outcome.TIMED_OUT: Level.ERROR,
}


def begin(
    turn: Turn,
    outcome: Outcome,
    reason: str,
    *,
    advice: str = "",
    culprits: Sequence[TaskData] = (),
) -> None:
    """Decide the outcome; stop what runs, take back what was asked for."""
    state = turn.state
    if state.outcome is not None:
        return
    if culprits:
        advice = RULES[FailureCause.STARTUP_TIMEOUT].advice
        _note(turn, culprits[0], reason)
    state.outcome, state.reason, state.advice = outcome, reason, advice
    turn.enter(JobPhase.FINISHING)
    turn.record(
        "finishing",
        f"the job has {outcome.value.replace('-', ' ')}: {reason}",
        level=_LEVELS[outcome],
        outcome=outcome.value,
    )
    for container in state.containers.values():
        if container.task is None and f"reconnect:{container.container_id}" in state.timers:
            turn.emit(ReleaseContainer(container_id=container.container_id))
    state.timers.clear()
    state.hang = None
    containers.cancel_requests(turn)
    _stop_all(turn)


def _note(turn: Turn, data: TaskData, reason: str) -> None:
    turn.state.failures.append(
        Failure(
            report=FailureReport(
                task=data.task,
                attempt=data.attempt,
                generation=turn.state.generation,
                cause=FailureCause.STARTUP_TIMEOUT,
                time=turn.now,
                what=reason,
            ),
            counted=False,
        )
    )


def _stop_all(turn: Turn) -> None:
    longest = 0.0
    for data in turn.state.tasks.values():
        if data.state in LIVE:
            grace = 0.0 if turn.state.firm else turn.role(data.task).grace_s
            longest = max(longest, grace)
            turn.stop(data, grace, "the job ends")
    turn.set_timer("finish", longest + FINISH_MAX_S)


def on_stop(turn: Turn, event: StopRequested) -> None:
    """Stop gracefully; a second request, or a firm one, is without grace."""
    state = turn.state
    if state.phase is JobPhase.FINISHED:
        return
    if state.phase is JobPhase.FINISHING:
        if event.firm and not state.firm:
            state.firm = True
            turn.record("stop-firm", f"{event.by} wants it stopped at once")
            _stop_all(turn)
        return
    state.firm = event.firm
    why = f"stopped by {event.by}" + (f": {event.reason}" if event.reason else "")
    begin(turn, Outcome.STOPPED, why)


def on_total_due(turn: Turn) -> None:
    begin(
        turn,
        Outcome.TIMED_OUT,
        f"the job ran longer than its total time-out of {turn.plan.total_s:g}s",
        advice="Raise `[timeouts] total`, or checkpoint and continue with `howdah rerun --resume`.",
    )


def on_allocation_due(turn: Turn) -> None:
    """The gang did not come together in time."""
    if turn.state.phase is not JobPhase.ALLOCATING:
        return
    missing = [
        str(data.task)
        for role in turn.gang()
        for data in turn.tasks([role])
        if data.task.index < role.minimum and data.state in (S.WAITING, S.LAUNCHING)
    ]
    begin(
        turn,
        Outcome.TIMED_OUT,
        f"allocation time-out after {turn.plan.allocation_s:g}s: no container for "
        + ", ".join(missing[:8])
        + (f" and {len(missing) - 8} more" if len(missing) > 8 else ""),
        advice="Ask for less, wait longer (`[timeouts] allocation`), or free resources; "
        "`howdah doctor` shows what there is.",
    )


def on_finish_due(turn: Turn) -> None:
    """Programs that will not end lose their containers; containers that will not end, our patience."""
    for data in turn.state.tasks.values():
        if data.state in LIVE and data.container_id is not None:
            turn.state.containers[data.container_id].task = None
            turn.emit(ReleaseContainer(container_id=data.container_id))
            data.container_id = None
            turn.move(data, S.ENDED, "it would not end")
    if turn.state.phase is JobPhase.FINISHING:
        turn.set_timer("give-back", GIVE_BACK_S)


def on_give_back_due(turn: Turn) -> None:
    if turn.state.containers:
        turn.record(
            "containers-unconfirmed",
            f"{len(turn.state.containers)} containers were given back but their end was not "
            "confirmed: " + ", ".join(sorted(turn.state.containers)[:8]),
            level=Level.WARNING,
        )
        turn.state.containers.clear()


def conclude(turn: Turn) -> None:
    """Give containers back as their programs have ended; then the job is finished."""
    state = turn.state
    if state.phase is not JobPhase.FINISHING:
        return
    # Others may still be saving: containers go together, when the last program has ended.
    if turn.live(turn.plan.roles):
        return
    if any(container.task is not None for container in state.containers.values()):
        for data in state.tasks.values():
            if data.container_id is not None:
                containers.release(turn, data, "the job ends")
        turn.clear_timer("finish")
        turn.set_timer("give-back", GIVE_BACK_S)
    if state.containers:
        return
    state.timers.clear()
    state.finished = turn.now
    turn.enter(JobPhase.FINISHED)
    assert state.outcome is not None
    turn.record("finished", f"{state.outcome.value}: {state.reason}", outcome=state.outcome.value)
    turn.emit(FinishJob())
