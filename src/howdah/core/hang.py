"""A hang: the stacks of everybody are taken first, they are the evidence; then the gang is ended."""

from __future__ import annotations

from howdah.core.causes import FailureCause
from howdah.core.messages import DumpStacks, Exit, Level, Task, TaskHung
from howdah.core.settling import WORKING, accuse
from howdah.core.state import HangCheck, StackNote, TaskState
from howdah.core.turn import Turn
from howdah.spec.model import Restart

S = TaskState
STACKS_S = 10.0
"""How long stack dumps of a hung gang are waited for."""


def on_hung(turn: Turn, event: TaskHung) -> None:
    """Take the stacks of everybody first: they are the evidence."""
    state = turn.state
    data = turn.find(event.task, event.attempt)
    if data is None or data.state is not S.RUNNING or state.hang or state.phase not in WORKING:
        return
    alone = not turn.in_gang(data.task) or turn.role(data.task).restart is Restart.TASK
    running = [data] if alone else [d for d in turn.tasks(turn.gang()) if d.state is S.RUNNING]
    turn.record(
        "hang",
        f"no progress for {event.idle_s:.0f}s (seen at {data.task}): taking the stacks of "
        f"{len(running)} task{'s' * (len(running) != 1)}",
        level=Level.ERROR,
        data=data,
    )
    state.hang = HangCheck(
        task=data.task,
        attempt=data.attempt,
        idle_s=event.idle_s,
        awaiting=[d.task for d in running],
        stacks=[],
    )
    turn.set_timer("stacks", STACKS_S)
    for each in running:
        assert each.container_id is not None
        turn.emit(DumpStacks(container_id=each.container_id, task=each.task, attempt=each.attempt))


def on_stacks(turn: Turn, task: Task, innermost: str, path: str, problem: str) -> None:
    check = turn.state.hang
    if check is None or task not in check.awaiting:
        return
    check.awaiting.remove(task)
    check.stacks.append(StackNote(task=task, innermost=innermost, path=path, problem=problem))
    if not check.awaiting:
        end_hang(turn)


def end_hang(turn: Turn) -> None:
    """All stacks are there, or have been waited for long enough."""
    check = turn.state.hang
    if check is None:
        return
    turn.state.hang = None
    turn.clear_timer("stacks")
    data = turn.find(check.task, check.attempt)
    if data is None or turn.state.phase not in WORKING:
        return
    lines = [
        f"{s.task}: {s.innermost or s.problem or '?'}"
        for s in sorted(check.stacks, key=lambda note: note.task)
    ]
    lines += [f"{task}: no stacks came" for task in check.awaiting]
    turn.record("stacks", "; ".join(lines[:16]), level=Level.ERROR, data=data, stacks=lines)
    what = f"{data.task} hung: no progress for {check.idle_s:.0f}s"
    turn.stop(data, turn.role(data.task).restart_grace_s, what)
    accuse(turn, data, FailureCause.HANG, what, exit=Exit(tail=tuple(lines)))
