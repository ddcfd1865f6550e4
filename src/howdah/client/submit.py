"""From a loaded job to a running one: job directory, authority, node daemon.

All or nothing: until the backend has taken over, a failure (or Ctrl-C) removes the job directory.
A backend that refuses leaves it, marked as failed with the reason, for its logs.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from howdah import __version__
from howdah.backends.base import BackendError
from howdah.client.early import begin
from howdah.client.errors import Refused
from howdah.core.states import JobPhase, Outcome
from howdah.core.view import EXIT_CODES, JobView
from howdah.frameworks.planning import expand
from howdah.spec.load import LoadedJob, substitute_job_id
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory, base_folder, new_job_id, user_name
from howdah.storage.layout import JobMeta

if TYPE_CHECKING:
    from howdah.backends.local.submit import NodeStarter


def submit(
    loaded: LoadedJob,
    *,
    backend: str = "local",
    rerun_of: str | None = None,
    furnish: Callable[[JobDirectory], None] = lambda directory: None,
    starter: NodeStarter | None = None,
) -> JobDirectory:
    """Start the job; it goes on by itself when this has returned.

    ``furnish`` puts into the new job directory what else the job needs, before anything starts.
    ``starter`` is what `begin` gave before the job was loaded, to save its start-up time.

    Raises:
        BadInput: there is no such backend.
        BackendError: the backend does not take the job.
        Refused: the job directory cannot be made.
    """
    starter = starter or begin(backend)
    directory = _unused(loaded.job)
    job = substitute_job_id(expand(loaded.job), directory.job_id)
    meta = JobMeta(
        job_id=directory.job_id,
        user=user_name(),
        backend=backend,
        submitted=time.time(),
        job_file=str(loaded.path) if loaded.path else None,
        source=str(loaded.source) if loaded.source else None,
        rerun_of=rerun_of,
        howdah=__version__,
    )
    try:
        _check(job, loaded)
    except BackendError:
        starter.close()
        raise
    try:
        _create(directory, job, meta)
        furnish(directory)
        _create_authority(directory)
        starter.go(directory.path)
    except BackendError as error:
        directory.write_final(_refused(directory, job.framework, meta, str(error)))
        raise
    except BaseException:
        starter.close()
        shutil.rmtree(directory.path, ignore_errors=True)
        raise
    return directory


def _check(job: Job, loaded: LoadedJob) -> None:
    """Refuse what this machine can never run, before there is a job directory."""
    from howdah.backends.local.machine import check

    check(job, source=str(loaded.source) if loaded.source else None)


def _create(directory: JobDirectory, job: Job, meta: JobMeta) -> None:
    try:
        directory.create(job, meta)
    except OSError as error:
        raise Refused(
            f"the job directory {directory.path} cannot be made: {error.strerror or error}; say "
            "where jobs may be kept with HOWDAH_HOME, or `store` in the job file"
        ) from error


def _unused(job: Job) -> JobDirectory:
    """A directory that no other job has; ids tell the second, and four letters are chance."""
    base = base_folder(job.store)
    # What exists() does not like, making the folder will say in words.
    while os.path.exists((directory := JobDirectory(base / new_job_id(job.name))).path):
        pass
    return directory


def _create_authority(directory: JobDirectory) -> None:
    from howdah.wire import authority

    authority.create(directory.job_id, directory.secrets)


def _refused(directory: JobDirectory, framework: str, meta: JobMeta, reason: str) -> JobView:
    return JobView(
        job_id=directory.job_id,
        name=directory.job().name,
        framework=framework,
        user=meta.user,
        backend=meta.backend,
        phase=JobPhase.FINISHED.value,
        outcome=Outcome.FAILED.value,
        exit_code=EXIT_CODES[Outcome.FAILED],
        reason=f"the {meta.backend} backend did not take the job: {reason}",
        submitted=meta.submitted,
        finished=time.time(),
        directory=str(directory.path),
    )
