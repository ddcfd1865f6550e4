"""From a loaded job to a running one: job directory, authority, and over to the backend.

All or nothing: until the backend has taken over, a failure (or Ctrl-C) removes the job directory.
A backend that refuses leaves it, marked as failed with the reason, for its logs.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from howdah.backends import submitter_liveness
from howdah.backends.base import BackendError, PerhapsSubmitted, Step
from howdah.client.errors import Refused
from howdah.client.submission import checks, secret_values, stores
from howdah.client.submission.begin import begin, default_backend
from howdah.frameworks.planning import expand
from howdah.spec.load import LoadedJob, substitute_job_id
from howdah.spec.model import Job
from howdah.storage.files import own_umask
from howdah.storage.jobdir import JobDirectory, new_job_id, user_name
from howdah.storage.layout import JobMeta
from howdah.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from howdah.backends.base import Submission


def quiet(step: Step) -> None:
    """Progress that is not shown."""


def warn(step: Step) -> None:
    """Progress whose notes are `RuntimeWarning`s, for programs."""
    if step.note:
        warnings.warn(step.note, RuntimeWarning, stacklevel=2)


def submit(
    loaded: LoadedJob,
    *,
    backend: str | None = None,
    rerun_of: str | None = None,
    earlier: Mapping[str, str] | None = None,
    populate: Callable[[JobDirectory], None] = lambda directory: None,
    submission: Submission | None = None,
    progress: Callable[[Step], None] = quiet,
) -> JobDirectory:
    """Start the job; it goes on by itself when this has returned.

    Args:
        loaded: the job.
        backend: where it is to run; by default `default_backend`.
        rerun_of: the earlier job this one repeats.
        earlier: its values of ``[secrets]``, for those that are not there any more.
        populate: puts into the new job directory what else the job needs, before anything starts.
        submission: what `begin` gave before the job was loaded, to save its start-up time.
        progress: is told, in this thread, what takes long, and what a user should know although it is
            no reason to refuse the job.

    Raises:
        BadInput: there is no such backend.
        JobFileError: the backend does not honour a key of the job, a file of it is missing, or a store
            can't be written.
        PerhapsSubmitted: whether the backend has taken the job is not known.
        BackendError: the backend does not take the job.
        Refused: the job directory cannot be made.
        SubmissionCancelled: `Submission.cancel` was called in time.
    """
    backend = backend or default_backend()
    submission = submission or begin(backend)
    earlier = earlier or {}
    try:
        directory = _unused(submission.base(loaded.job), loaded.job.name)
        job = substitute_job_id(expand(loaded.job), directory.job_id)
        meta = JobMeta(
            job_id=directory.job_id,
            user=user_name(),
            backend=backend,
            submitted=time.time(),
            job_file=str(loaded.path) if loaded.path else None,
            source=str(loaded.source) if loaded.source else None,
            folder=str(loaded.folder),
            rerun_of=rerun_of,
            howdah=__version__,
            submitter=submitter_liveness.submitter(),
            umask=own_umask(),
        )

        for text in checks.check(loaded, job, backend, earlier=earlier):
            progress(Step(note=text))
        job, _ = stores.resolved(loaded, job)
        submission.check(job, loaded)
        try:
            _create(directory, job, meta)
            populate(directory)
            from howdah.wire import authority  # the backend starts up while this is imported

            authority.create(directory.job_id, directory.secrets)
            directory.write_secret_variables(secret_values.take(loaded, earlier))
            submission.go(directory, _unbroken(progress))
        except PerhapsSubmitted:
            raise
        except BackendError as error:
            directory.fail(f"the {backend} backend did not take the job: {error}")
            raise
        except BaseException:
            shutil.rmtree(directory.path, ignore_errors=True)
            raise
        return directory
    except BaseException:
        submission.close()
        raise


def _unbroken(progress: Callable[[Step], None]) -> Callable[[Step], None]:
    """The same, for when the backend has the job in its hands: a note that `python -W error` makes an exception
    would break off what is half done, or hide that the job goes on. It is printed instead."""

    def tell(step: Step) -> None:
        try:
            progress(step)
        except Warning as note:
            sys.stderr.write(f"{type(note).__name__}: {note}\n")

    return tell


def _create(directory: JobDirectory, job: Job, meta: JobMeta) -> None:
    try:
        directory.create(job, meta)
    except OSError as error:
        raise Refused(
            f"the job directory {directory.path} cannot be made: {error.strerror or error}; say "
            "where jobs may be kept with HOWDAH_HOME, or `store` in the job file"
        ) from error


def _unused(base: Path, name: str) -> JobDirectory:
    """A directory that no other job has; ids tell the second, and four letters are chance."""
    # What exists() does not like, making the folder will say in words.
    while os.path.exists((directory := JobDirectory(base / new_job_id(name))).path):
        pass
    return directory
