"""The same job again, from its beginning or from its last checkpoint."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING

from howdah.client.errors import BadInput
from howdah.client.functions import carry_over
from howdah.client.loading import load_again
from howdah.client.submit import submit
from howdah.spec.load import LoadedJob
from howdah.storage.jobdir import JobDirectory

if TYPE_CHECKING:
    from howdah.backends.local.submit import NodeStarter


def load(before: JobDirectory, overrides: Sequence[str] = (), *, resume: bool) -> LoadedJob:
    """The job of an earlier run, ready to run again.

    Raises:
        BadInput: it is to be resumed, and has no complete checkpoint here.
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
        if loaded.job.checkpoint.store is None and not _has_any(before):
            raise BadInput(
                f"{before.job_id} has no complete checkpoint to resume from; run it again without "
                "--resume"
            )
    return loaded


def submit_again(
    before: JobDirectory, loaded: LoadedJob, *, resume: bool, starter: NodeStarter | None = None
) -> JobDirectory:
    """Start what `load` gave, with the earlier job's checkpoints if it is to be resumed.

    Raises:
        BackendError: the backend does not take the job.
    """

    def furnish(directory: JobDirectory) -> None:
        carry_over(before, directory)
        if resume:
            _link(before, directory)

    return submit(
        loaded,
        backend=before.meta().backend,
        rerun_of=before.job_id,
        furnish=furnish,
        starter=starter,
    )


def _has_any(before: JobDirectory) -> bool:
    return next(before.checkpoints.rglob("manifest.json"), None) is not None


def _link(before: JobDirectory, directory: JobDirectory) -> None:
    """Give the new job the earlier one's checkpoints: the same files, which nobody changes."""
    shutil.copytree(
        before.checkpoints, directory.checkpoints, copy_function=_link_or_copy, dirs_exist_ok=True
    )


def _link_or_copy(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another disk, or one without links
        shutil.copy2(source, target)
    return target
