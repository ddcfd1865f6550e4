"""Exit codes of every ``howdah`` command: documented, stable, and only here."""

from __future__ import annotations

import enum

from howdah.core.state import Outcome
from howdah.wire.status import EXIT_CODES


class ExitCode(enum.IntEnum):
    """What ``howdah`` exits with."""

    SUCCEEDED = 0
    """Done; for a job: every task that decides it succeeded."""
    FAILED = 1
    """The job failed."""
    BAD_INPUT = 2
    """Wrong command line, wrong job file, or no such job; nothing was started."""
    BACKEND = 3
    """The backend refused the job, or it or the job's coordinator cannot be reached."""
    TIMED_OUT = 4
    """The job ended at one of its time limits."""
    DEFECT = 70
    """A defect of Howdah itself; a traceback says where."""
    STOPPED = 130
    """Somebody stopped the job (Ctrl-C, ``howdah stop``)."""


def of_outcome(outcome: str) -> ExitCode:
    """The exit code of a job that ended so (a `howdah.core.state.Outcome` value)."""
    return ExitCode(EXIT_CODES[Outcome(outcome)])
