"""Time-outs that begin when other roles are done: an evaluator that never ends, a stuck worker.

The timer runs while all tasks of the roles it names have succeeded and a task of its own role still
runs. A generation that starts anew begins it anew.
"""

from __future__ import annotations

from howdah.core import completion, finish
from howdah.core.messages import Level
from howdah.core.plan import RolePlan
from howdah.core.settling import WORKING
from howdah.core.state import LIVE, Outcome, TaskState
from howdah.core.turn import Turn
from howdah.spec.model import Lingering

S = TaskState


def watch(turn: Turn) -> None:
    """Set the timers that are due to run, and clear those that are not."""
    state = turn.state
    for role in turn.plan.roles:
        if role.linger_s is None:
            continue
        name = f"linger:{role.name}"
        waiting = (
            state.phase in WORKING
            and role.name not in state.released
            and turn.count(role, LIVE) > 0
            and all(_done(turn, turn.plan.role(other)) for other in role.lingers_after)
        )
        if not waiting:
            turn.clear_timer(name)
        elif name not in state.timers:
            turn.set_timer(name, role.linger_s)


def _done(turn: Turn, role: RolePlan) -> bool:
    """All its tasks have succeeded; of an elastic role, all that take part."""
    succeeded = turn.count(role, (S.SUCCEEDED,))
    if role.minimum == role.maximum:
        return succeeded == role.maximum
    return succeeded > 0 and all(d.state is S.SUCCEEDED for d in turn.tasks([role]) if d.member)


def on_due(turn: Turn, name: str) -> None:
    """The role had its time: the job has timed out, or goes on without it."""
    role = turn.plan.role(name)
    late = [data for data in turn.tasks([role]) if data.state in LIVE]
    tasks = ", ".join(str(data.task) for data in late[:8])
    others = " and ".join(role.lingers_after)
    what = f"{tasks} still ran {role.linger_s:g}s after {others} had succeeded"
    if role.linger_then is Lingering.FAIL:
        advice = (
            "Find out why it does not end (`howdah stack` shows where it is), give it more time "
            f'(`[roles.{name}.linger] limit`), or let the job succeed without it (`then = "stop"`).'
        )
        finish.begin(turn, Outcome.TIMED_OUT, what, advice=advice)
        return
    turn.record("role-released", f"{what}; it is no longer waited for", level=Level.WARNING)
    turn.state.released.append(name)
    for data in late:
        turn.stop(data, role.grace_s, "it was waited for long enough")
    completion.after_release(turn)
