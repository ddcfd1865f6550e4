"""How a job ends: the outcome is decided once, then everything is stopped and given back."""

from __future__ import annotations

from collections.abc import Iterable

from howdah.core import containers
from howdah.core import task as tasks
from howdah.core.event_context import EventContext
from howdah.core.messages import FinishJob, Level
from howdah.core.state import LIVE, JobPhase, Outcome

_LEVELS = {
    Outcome.SUCCEEDED: Level.INFO,
    Outcome.STOPPED: Level.WARNING,
    Outcome.FAILED: Level.ERROR,
    Outcome.TIMED_OUT: Level.ERROR,
}
_MOST_NAMED = 8


def finish(context: EventContext, outcome: Outcome, reason: str, advice: str = "") -> None:
    """Decide the outcome, once; everything is to be down then."""
    state = context.state
    if state.outcome is not None:
        return
    state.outcome, state.reason, state.advice = outcome, reason, advice
    context.enter(JobPhase.FINISHING)
    context.record(
        "finishing",
        f"the job has {outcome.value.replace('-', ' ')}: {reason}",
        level=_LEVELS[outcome],
        outcome=outcome.value,
    )
    state.total_until = state.allocation_until = state.hold_until = state.elastic_until = None
    state.hang = state.growth = None
    state.linger.clear()
    for unit in state.units.values():
        unit.reports = []
        for field in ("window_until", "explain_until", "retry_at"):
            context.set_time(unit, field, None)
    containers.cancel_requests(context)
    for name in sorted(context.index.given_up):
        tasks.give_back(context, state.containers[name])
    stop_all(context)


def stop_all(context: EventContext) -> None:
    """Tell everything that runs to end, with as much grace as there is now."""
    for data in context.in_states(context.plan.roles, *LIVE):
        grace_s, save_s = tasks.ending_limits(context, data)
        tasks.stop(context, data, "the job ends", grace_s=grace_s, save_s=save_s)


def conclude(context: EventContext) -> None:
    """Give containers back when all programs have ended; then the job is finished."""
    state = context.state
    if state.phase is not JobPhase.FINISHING:
        return
    # Others may still be saving: containers go together, when the last program has ended.
    if context.live(context.plan.roles):
        return
    if len(state.containers) > len(context.index.given_up):
        for data in state.tasks.values():
            if data.container_id is not None:
                tasks.release(context, data, "the job ends")
    if state.containers:
        return
    assert state.outcome is not None
    if state.outcome is Outcome.SUCCEEDED and not state.unsaved:
        _warn_of_empty_folders(context)
    state.finished = context.now
    context.enter(JobPhase.FINISHED)
    context.record(
        "finished", f"{state.outcome.value}: {state.reason}", outcome=state.outcome.value
    )
    context.emit(FinishJob())


def _warn_of_empty_folders(context: EventContext) -> None:
    """A folder that the job file names and no program has ever written to: most likely a mistake."""
    plan, tasks = context.plan, context.state.tasks.values()
    resumed = context.state.checkpoint is not None or any(data.restored for data in tasks)
    if plan.checkpoints and not resumed:
        context.record(
            "nothing-saved",
            "no checkpoint was saved: no program has written to the folder that [checkpoint] names",
            level=Level.WARNING,
        )
    if plan.outputs and not any(data.exit is not None and data.exit.outputs for data in tasks):
        context.record(
            "nothing-saved",
            "there are no outputs: no program has written to the folders that [outputs] names",
            level=Level.WARNING,
        )


def names(tasks: Iterable[object]) -> str:
    names = [str(task) for task in tasks]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
