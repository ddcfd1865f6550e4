"""From what a user calls a job to its directory on this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from howdah.backends import registry
from howdah.backends.base import BackendError, OnlyOwners, Running
from howdah.client.lookup.site import site_of
from howdah.storage import jobdir
from howdah.storage.jobdir import JobDirectory, NoSuchJob, StorageError, base_folder, is_called

LAST = "@last"
"""What the newest job is called."""


def base(store: str | None) -> Path:
    """The folder of job directories, or of the copies of those at a URL.

    Raises:
        StorageError: the store is a URL that no backend keeps jobs at.
    """
    return base_folder(None if _is_elsewhere(store) else store)


def ids_at(store: str | None, left_out: Callable[[str], None]) -> frozenset[str] | None:
    """The user's jobs at that URL, each with a copy in `base` from now on; None for a folder, whose jobs
    are all there are in `base`. ``left_out`` is told of what cannot be read.

    Raises:
        BackendError: the cluster there cannot be asked.
    """
    if store is None or not _is_elsewhere(store):
        return None
    return frozenset(each.job_id for each in registry.own_jobs_at(store, left_out))


def ids(store: str | None) -> list[str]:
    """Ids of the user's jobs in that folder or at that URL, newest first. Nothing is copied.

    Raises:
        StorageError: there are no jobs of the user's.
        BackendError: the cluster cannot be asked.
    """
    if store is not None and _is_elsewhere(store):
        return registry.own_job_ids_at(store)
    return [each.job_id for each in jobdir.list_jobs(base(store))]


def _is_elsewhere(store: str | None) -> bool:
    return store is not None and store.startswith(("hdfs://", "viewfs://"))


def find(wanted: str, store: str | None = None) -> JobDirectory:
    """The job of that id or name, or that a cluster calls so; if there is none, the one whose id or name begins so.

    `LAST` is the newest job. Where several answer, one that has not ended comes before those that
    have. Of ended jobs that all have the whole name, the newest is meant.

    One that another machine has submitted gets a directory here. The cluster is only asked when
    this machine knows of none; where the store is a URL, what is there answers, and not this machine.

    Raises:
        NoSuchJob: none or several; the text says which there are.
        OnlyOwners: it is another user's, and closed to us.
        BackendError: the store is a URL, and the cluster there cannot be asked, or a job that answers
            cannot be read.
    """
    try:
        return _one(wanted, store)
    except NoSuchJob as error:
        if not error.several:
            raise
        return _meant(wanted, list(error.several))


def _one(wanted: str, store: str | None = None) -> JobDirectory:
    """As `find`, but several that answer are always too many.

    Raises:
        NoSuchJob: none or several; the text says which there are.
    """
    if wanted == LAST:
        return last(store)
    if wanted.startswith("application_"):
        found = registry.find(wanted, store)
        if found is not None:
            return found
    if _is_elsewhere(store):
        found = registry.find(wanted, store)
        if found is None:
            raise NoSuchJob(
                f"There is no job {wanted!r} in {store}; `howdah list --store {store}` shows all"
            )
        return found
    try:
        found = jobdir.find(base(store), wanted)
        return found if found.is_whole else _anew(found, store)
    except NoSuchJob as error:
        if error.several:
            raise
        try:
            found = registry.find(wanted, store)
        except OnlyOwners:
            raise
        except BackendError as trouble:
            raise NoSuchJob(f"{error}. Nor could a cluster be asked: {trouble}") from trouble
        if found is None:
            raise
        return found


def _anew(damaged: JobDirectory, store: str | None) -> JobDirectory:
    """The job, copied from its cluster once more if it is there; else as it is, for who reads it to name the file."""
    try:
        return registry.find(damaged.job_id, store) or damaged
    except (BackendError, NoSuchJob):
        return damaged


def last(store: str | None = None) -> JobDirectory:
    """The newest job.

    Raises:
        NoSuchJob: there are none yet.
        BackendError: the store is a URL, and the cluster there cannot be asked, or the job cannot be read.
    """
    from howdah.client.lookup.listing import newest

    if store is not None and _is_elsewhere(store):
        place = store
        directory = registry.own_last_job_at(store)
    else:
        place = base(store)
        directory = newest(place)
    if directory is None:
        raise NoSuchJob(f"{place} has no jobs yet; 'howdah run' makes one")
    return directory


def _meant(wanted: str, several: list[JobDirectory]) -> JobDirectory:
    """The one of several that is meant.

    Raises:
        NoSuchJob: there is no telling.
    """
    unfinished = [job for job in several if _goes_on(job)]
    if len(unfinished) == 1:
        return unfinished[0]
    if unfinished:
        raise jobdir.ambiguous(wanted, unfinished, " running")
    if all(is_called(job.job_id, wanted) for job in several):
        return max(several, key=JobDirectory.submitted)
    raise jobdir.ambiguous(wanted, several)


def _goes_on(directory: JobDirectory) -> bool:
    """Whether the job has not ended, as far as can be told; one without a coordinator has."""
    try:
        if directory.final() is not None:
            return False
        site = site_of(directory)
        return site.final() is None and site.running() is not Running.NO
    except (StorageError, BackendError, OSError):
        return False
