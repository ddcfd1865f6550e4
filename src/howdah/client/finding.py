"""From what a user calls a job to its directory on this machine."""

from __future__ import annotations

from pathlib import Path

from howdah.backends import registry
from howdah.backends.base import BackendError
from howdah.storage import jobdir
from howdah.storage.jobdir import JobDirectory, NoSuchJob, base_folder


def base(store: str | None) -> Path:
    """The folder of job directories, or of the copies of those at a URL.

    Raises:
        StorageError: the store is a URL that no backend keeps jobs at.
    """
    return base_folder(None if store is not None and store.startswith("hdfs://") else store)


def find(wanted: str, store: str | None = None) -> JobDirectory:
    """The job of that id, or whose id begins so, or that a cluster calls so.

    One that another machine has submitted gets a directory here. The cluster is only asked when
    this machine knows of none.

    Raises:
        NoSuchJob: none or several; the text says which there are.
    """
    if wanted.startswith("application_"):
        found = registry.find(wanted, store)
        if found is not None:
            return found
    try:
        return jobdir.find(base(store), wanted)
    except NoSuchJob as error:
        if error.several:
            raise
        try:
            found = registry.find(wanted, store)
        except BackendError as trouble:
            raise NoSuchJob(f"{error}. Nor could a cluster be asked: {trouble}") from trouble
        if found is None:
            raise
        return found
