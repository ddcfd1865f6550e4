"""The client's side of the local backend, for one new job: see `howdah.backends.base.Submission`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from howdah.storage.jobdir import JobDirectory, base_folder

if TYPE_CHECKING:
    from howdah.backends.base import Step
    from howdah.backends.local.submit import NodeStarter
    from howdah.spec.load import LoadedJob
    from howdah.spec.model import Job


class LocalSubmission:
    """A node daemon that waits for the job directory to be complete."""

    def __init__(self, starter: NodeStarter, *, checks: bool = True) -> None:
        self._starter = starter
        self._checks = checks
        self._folder = Path()
        self._cancelled = False

    def base(self, job: Job) -> Path:
        return base_folder(job.store)

    def check(self, job: Job, loaded: LoadedJob) -> None:
        self._folder = loaded.folder
        if self._checks:
            from howdah.backends.local.machine import check

            check(job, source=str(loaded.source) if loaded.source else None)

    def go(self, directory: JobDirectory, progress: Callable[[Step], None]) -> None:
        from howdah.backends.base import SubmissionCancelled
        from howdah.backends.local.container_paths import prepare

        job = directory.job()
        if self._checks:
            try:
                prepare(job, directory, self._folder, progress)
            finally:
                if self._cancelled:
                    raise SubmissionCancelled("nothing was submitted")
        self._starter.go(directory.path)

    def cancel(self) -> None:
        self._cancelled = True

    def close(self) -> None:
        self._starter.close()
