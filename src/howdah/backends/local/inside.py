"""Where the containers of this machine find things: in the job directory itself."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from howdah.backends.base import Places
from howdah.backends.interpreter import answers_to_its_names, interpreter, name
from howdah.backends.where import tensorboard_folder
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory
from howdah.version import PACKAGE


def places(job: Job, directory: JobDirectory) -> Places:
    """See `howdah.backends.base.Backend.places`."""
    return places_with(job, directory, directory.meta().source)


def places_with(job: Job, directory: JobDirectory, source: str | None) -> Places:
    """The same for a job directory that need not be there; ``source`` is the source folder."""
    python = interpreter(job, source, default=sys.executable)
    home = str(directory.path)
    return Places(
        python=python,
        bin="" if answers_to_its_names(python) else str(directory.containers / "bin"),
        path=os.environ.get("PATH") or os.defpath,
        python_path=str(directory.containers / "python"),
        source=source,
        shared_dir=str(directory.shared),
        home=home,
        tensorboard_dir=tensorboard_folder(job, home),
    )


def lay_out(places: Places) -> None:
    """Make what agents expect to find: the folder that holds `howdah.task` alone, and ``python``.

    The first is without an ``__init__.py``: a Howdah that is installed in the program's environment
    wins over such a folder although PYTHONPATH comes first, and where there is none the folder
    serves.

    Raises:
        OSError: the job directory cannot be written.
    """
    package = Path(places.python_path, "howdah")
    package.mkdir(parents=True, exist_ok=True)
    source = Path(PACKAGE, "task.py")
    if source.exists():
        shutil.copyfile(source, package / "task.py")
    if places.bin:
        name(Path(places.bin), places.python)
