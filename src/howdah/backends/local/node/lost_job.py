"""The end of a job that has no coordinator any more, written where its own would have been."""

from __future__ import annotations

import time
from pathlib import Path

from howdah.core.state import JobPhase, Outcome
from howdah.storage.jobdir import JobDirectory
from howdah.wire.status import JobView

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
    job, meta = directory.job(), directory.meta()
    view = JobView(
        job_id=directory.job_id,
        name=job.name,
        framework=job.framework,
        user=meta.user,
        backend=meta.backend,
        phase=JobPhase.FINISHED.value,
        outcome=Outcome.FAILED.value,
        exit_code=1,
        reason=reason,
        advice=ADVICE,
        submitted=meta.submitted,
        finished=time.time(),
        directory=str(job_dir),
    )
    directory.write_final(view)
    directory.remove_coordinator()
