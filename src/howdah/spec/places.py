"""Whether the folders and files a job names are there. The only rules that look at the disk."""

from __future__ import annotations

import os
from pathlib import Path

from howdah.spec.model import Job
from howdah.spec.problems import Problems, closest, printable, shown


def check(job: Job, folder: Path, problems: Problems) -> Path | None:
    """The source folder, absolute; what is missing goes to ``problems``."""
    _requirements(job, folder, problems)
    if job.source is None or problems.doubted(("source",)):
        return None
    source = Path(os.path.normpath(folder / Path(job.source).expanduser()))
    try:
        if source.is_dir():
            return source
        there = source.exists()
    except (OSError, ValueError) as error:
        message = f"the source folder {printable(str(source))} cannot be looked at: {error}"
        problems.add(("source",), message, value=job.source)
        return None
    if there:
        message = f"{printable(str(source))} is a file, not a folder"
        hint = "name the folder it is in"
    else:
        near = _near(source)
        message = f"there is no folder {printable(str(source))}"
        hint = f"did you mean {shown(near)}?" if near else "source is relative to the job file"
    problems.add(("source",), message, hint, value=job.source)
    return None


def _requirements(job: Job, folder: Path, problems: Problems) -> None:
    name, path = job.environment.requirements, ("environment", "requirements")
    if name is None or problems.doubted(path):
        return
    file = Path(os.path.normpath(folder / Path(name).expanduser()))
    if not file.is_file():
        near = _near(file)
        hint = f"did you mean {shown(near)}?" if near else "it is relative to the job file"
        problems.add(path, f"there is no file {printable(str(file))}", hint, value=name)


def _near(missing: Path) -> str | None:
    try:
        names = [entry.name for _, entry in zip(range(1000), os.scandir(missing.parent))]
    except OSError:
        return None
    return closest(missing.name, names)
