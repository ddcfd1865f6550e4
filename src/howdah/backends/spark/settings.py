"""``spark.json`` of a job directory: written by whoever submits, read by its coordinators."""

from __future__ import annotations

from pathlib import Path

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.spark.messages import Settings
from howdah.storage.files import write_atomically

FILE = "spark.json"


def read_settings(job_dir: Path) -> Settings:
    """What the submitter wrote.

    Raises:
        BackendError: nothing, or something else.
    """
    try:
        return msgspec.json.decode((job_dir / FILE).read_bytes(), type=Settings)
    except (OSError, msgspec.DecodeError) as error:
        raise BackendError(
            f"{job_dir} is of no job that was submitted to a Spark application: {error}"
        ) from error


def write_settings(job_dir: Path, settings: Settings) -> None:
    """
    Raises:
        OSError: it cannot be written.
    """
    write_atomically(job_dir / FILE, msgspec.json.encode(settings))
