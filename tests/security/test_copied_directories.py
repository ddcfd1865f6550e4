"""Job directories that are copies of somebody's: whatever is in the place of a file, nobody waits for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from howdah.core.messages import Task
from howdah.core.state import Outcome
from howdah.spec.model import Job, Role
from howdah.storage import coordinator_ends, journal, layout, metrics
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.layout import JobMeta

pytestmark = pytest.mark.timeout(20)
"""They would wait for ever."""


@pytest.fixture
def directory(tmp_path: Path) -> JobDirectory:
    made = JobDirectory(tmp_path / "digits-20261121-143502-k3f9")
    meta = JobMeta(job_id=made.job_id, user="ann", backend="local", submitted=1.0)
    made.create(Job(name="digits", command="true", roles={"worker": Role()}), meta)
    return made


def pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def zeros(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


READ: dict[str, Callable[[JobDirectory], object]] = {
    layout.JOB: JobDirectory.job,
    layout.META: JobDirectory.meta,
    layout.FINAL: JobDirectory.final,
    layout.COORDINATOR: JobDirectory.coordinator,
    "secrets/token": JobDirectory.token,
    "secrets/containers.key": JobDirectory.containers_key,
    "secrets/variables.json": JobDirectory.secret_variables,
    "events-0001.jsonl": lambda directory: list(journal.read(directory.path)),
    "metrics-0001.jsonl": lambda directory: list(metrics.read(directory.path)),
}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("put", [pipe, zeros])
def test_a_pipe_or_device_in_the_place_of_a_file_is_refused(
    name: str, put: Callable[[Path], None], directory: JobDirectory
) -> None:
    """Finding 22: a copied job directory has a pipe or a link to /dev/zero for a file. `list` and `history` of the
    whole store waited for it."""
    path = directory.path / name
    path.parent.mkdir(exist_ok=True)
    put(path)
    with pytest.raises((StorageError, OSError)) as caught:
        READ[name](directory)
    assert "can't be read" in str(caught.value) or "it is no file" in str(caught.value)


def test_a_pipe_among_the_ends_of_coordinators_is_passed_over(directory: JobDirectory) -> None:
    pipe(directory.path / "coordinator-died-x.json")
    assert coordinator_ends.read(directory.path) == []


@pytest.mark.parametrize(
    "tasks",
    [
        '[], "more": ' + "[" * 100_000,
        '[{"task":"../..:0","role":"../..","index":0,"state":"running","attempt":1,"generation":1}]',
    ],
    ids=["nested", "leads elsewhere"],
)
def test_an_end_that_nobody_wrote_so_is_damaged(tasks: str, directory: JobDirectory) -> None:
    """Finding 22: a final document is nested 100,000 deep, or names a role "../..". It was a 500 of the portal."""
    view = directory.fail("no")
    assert view.outcome == Outcome.FAILED.value
    document = msgspec.to_builtins(view)
    document["tasks"] = "TASKS"
    text = msgspec.json.encode(document).decode().replace('"TASKS"', tasks)
    (directory.path / layout.FINAL).write_text(text)
    with pytest.raises(StorageError, match="can't be read"):
        directory.final()


def test_no_role_leads_to_another_jobs_files(directory: JobDirectory) -> None:
    for role in ("../../other/logs/worker", "a\0b"):
        for path in (
            lambda task: directory.log_path(task, 1),
            lambda task: directory.stacks_path(task, 1),
            directory.log_attempts,
        ):
            with pytest.raises(StorageError, match="is no name of a role"):
                path(Task(role, 0))
