"""A store that is full does not hold a job that has ended, and nothing of it is lost."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from howdah.backends.local.site import _likely
from howdah.core.messages import Task
from howdah.storage import coordinator_ends, outputs
from howdah.storage.checkpoints import watching
from howdah.storage.checkpoints.versions import CheckpointSpec
from howdah.storage.checkpoints.watching import Requests, watch
from howdah.storage.jobdir import JobDirectory
from howdah.storage.stores.checkpoint_stores import LocalStore
from howdah.storage.stores.destinations import LocalDestination


def full(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_checkpoint_that_does_not_fit_is_put_aside_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "FULL_S", 0.0)
    monkeypatch.setattr(LocalStore, "draft", full)
    (tmp_path / "work/deep").mkdir(parents=True)
    (tmp_path / "work/deep/model").write_text("weights")
    unsaved = tmp_path / "job/unsaved/worker-0/1/checkpoint"
    spec = CheckpointSpec(
        folder=str(tmp_path / "work"),
        store=str(tmp_path / "store"),
        task=Task("worker", 0),
        unsaved=str(unsaved),
    )
    reader, writer = os.pipe()
    os.write(writer, f"finish 1800 {time.time()}\n".encode())
    reports: list[Any] = []
    watch(spec, Requests(reader), reports.append)
    os.close(writer)
    os.close(reader)
    assert reports[-1].unsaved
    assert reports[-1].problem.endswith(f"it is kept in {unsaved}")
    assert "storage-full: " in reports[-1].problem and "inodes are free" in reports[-1].problem
    assert (unsaved / "deep/model").read_text() == "weights"


def test_outputs_that_do_not_fit_are_given_up_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "FULL_S", 0.0)
    monkeypatch.setattr(LocalDestination, "put", full)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/a").write_text("1")
    spec = outputs.OutputSpec(
        base=str(tmp_path), folders=("results",), store=str(tmp_path / "store"), limit_s=1800.0
    )
    (problem,) = outputs.copy(spec).problems
    assert "No space left" in problem


def test_a_lost_job_says_what_its_coordinator_died_of(tmp_path: Path) -> None:
    """The disk may have room again, once the containers are gone."""
    end = coordinator_ends.CoordinatorEnd(who="7", reason="No space left on device", time=1.0)
    coordinator_ends.write(tmp_path, end)
    assert _likely(JobDirectory(tmp_path)).endswith("died of: No space left on device")
