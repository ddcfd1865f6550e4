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
from howdah.backends.job_paths import tensorboard_folder
from howdah.packing.archives import PackingError, Progress, cache_folder, quiet
from howdah.packing.snapshot import snapshot
from howdah.spec.model import Job
from howdah.storage.files import write_atomically
from howdah.storage.jobdir import JobDirectory
from howdah.version import PACKAGE

PREPARED = "local.json"
SOURCE = "source"
"""Below the containers' folder."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What the client has made ready for a job: ``local.json`` in the job directory."""

    python: str | None = None
    """The interpreter of the job's environment, if it has one."""
    files: dict[str, dict[str, str]] = {}
    """See `howdah.backends.base.Places.files`."""


def prepare(
    job: Job, directory: JobDirectory, folder: Path, progress: Callable[[Step], None]
) -> None:
    """Make the job's copy of its source, its environment and its files ready; paths are relative to
    ``folder``.

    Raises:
        BackendError: they can't be had, and why.
    """

    def tell(what: str, done: int, total: int | None) -> None:
        progress(Step(what=what, done=done, total=total))

    try:
        if note := _copy_source(job, directory, tell):
            progress(Step(what="", note=note))
        if job.environment.is_made or job.files_by_role:
            from howdah.packing import in_place

            cache = cache_folder()
            prepared = Prepared(
                python=in_place.python(job, folder, cache, tell),
                files=in_place.files(job, folder, cache, tell),
            )
            write_atomically(directory.path / PREPARED, msgspec.json.encode(prepared))
    except (PackingError, OSError) as error:
        raise BackendError(f"The job was not started: {error}") from error


def _copy_source(job: Job, directory: JobDirectory, progress: Progress = quiet) -> str:
    source, copy = directory.meta().source, directory.containers / SOURCE
    if source is None or job.in_place or copy.exists():
        return ""
    # Stores may be in the source folder: jobs are not copied into jobs.
    stores = (job.store, job.checkpoint and job.checkpoint.store, job.outputs and job.outputs.store)
    without = {Path(store) for store in stores if store and "://" not in store}
    without |= {directory.path, directory.path.parent}
    return snapshot(Path(source), copy, without, progress, ignore=job.ignore, link=job.link)


def places(job: Job, directory: JobDirectory) -> Places:
    """See `howdah.backends.base.Backend.places`."""
    try:
        prepared = msgspec.json.decode((directory.path / PREPARED).read_bytes(), type=Prepared)
    except FileNotFoundError:
        prepared = Prepared()
    source = directory.meta().source
    found = places_with(job, directory, source, prepared)
    if source is None or job.in_place:
        return found
    copy = str(directory.containers / SOURCE)
    return msgspec.structs.replace(found, source=copy, origin=source)


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
        keeps=True,
        files=prepared.files,
        container_env=job.hadoop.container_env,
        shared_dir=str(directory.shared),
        home=home,
        tensorboard_dir=tensorboard_folder(job, home),
    )


def lay_out(job: Job, directory: JobDirectory) -> None:
    """Make what agents expect to find: the copy of the source, the folder that holds `howdah.task`
    alone, and ``python``.

    That folder is without an ``__init__.py``: a Howdah that is installed in the program's environment
    wins over such a folder although PYTHONPATH comes first, and where there is none the folder
    serves.

    Raises:
        OSError: the job directory cannot be written.
    """
    found = places(job, directory)
    _copy_source(job, directory)
    package = Path(found.python_path, "howdah")
    package.mkdir(parents=True, exist_ok=True)
    source = Path(PACKAGE, "task.py")
    if source.exists():
        shutil.copyfile(source, package / "task.py")
    if found.bin:
        name(Path(found.bin), found.python)
