"""The stores a job file names, tried before the job is started.

A store that can't be written is found out here rather than after hours of training. Only what the
containers' machines can reach alone is not tried, and said so.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import msgspec

from howdah.backends import registry
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.spec.problems import JobFileProblem, shown

TRIAL_S = 15.0
"""A store that has not answered within this is not waited for."""


class _Store(NamedTuple):
    key: str
    place: str

    @property
    def is_path(self) -> bool:
        place = self.place.removeprefix("file://")
        return "://" not in place and "::" not in place


def resolved(loaded: LoadedJob, job: Job) -> tuple[Job, list[JobFileProblem]]:
    """The job with its places on ViewFs where they lead to, for what writes there knows no mount
    tables; and those that lead nowhere, which stay as they are."""
    problems: list[JobFileProblem] = []
    for name, key in (("checkpoint", "store"), ("outputs", "store"), ("tensorboard", "folder")):
        table = getattr(job, name)
        place: str | None = getattr(table, key, None)
        if place is None or not place.startswith("viewfs://"):
            continue
        from howdah.hadoop import viewfs
        from howdah.hadoop.configuration import Configuration
        from howdah.hadoop.errors import ConfigurationError

        try:
            found = viewfs.resolve(place, Configuration.load(job.hadoop.conf))
        except ConfigurationError as error:
            problems.append(loaded.problem(f"{name}.{key}", str(error)))
            continue
        job = msgspec.structs.replace(job, **{name: msgspec.structs.replace(table, **{key: found})})
    return job, problems


def look(
    loaded: LoadedJob, job: Job, backend: str, *, probe: bool = True
) -> tuple[list[JobFileProblem], list[str]]:
    """Write a small file to each store of the ``job``, which has its id put in, and remove it. Without
    ``probe`` to those on this machine alone: a job file that is only looked at may be a stranger's.

    Returns:
        The stores that can't be written, and a note on each that could not be tried from here.
    """
    here = registry.runs_here(backend)
    job, problems = resolved(loaded, job)
    nowhere = {each.key for each in problems}
    notes: list[str] = []
    for store in _stores(job):
        if store.key in nowhere:
            continue
        if store.is_path and not here:
            notes.append(
                f"{store.key}: {shown(store.place)} was not tried: it is a path on the machines "
                f"of the {backend} backend"
            )
            continue
        if not store.is_path and not probe:
            notes.append(
                f"{store.key}: {shown(store.place)} was not tried; `howdah check --probe` and every "
                "submission do"
            )
            continue
        error = _tried(store.place, job.hadoop.conf)
        if error is None:
            continue
        why = _in_words(error)
        if here or isinstance(error, _REFUSALS):
            text = f"{shown(store.place)} can't be written: {why}"
            problem = loaded.problem(store.key, text, _HINT)
            problems.append(msgspec.structs.replace(problem, value=shown(store.place)))
        else:
            notes.append(
                f"{store.key}: {shown(store.place)} could not be tried from this machine: {why}"
            )
    return problems, notes


_REFUSALS = (PermissionError, NotADirectoryError, FileExistsError)
"""What a store answers is true wherever it is asked from. That it can't be reached is not."""

_HINT = "what the job saves would be lost; name a place that can be written"


def _in_words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _stores(job: Job) -> list[_Store]:
    found: list[_Store] = []
    if job.checkpoint is not None and job.checkpoint.store is not None:
        found.append(_Store("checkpoint.store", job.checkpoint.store))
    if job.outputs is not None and job.outputs.store is not None:
        found.append(_Store("outputs.store", job.outputs.store))
    return found


def _tried(place: str, hadoop_conf: str | None) -> Exception | None:
    """Why it can't be written, or nothing."""
    from howdah.storage.stores.write_probe import try_to_write

    outcome: list[Exception] = []

    def write() -> None:
        try:
            try_to_write(place, hadoop_conf=hadoop_conf)
        except Exception as error:  # fsspec's stores raise what they like
            outcome.append(error)

    # A mount whose server is gone blocks its caller for as long as that takes.
    thread = threading.Thread(target=write, name="store-trial", daemon=True)
    thread.start()
    thread.join(TRIAL_S)
    if thread.is_alive():
        return TimeoutError(f"it has not answered within {TRIAL_S:g}s")
    return outcome[0] if outcome else None
