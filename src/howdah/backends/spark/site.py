"""A job in a Spark application as a client finds it: its directory is on the driver's machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

from howdah.backends.base import BackendError, Running
from howdah.backends.local.processes import alive
from howdah.backends.spark.settings import read_settings
from howdah.core.events import Task
from howdah.core.view import JobView
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress

SUBMITTING_S = 60.0
"""A submission that takes longer has failed."""


class SparkSite:
    """Everything is in the job directory; who runs it is the driver program."""

    at_hand = True

    def __init__(self, directory: JobDirectory) -> None:
        self._directory = directory

    def coordinator(self) -> CoordinatorAddress | None:
        return self._directory.coordinator()

    def final(self) -> JobView | None:
        return self._directory.final()

    def running(self) -> Running:
        """Whether the driver program or the coordinator is alive: with the program gone, the
        coordinator ends the job."""
        try:
            settings = read_settings(self._directory.path)
        except BackendError:
            late = time.time() - self._directory.meta().submitted > SUBMITTING_S
            return Running.NO if late else Running.NOT_YET
        if alive(settings.driver_pid, settings.driver_start):
            return Running.YES
        address = self._directory.coordinator()
        if address is not None and address.start is not None and alive(address.pid, address.start):
            return Running.YES
        return Running.NO

    def waiting(self) -> str:
        return ""

    def bring_story(self) -> None:
        """Nothing: it is there."""

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        """Nothing: what is not there yet is being brought by the job itself."""

    def lost(self) -> str:
        directory = self._directory
        resume = " --resume" if directory.job().checkpoint is not None else ""
        return (
            f"nobody runs {directory.job_id} any more: the program with its Spark session has "
            "ended, and its coordinator with it. In a new session it can be begun anew: howdah "
            f"rerun {directory.job_id}{resume} --backend spark. What it left is in {directory.path}"
        )

    def revive(self) -> None:
        raise BackendError(
            f"{self._directory.job_id} ended with its Spark application and cannot be revived; "
            f"begin it anew in another one: howdah rerun {self._directory.job_id}"
        )

    def end(self, reason: str) -> None:
        raise BackendError(
            f"{self._directory.job_id} can only be ended by its coordinator. End the program that "
            "has the Spark session: the job ends with it within seconds"
        )
