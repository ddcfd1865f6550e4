"""Where a job's programs find things, as far as all backends work it out alike. Pure."""

from __future__ import annotations

import os
from pathlib import Path

from howdah.spec.model import Job
from howdah.storage import layout


def tensorboard_folder(job: Job, home: str) -> str:
    """Where summaries go: below ``home``, the job directory's path or URL; a URL stays as it is."""
    folder = job.tensorboard.folder if job.tensorboard is not None else layout.TENSORBOARD
    return inside(home, folder)


def inside(home: str, folder: str) -> str:
    """A folder below ``home``, a path or URL; an absolute one, or a URL, stays as it is."""
    if "://" in folder:
        return folder
    if "://" in home:
        return folder if folder.startswith("/") else f"{home.rstrip('/')}/{folder}"
    return os.path.join(home, Path(folder).expanduser())
