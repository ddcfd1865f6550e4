"""A task's folder and places for its checkpoints."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from howdah.core.messages import Task
from howdah.storage.checkpoints.versions import CheckpointSpec


@pytest.fixture(params=["path", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store for checkpoints of each kind."""
    if request.param == "memory":
        fsspec.filesystem("memory").store.clear()
        return f"memory://{tmp_path.name}/checkpoints"
    return {"path": "", "file": "file://"}[request.param] + str(tmp_path / "store")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "work" / "checkpoints"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def spec(folder: Path, place: str) -> CheckpointSpec:
    return CheckpointSpec(folder=str(folder), store=place, task=Task("worker", 0))


@pytest.fixture
def local(folder: Path, tmp_path: Path) -> CheckpointSpec:
    return CheckpointSpec(folder=str(folder), store=str(tmp_path / "store"))
