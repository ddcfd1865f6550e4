"""What Ctrl-C means for an attached job, by how often it was pressed. Pure."""

from __future__ import annotations

import enum
import signal


class Tie(enum.Enum):
    """How an attached client and its job hang together."""

    JOB = "job"
    """``run``: ending the client stops the job."""
    VIEW = "view"
    """``attach``: ending the client changes nothing."""
    WAIT = "wait"
    """``submit --wait``: ending the client changes nothing, but then it has not waited."""


class Action(enum.Enum):
    """What to do now."""

    STOP = "stop"
    """Ask for a clean stop and go on following until the job has ended."""
    STOP_AT_ONCE = "stop-at-once"
    """Ask for the end without grace, and go on following."""
    STOP_AND_LEAVE = "stop-and-leave"
    """Ask for a clean stop and leave: no terminal is left to show the end on."""
    LEAVE = "leave"
    """Leave; the job goes on as it was told last."""


class Interrupts:
    """Counts the interruptions of one attached client."""

    def __init__(self, tie: Tie) -> None:
        self._tie = tie
        self._count = 0

    def signal(self, number: int) -> Action:
        """A signal came: SIGINT, SIGTERM or SIGHUP."""
        if self._tie is not Tie.JOB:
            return Action.LEAVE
        if number == signal.SIGHUP:
            return self.output_closed()
        self._count += 1
        return {1: Action.STOP, 2: Action.STOP_AT_ONCE}.get(self._count, Action.LEAVE)

    def output_closed(self) -> Action:
        """Our output is read no more: the terminal was closed, or ``| head`` has enough."""
        if self._tie is not Tie.JOB or self._count:
            return Action.LEAVE
        self._count += 1
        return Action.STOP_AND_LEAVE


SAID = {
    Action.STOP: "stopping the job cleanly; press Ctrl-C again to end it at once",
    Action.STOP_AT_ONCE: "ending the job at once; press Ctrl-C again to leave it behind",
}
"""What the user is told of each action."""
