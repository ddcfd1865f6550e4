"""``spark.json`` of a job directory: written at submission, read by the job's coordinators."""

from __future__ import annotations

from pathlib import Path

import msgspec

from howdah.backends.base import BackendError
from howdah.spec.model import Slots
from howdah.storage.files import write_atomically

FILE = "spark.json"


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
