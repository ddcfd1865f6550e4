"""A client's view of a job in a Spark application: its directory is on the driver's machine."""

from __future__ import annotations

from howdah.backends.base import BackendError, Lost, Running
from howdah.backends.local.processes import alive
from howdah.backends.local_directory_site import LocalDirectorySite
from howdah.backends.spark.settings import read_settings
from howdah.storage import layout


class SparkSite(LocalDirectorySite):
    """Everything is in the job directory; the driver program runs the job."""

    def running(self) -> Running:
        """Whether the driver program or the coordinator is alive: with the program gone, the
        coordinator ends the job."""
        try:
            settings = read_settings(self._directory.path)
        except BackendError:
            return Running.NO if self._late() else Running.NOT_YET
        if alive(settings.driver_pid, settings.driver_start):
            return Running.YES
        address = self._directory.coordinator()
        if address is not None and address.start is not None and alive(address.pid, address.start):
            return Running.YES
        return Running.NO

    def lost(self) -> Lost:
        directory = self._directory
        return Lost(
            f"nobody runs {directory.job_id} any more: the program with its Spark session has "
            "ended, and its coordinator with it",
            f"{self._anew()}. What it left is in {directory.path}",
        )

    def revive(self) -> None:
        raise BackendError(
            f"{self._directory.job_id} ended with its Spark application and cannot be revived. "
            f"{self._anew()}"
        )

    def _anew(self) -> str:
        """How to run the job again: a function's feeds and values belong to its own program."""
        if (self._directory.path / layout.FUNCTION).is_dir():
            return "To begin anew: run the program again that had started it"
        return f"To begin anew, in an application of its own: {self._rerun()}"

    def end(self, reason: str) -> None:
        raise BackendError(
            f"{self._directory.job_id} can only be ended by its coordinator. End the program that "
            "has the Spark session: the job ends with it within seconds"
        )
