"""Where a job stands, in one word: what lists of jobs show and choose by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.wire.status import JobView

UNREADABLE = "unreadable"
GOING_ON = ("waiting", "running")
STATES = (*GOING_ON, "succeeded", "failed", "stopped", "timed-out", "lost", UNREADABLE)


def state(view: JobView) -> str:
    """The job's state, one of `STATES`."""
    if view.over:
        return str(view.outcome)
    if view.lost:
        return "lost"
    if view.phase == UNREADABLE:
        return UNREADABLE
    return "waiting" if view.phase in ("submitted", "allocating") else "running"
