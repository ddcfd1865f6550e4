"""Errors a user of the command line or of the Python API can get. The text is for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from howdah.client.exits import ExitCode

if TYPE_CHECKING:
    from howdah.wire.status import JobView


class HowdahError(Exception):
    """What happened, which value, what to do next; never a defect of Howdah itself."""

    exit_code = ExitCode.BACKEND


class BadInput(HowdahError):
    """Something given is wrong: a job that cannot be run, an unknown task, an unknown job."""

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


class NotSaved(JobFailed):
    """A job succeeded, but not all of its checkpoints and outputs could be saved."""

    exit_code = ExitCode.UNSAVED


def not_saved(view: JobView) -> str:
    """What of a succeeded job is saved nowhere, in words."""
    lines = "".join(f"\n    {line}" for line in view.unsaved)
    return f"{view.job_id} succeeded, but not all of it could be saved:{lines}"
