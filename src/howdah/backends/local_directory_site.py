"""A job whose directory is on the client's machine: most of a `Site` is reading it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from howdah.backends import submitter_liveness
from howdah.core.messages import Task
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView

SUBMITTING_S = 60.0
"""A submission that takes longer has failed."""


class LocalDirectorySite:
    """What is the same whoever runs such a job."""

    at_hand = True

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def coordinator(self) -> CoordinatorAddress | None:
        return self._directory.coordinator()

    def final(self) -> JobView | None:
        return self._directory.final()

    def waiting(self) -> str:
        return ""

    def bring_story(self) -> None:
        """Nothing: it is there."""

    def bring_metrics(self) -> None:
        """Nothing: they are there."""

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        """Nothing: they are there, or are being brought by the job itself."""

    def has_remote_summaries(self) -> bool:
        """None are elsewhere."""
        return False

    def bring_summaries(self, folder: Path, most: int) -> int:
        """Nothing: none are elsewhere."""
        return 0

    def size_elsewhere(self) -> int:
        """Nothing is."""
        return 0

    def remove_elsewhere(self) -> int:
        """Nothing is."""
        return 0

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
