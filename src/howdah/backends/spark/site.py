"""A job in a Spark application as others find it: its ``spark.json``, and a client's view of the job, whose
directory is on the driver's machine."""

from __future__ import annotations

from pathlib import Path

import msgspec

from howdah.backends.base import BackendError, Lost, Running
from howdah.backends.local.processes import alive
from howdah.backends.local_directory_site import LocalDirectorySite
from howdah.spec.model import Slots
from howdah.storage import layout
from howdah.storage.files import write_atomically

FILE = "spark.json"
"""Of the job directory: written at submission, read by the job's coordinators."""


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator has to know of the job's Spark application."""

    slots: Slots
    host: str
    """Address of the driver's machine, as executors reach it."""
    bind: str
    port: int
    """Where containers connect. The driver owns the socket, so that it is the same for every
    coordinator of the job."""
    on_driver: tuple[str, ...] = ()
    nonce: str
    """Written in the job directory: a host that reads it there sees the directory."""
    driver_pid: int = 0
    driver_start: int = 0
    """With the pid it identifies one process; see `howdah.backends.local.processes`."""
    path: str = ""
    """PATH of the programs."""


def read_settings(job_dir: Path) -> SparkSettings:
    """The settings written at submission.

    Raises:
        BackendError: there are none, or they cannot be read.
    """
    try:
        return msgspec.json.decode((job_dir / FILE).read_bytes(), type=SparkSettings)
    except (OSError, msgspec.DecodeError) as error:
        raise BackendError(
            f"{job_dir} is of no job that was submitted to a Spark application: {error}"
        ) from error


def write_settings(job_dir: Path, settings: SparkSettings) -> None:
    """
    Raises:
        OSError: it cannot be written.
    """
    write_atomically(job_dir / FILE, msgspec.json.encode(settings))


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
