"""The end of a job that has no coordinator any more, written where its own would have been."""

from __future__ import annotations

from pathlib import Path

from howdah.storage.jobdir import JobDirectory

ADVICE = (
    "Nothing was wrong with your programs: read the end of logs/coordinator.log in the job "
    "directory, then start the job again from its last checkpoint with `howdah rerun ID --resume`"
)


def write_lost(job_dir: Path, reason: str) -> None:
    """Write ``final.json``: the job failed because it lost its coordinator.

    Raises:
        Exception: the job directory cannot be read or written.
    """
    directory = JobDirectory(job_dir)
    directory.fail(reason, ADVICE)
    directory.remove_coordinator()
