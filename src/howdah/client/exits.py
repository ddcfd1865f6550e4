"""Exit codes of every ``howdah`` command: documented, stable, and only here."""

from __future__ import annotations

import enum

from howdah.core.state import Outcome
from howdah.wire.status import JobView, exit_code


class ExitCode(enum.IntEnum):
    """What ``howdah`` exits with."""

    SUCCEEDED = 0
    """Done. For a job: every task that decides the outcome has succeeded."""
    FAILED = 1
    """The job failed."""
    BAD_INPUT = 2
    """The command line or the job file is wrong, or there is no such job. Nothing was started."""
    BACKEND = 3
    """The backend refused the job, or the backend or the job's coordinator cannot be reached."""
    TIMED_OUT = 4
    """The job ran into one of its time limits."""
    UNSAVED = 5
    """The job succeeded, but not all of its checkpoints and outputs could be saved."""
    DEFECT = 70
    """Howdah itself has a defect; a traceback says where."""
    STOPPED = 130
    """The job was stopped (Ctrl-C, ``howdah stop``)."""


def of_view(view: JobView) -> ExitCode:
    """The exit code of a job that has ended."""
    if view.outcome is None:
        return ExitCode.FAILED
    return ExitCode(exit_code(Outcome(view.outcome), view.unsaved))
