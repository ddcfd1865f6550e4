"""Where the containers of this machine find things: in the job directory itself."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from howdah.backends.base import BackendError, Places, Step
from howdah.backends.interpreter import answers_to_its_names, interpreter, name
from howdah.backends.where import tensorboard_folder
from howdah.packing.archives import PackingError, cache_folder
from howdah.spec.model import Job
from howdah.storage.files import write_atomically
from howdah.storage.jobdir import JobDirectory
from howdah.version import PACKAGE

PREPARED = "local.json"


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What the client has made ready for a job: ``local.json`` in the job directory."""

    python: str | None = None
    """The interpreter of the job's environment, if it has one."""
    files: dict[str, dict[str, str]] = {}
    """See `howdah.backends.base.Places.files`."""


def prepare(
    job: Job, directory: JobDirectory, folder: Path, progress: Callable[[Step], None]
) -> None:
    """Make the job's environment and files ready; paths are relative to ``folder``.

    Raises:
        BackendError: they can't be had, and why.
    """
    from howdah.packing import in_place

    def tell(what: str, done: int, total: int | None) -> None:
        progress(Step(what=what, done=done, total=total))

    cache = cache_folder()
    try:
        prepared = Prepared(
            python=in_place.python(job, folder, cache, tell),
            files=in_place.files(job, folder, cache, tell),
        )
        write_atomically(directory.path / PREPARED, msgspec.json.encode(prepared))
    except (PackingError, OSError) as error:
        raise BackendError(f"The job was not started: {error}") from error


def places(job: Job, directory: JobDirectory) -> Places:
    """See `howdah.backends.base.Backend.places`."""
    try:
        prepared = msgspec.json.decode((directory.path / PREPARED).read_bytes(), type=Prepared)
    except FileNotFoundError:
        prepared = Prepared()
    return places_with(job, directory, directory.meta().source, prepared)


def places_with(
    job: Job, directory: JobDirectory, source: str | None, prepared: Prepared | None = None
) -> Places:
    """The same for a job directory that need not be there; ``source`` is the source folder."""
    prepared = prepared or Prepared()
    python = prepared.python or interpreter(job, source, default=sys.executable)
    home = str(directory.path)
    return Places(
        python=python,
        bin="" if answers_to_its_names(python) else str(directory.containers / "bin"),
        path=os.environ.get("PATH") or os.defpath,
        python_path=str(directory.containers / "python"),
        source=source,
        files=prepared.files,
        container_env=job.hadoop.container_env,
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
