"""Which success completes a stage, and with the last stage the job."""

from __future__ import annotations

from howdah.core import containers, finish, gang
from howdah.core.plan import Completion
from howdah.core.state import OVER, JobPhase, Outcome, TaskData, TaskState
from howdah.core.turn import Turn
from howdah.spec.model import Tracking

S = TaskState


def after_success(turn: Turn, data: TaskData) -> None:
    """A task has ended with exit code 0: is the stage, or the job, done?"""
    state = turn.state
    if state.phase not in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.ALLOCATING):
        return
    role = turn.role(data.task)
    if turn.plan.completion is Completion.CHIEF and role.chief and turn.in_gang(data.task):
        if data.task.index == 0 and role.tracking is Tracking.TRACKED:
            _stage_done(turn, f"{data.task} succeeded")
        return
    if role.tracking is Tracking.TRACKED and stage_succeeded(turn):
        _stage_done(turn, "all tracked tasks succeeded")


def after_release(turn: Turn) -> None:
    """A role no longer decides: is the stage, or the job, done without it?"""
    if stage_succeeded(turn):
        _stage_done(turn, "all tracked tasks that were waited for succeeded")


def stage_succeeded(turn: Turn) -> bool:
    """Every tracked task of the present stage's generation has succeeded."""
    if turn.plan.completion is Completion.CHIEF and any(r.chief for r in turn.gang()):
        return False
    tracked = [
        role
        for role in turn.gang()
        if role.tracking is Tracking.TRACKED and role.name not in turn.state.released
    ]
    for role in tracked:
        succeeded = turn.count(role, (S.SUCCEEDED,))
        if succeeded == role.maximum:
            continue
        if succeeded < role.minimum or role.minimum == role.maximum:
            return False
        if any(d.member and d.state is not S.SUCCEEDED for d in turn.tasks([role])):
            return False
    return bool(tracked)


def _stage_done(turn: Turn, why: str) -> None:
    state = turn.state
    if state.stage >= max(role.stage for role in turn.plan.roles):
        finish.begin(turn, Outcome.SUCCEEDED, why)
        return
    turn.record("stage-done", f"stage {state.stage} is done: {why}")
    for data in list(turn.tasks(turn.gang())):
        if data.state in OVER and data.container_id is not None:
            containers.release(turn, data, "its stage is done")
    turn.clear_timer("elastic", "grow", "hold")
    turn.clear_timer(*[name for name in state.timers if name.startswith("startup:")])
    state.stage += 1
    state.topology, state.missing = None, 0
    for data in state.tasks.values():
        data.awaited = False
    gang.allocate(turn)
