"""Where a job's programs find things in a container on Spark. Pure."""

from __future__ import annotations

from howdah.agent.launch import HERE
from howdah.backends.base import Places
from howdah.backends.spark import luggage
from howdah.backends.where import tensorboard_folder
from howdah.spec.model import Job
from howdah.storage import layout

HOME = f"{HERE}/{luggage.HOME}"
"""The job directory as programs see it: itself where it is seen, else a folder that comes home."""


def places(job: Job, source: str | None, path: str) -> Places:
    """See `howdah.backends.base.Backend.places`; ``path`` is PATH."""
    return Places(
        python=job.environment.python or f"{HERE}/{luggage.BIN}/python",
        bin="" if job.environment.python else f"{HERE}/{luggage.BIN}",
        path=path,
        python_path=f"{HERE}/{luggage.PYTHON_PATH}",
        helpers=None,
        source=f"{HERE}/{luggage.SOURCE}" if source is not None else None,
        container_env=job.hadoop.container_env,
        shared_dir=f"{HOME}/{layout.SHARED}",
        home=HOME,
        tensorboard_dir=tensorboard_folder(job, HOME),
    )
