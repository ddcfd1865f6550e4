"""Every example trains a real model: exit 0, accuracy, and proof that its ranks worked together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.checks import TRAININGS, check_training
from tests.acceptance.jobs import Example


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", TRAININGS)
def test_an_example_trains(name: str, tmp_path: Path) -> None:
    job = Example(name, tmp_path).run().end()
    shared = job.directory.path / "shared"
    shards = [json.loads(path.read_text()) for path in shared.glob("samples-*.json")]
    check_training(TRAININGS[name], job.run.text, shards)
    assert any((job.directory.path / "tensorboard").rglob("events.out.tfevents*"))
    assert not job.marked(), "nothing is left"
