"""A job whose directory is on the client's machine: most of a `Site` is reading it."""

from __future__ import annotations

import time

from howdah.backends import submitter_liveness
from howdah.backends.base import Site
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView

SUBMITTING_S = 60.0
"""A submission that takes longer has failed."""


class LocalDirectorySite(Site):
    """What is the same whoever runs such a job."""

    at_hand = True

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def coordinator(self) -> CoordinatorAddress | None:
        return self._directory.coordinator()

    def final(self) -> JobView | None:
        return self._directory.final()

    def _late(self) -> bool:
        """Whether a submission that has shown nothing yet has failed."""
        return time.time() - self._directory.meta().submitted > SUBMITTING_S

    def _cut_off(self) -> bool:
        """Whether the client has ended before it had handed the job over."""
        meta, path = self._directory.meta(), self._directory.path
        begun = next(path.glob("events-*"), None) is not None
        return meta.submitter is not None and not begun and not submitter_liveness.may_go_on(meta)

    def _rerun(self) -> str:
        """The command that begins the job anew."""
        resume = " --resume" if self._directory.job().checkpoint is not None else ""
        return f"howdah rerun {self._directory.job_id}{resume}"
