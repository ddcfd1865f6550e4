"""The same job again, from its beginning or from its last checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from howdah.backends.base import Running, Site, Step
from howdah.client.errors import BadInput, Refused
from howdah.client.lookup.site import programs_left, site_of
from howdah.client.submission.functions import carry_over
from howdah.client.submission.loading import load_again
from howdah.client.submission.submit import quiet, submit
from howdah.core.state import Outcome
from howdah.frameworks import planning
from howdah.spec.load import LoadedJob
from howdah.spec.model import Job
from howdah.spec.units import instance_range
from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory

if TYPE_CHECKING:
    from howdah.backends.base import Submission


TASKS_SHOWN = 5
"""Tasks whose own checkpoints are named."""


def load(before: JobDirectory, overrides: Sequence[str] = (), *, resume: bool) -> LoadedJob:
    """The job of an earlier run, ready to run again.

    Raises:
        BadInput: it is to be resumed, and has no complete checkpoint.
        Refused: nobody runs it any more, but its programs have not ended yet.
        JobFileError: it cannot be run any more (its source folder is gone).
        StorageError: its documents are missing or damaged.
    """
    site = site_of(before)
    if (
        site.at_hand
        and site.running() is Running.NO
        and (why := programs_left(site, before.job_id))
    ):
        raise Refused(f"{before.job_id} is not run a second time beside itself: {why}")
    loaded = load_again(before, overrides)
    if resume:
        if loaded.job.checkpoint is None:
            raise BadInput(
                f"{before.job_id} has no [checkpoint] folder, so there is nothing to resume from; "
                "run it again without --resume"
            )
        from howdah.storage.checkpoints.versions import latest_complete

        try:
            places = _places(before)
            found = any(_unsaved(before, *each) for each in places.items()) or any(
                latest_complete(place) for place in places.values()
            )
        except OSError as error:
            raise BadInput(
                f"the checkpoints of {before.job_id} can't be read: {error}; bring their store back, "
                "or run the job again without --resume to begin anew"
            ) from error
        if not found:
            table = before.job().checkpoint or loaded.job.checkpoint
            where = before.checkpoint_store(table, before.meta().url)
            why = _why_none(before, site, table.store)
            raise BadInput(
                f"{before.job_id} has no complete checkpoint in {where} to resume from: {why}; run the job "
                "again without --resume to begin anew"
            )
    return loaded


def _why_none(before: JobDirectory, site: Site, store: str | None) -> str:
    """Why it has no checkpoint."""
    final = before.final() or site.final()
    why = "it has not saved one yet"
    if final is not None:
        stopped = final.outcome == Outcome.STOPPED.value
        why = f"it {'was stopped' if stopped else 'ended'} before it saved one"
    if store is not None and not Path(store).is_dir():  # a URL, or not mounted
        why += ", or its store is away (bring the store back then)"
    return why


def submit_again(
    before: JobDirectory,
    loaded: LoadedJob,
    *,
    resume: bool,
    backend: str | None = None,
    submission: Submission | None = None,
    progress: Callable[[Step], None] = quiet,
) -> JobDirectory:
    """Start what `load` gave, with the earlier job's newest checkpoint if it is to be resumed.

    Without ``backend`` it runs where it ran before.

    Raises:
        BackendError: the backend does not take the job.
        BadInput: every checkpoint is damaged.
        OSError: the checkpoint cannot be read or copied.
    """

    def populate(directory: JobDirectory) -> None:
        carry_over(before, directory)
        if resume:
            taken = adopt(before, directory, progress)
            progress(Step(note=from_checkpoints(taken)))

    return submit(
        loaded,
        backend=backend or before.meta().backend,
        rerun_of=before.job_id,
        earlier=before.secret_variables(),
        populate=populate,
        submission=submission,
        progress=progress,
    )


def go_on(directory: JobDirectory) -> None:
    """Give a job a coordinator again that has none any more; nothing if it has ended.

    Raises:
        BackendError: it cannot be started.
    """
    if directory.final() is None:
        site = site_of(directory)
        if site.final() is None and site.running() is Running.NO:
            site.revive()


def adopt(
    before: JobDirectory, directory: JobDirectory, progress: Callable[[Step], None] = quiet
) -> dict[str, str]:
    """Give a job that has not begun the newest sound checkpoint of an earlier one, if that has one.

    Returns:
        What was taken, such as ``000007 of digits-20261121-143502-k3f9``; by task where each has
        checkpoints of its own, else under "".

    Raises:
        BadInput: it has checkpoints, and every one is damaged.
        OSError: it cannot be read or copied.
    """
    from howdah.storage.checkpoints.restoring import NoVersion
    from howdah.storage.checkpoints.upload import adopt, adopt_folder
    from howdah.storage.checkpoints.versions import Skipped

    def skipped(version: Skipped) -> None:
        text = f"checkpoint {version.version} of {before.job_id} is damaged: {version.reason}"
        progress(Step(note=text))

    places = _places(directory)
    taken: dict[str, str] = {}
    for whose, old in _places(before).items():
        new = places.get(whose)
        if new is not None and new != old:
            unsaved = _unsaved(before, whose, old)
            try:
                if unsaved is not None:
                    name = f"{unsaved.relative_to(before.path)} of {before.job_id}"
                    origin = adopt_folder(unsaved, new, name)
                else:
                    origin = adopt(old, new, before.job_id, skipped)
            except NoVersion as error:
                raise BadInput(
                    f"{before.job_id} can't be resumed: {error}; run it again without --resume to "
                    "begin anew"
                ) from error
            if origin is not None:
                taken[whose] = origin
    return taken


def _unsaved(job: JobDirectory, whose: str, place: str) -> Path | None:
    """A checkpoint of that task (of any if it is "") that the store at ``place`` did not take and that is newer
    than what it has."""
    from howdah.storage.checkpoints.versions import latest_complete

    found = (job.path / layout.UNSAVED).glob(f"{whose or '*'}/*/{layout.CHECKPOINT}")
    newest = max(found, key=lambda path: path.stat().st_mtime, default=None)
    saved = None
    with contextlib.suppress(
        Exception
    ):  # it may be away, or whatever an fsspec implementation raises
        saved = latest_complete(place) if newest is not None else None
    if newest is None or (saved is not None and saved[1].created > newest.stat().st_mtime):
        return None
    return newest


def from_checkpoints(taken: dict[str, str]) -> str:
    """What a job begins from, in words."""
    parts = [f"{whose}: {origin}" if whose else origin for whose, origin in taken.items()]
    if len(parts) > TASKS_SHOWN:
        parts[TASKS_SHOWN:] = [f"and those of {len(parts) - TASKS_SHOWN} more tasks"]
    return f"from checkpoint {', '.join(parts)}" if parts else "from no checkpoint"


def _places(directory: JobDirectory) -> dict[str, str]:
    """Where a job's checkpoints are: one place, or one for each task, by task."""
    job = planning.expand(directory.job())
    if job.checkpoint is None:
        return {}
    # On a cluster the job directory is elsewhere, and this machine has only its documents.
    store = directory.checkpoint_store(job.checkpoint, directory.meta().url)
    if job.checkpoint.source != "each":
        return {"": store}
    return {task: f"{store}/{task}" for task in _task_folders(job)}


def _task_folders(job: Job) -> list[str]:
    return [
        f"{name}-{index}"
        for name, role in job.roles.items()
        for index in range(instance_range(role.instances)[1])
    ]
