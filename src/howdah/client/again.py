"""The same job again, from its beginning or from its last checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from howdah.client.errors import BadInput
from howdah.client.functions import carry_over
from howdah.client.loading import load_again
from howdah.client.submit import quiet, submit, unsaid
from howdah.frameworks import planning
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.spec.units import instance_range
from howdah.storage.jobdir import JobDirectory

if TYPE_CHECKING:
    from howdah.backends.base import Step, Submission


def load(before: JobDirectory, overrides: Sequence[str] = (), *, resume: bool) -> LoadedJob:
    """The job of an earlier run, ready to run again.

    Raises:
        BadInput: it is to be resumed, and has no complete checkpoint.
        JobFileError: it cannot be run any more (its source folder is gone).
        StorageError: its documents are missing or damaged.
    """
    loaded = load_again(before, overrides)
    if resume:
        if loaded.job.checkpoint is None:
            raise BadInput(
                f"{before.job_id} has no [checkpoint] folder, so there is nothing to resume from; "
                "run it again without --resume"
            )
        from howdah.storage.checkpoints import latest_complete

        if not any(latest_complete(place) for place in _places(before).values()):
            raise BadInput(
                f"{before.job_id} has no complete checkpoint to resume from; run it again without "
                "--resume"
            )
    return loaded


def submit_again(
    before: JobDirectory,
    loaded: LoadedJob,
    *,
    resume: bool,
    submission: Submission | None = None,
    progress: Callable[[Step], None] = quiet,
    note: Callable[[str], None] = unsaid,
) -> JobDirectory:
    """Start what `load` gave, with the earlier job's newest checkpoint if it is to be resumed.

    Raises:
        BackendError: the backend does not take the job.
        OSError: the checkpoint cannot be read or copied.
    """

    def furnish(directory: JobDirectory) -> None:
        carry_over(before, directory)
        if resume:
            adopt(before, directory)

    return submit(
        loaded,
        backend=before.meta().backend,
        rerun_of=before.job_id,
        furnish=furnish,
        submission=submission,
        progress=progress,
        note=note,
    )


def go_on(directory: JobDirectory) -> None:
    """Run a job again that nobody runs any more; nothing if it has ended or somebody does.

    Raises:
        BackendError: it cannot be started.
    """
    from howdah.backends.base import Running
    from howdah.client.liveness import site_of

    if directory.final() is None:
        site = site_of(directory)
        if site.final() is None and site.running() is Running.NO:
            site.revive()


def adopt(before: JobDirectory, directory: JobDirectory) -> None:
    """Give a job that has not begun the newest checkpoint of an earlier one, if that has one.

    Raises:
        OSError: it cannot be read or copied.
    """
    from howdah.storage.checkpoints import adopt

    places = _places(directory)
    for whose, old in _places(before).items():
        new = places.get(whose)
        if new is not None and new != old:
            adopt(old, new)


def _places(directory: JobDirectory) -> dict[str, str]:
    """Where a job's checkpoints are: one place, or one for each task, by task."""
    job = planning.expand(directory.job())
    if job.checkpoint is None:
        return {}
    store = directory.checkpoint_store(job.checkpoint)
    if job.checkpoint.source != "each":
        return {"": store}
    return {task: f"{store}/{task}" for task in _task_folders(job)}


def _task_folders(job: Job) -> list[str]:
    return [
        f"{name}-{index}"
        for name, role in job.roles.items()
        for index in range(instance_range(role.instances)[1])
    ]
