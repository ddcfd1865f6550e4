"""Errors a user of the command line or of the Python API can get, and the exit code of each. The text is for them."""

from __future__ import annotations

import enum

from howdah.core.state import Outcome
from howdah.wire.status import JobView, exit_code


class ExitCode(enum.IntEnum):
    """What every ``howdah`` command exits with: documented, stable, and only here."""

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


class HowdahError(Exception):
    """What happened, which value, what to do next; never a defect of Howdah itself."""

    exit_code = ExitCode.BACKEND


class BadInput(HowdahError):
    """Something given is wrong: a job that cannot be run, an unknown task."""

    exit_code = ExitCode.BAD_INPUT


class Unreachable(HowdahError):
    """The job's coordinator does not answer, or the job has none any more."""


class Abandoned(Unreachable):
    """Neither coordinator nor node daemon is left, so the job will not go on by itself."""


class Refused(HowdahError):
    """The backend or the coordinator will not do it."""


class JobFailed(HowdahError):
    """A job ended otherwise than in success; ``view`` is its last status."""

    exit_code = ExitCode.FAILED

    def __init__(self, text: str, view: JobView) -> None:
        super().__init__(text)
        self.view = view

    def __reduce__(self) -> tuple[type[JobFailed], tuple[str, JobView]]:
        return type(self), (str(self), self.view)


class NotSaved(JobFailed):
    """A job succeeded, but not all of its checkpoints and outputs could be saved."""

    exit_code = ExitCode.UNSAVED


def not_saved(view: JobView) -> str:
    """What of a succeeded job is saved nowhere, in words."""
    lines = "".join(f"\n    {line}" for line in view.unsaved)
    return f"{view.job_id} succeeded, but not all of it could be saved:{lines}"


def exit_code_of(view: JobView) -> ExitCode:
    if view.outcome is None:
        return ExitCode.FAILED
    return ExitCode(exit_code(Outcome(view.outcome), view.unsaved))
