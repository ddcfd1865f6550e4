"""Where the folders and files a job names are. The only rules that look at the disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from howdah.spec.model import Job
from howdah.spec.problems import KeyPath, Problems, closest, printable, shown
from howdah.spec.urls import url_problem


def check(job: Job, folder: Path, problems: Problems) -> Path | None:
    """The source folder, absolute; what is missing goes to ``problems``."""
    _requirements(job, folder, problems)
    if job.source is None or problems.doubted(("source",)):
        return None
    source = _at(folder, job.source)
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
        near = near_name(source)
        message = f"there is no folder {printable(str(source))}"
        hint = f"did you mean {shown(near)}?" if near else "source is relative to the job file"
    problems.add(("source",), message, hint, value=job.source)
    return None


def with_whole_stores(job: Job, folder: Path, problems: Problems) -> Job:
    """The job with its stores as absolute paths, unless they are URLs.

    The processes that save to them work in folders of their own. What is saved into the memory of
    one of them would be gone with it, so such URLs are problems.
    """
    replace = msgspec.structs.replace
    if job.store is not None:
        job = replace(job, store=_whole(job.store, folder, problems, ("store",)))
    if job.checkpoint is not None and job.checkpoint.store is not None:
        store = _whole(job.checkpoint.store, folder, problems, ("checkpoint", "store"))
        job = replace(job, checkpoint=replace(job.checkpoint, store=store))
    if job.outputs is not None and job.outputs.store is not None:
        store = _whole(job.outputs.store, folder, problems, ("outputs", "store"))
        job = replace(job, outputs=replace(job.outputs, store=store))
    return job


def _whole(store: str, folder: Path, problems: Problems, path: KeyPath) -> str:
    if problems.doubted(path):
        return store
    if not store.strip():
        problems.add(path, "the store has no name", "give a path or a URL, or leave it out")
    elif store.startswith("memory:"):
        message = f"{shown(store)} is the memory of one process, and gone with it"
        problems.add(path, message, "give a path, or a URL such as s3://bucket/folder")
    elif "://" not in store and "::" not in store:
        return str(_at(folder, store))
    elif why := url_problem(store):
        message = f"{shown(store)} cannot be a store: {why}"
        problems.add(path, message, "give a path, or a URL such as s3://bucket/folder")
    return store


def _requirements(job: Job, folder: Path, problems: Problems) -> None:
    name, path = job.environment.requirements, ("environment", "requirements")
    if name is None or problems.doubted(path):
        return
    file = _at(folder, name)
    try:
        there = file.is_file()
    except (OSError, ValueError) as error:
        message = f"the file {printable(str(file))} cannot be looked at: {error}"
        problems.add(path, message, value=name)
        return
    if not there:
        near = near_name(file)
        hint = f"did you mean {shown(near)}?" if near else "it is relative to the job file"
        problems.add(path, f"there is no file {printable(str(file))}", hint, value=name)


def _at(folder: Path, name: str) -> Path:
    # Unlike pathlib's, this leaves a "~" of an unknown user as it is: there is no such file then.
    return Path(os.path.normpath(folder / os.path.expanduser(name)))  # noqa: PTH111 - see above


def near_name(missing: Path) -> str | None:
    """What is in the folder of a missing file or folder, and called nearly the same."""
    try:
        names = [entry.name for _, entry in zip(range(1000), os.scandir(missing.parent))]
    except OSError:
        return None
    return closest(missing.name, names)
