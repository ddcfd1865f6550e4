"""Every example trains a real model: exit 0, accuracy, and proof that its ranks worked together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.checks import TRAININGS, check_training
from tests.acceptance.jobs import Example
from tests.cli.howdah import until

DEFAULT = ("pytorch", "xgboost", "dask")
"""One of a gang that talks among itself, one with a tracker, one with a client; the others nightly."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name",
    [
        each if each in DEFAULT else pytest.param(each, marks=pytest.mark.nightly)
        for each in TRAININGS
    ],
)
def test_an_example_trains(name: str, tmp_path: Path) -> None:
    job = Example(name, tmp_path).run().end()
    shared = job.directory.path / "shared"
    shards = [json.loads(path.read_text()) for path in shared.glob("samples-*.json")]
    check_training(TRAININGS[name], job.run.text, shards)
    assert any((job.directory.path / "tensorboard").rglob("events.out.tfevents*"))
    until(lambda: not job.marked(), "the end of everything of the job")


@pytest.mark.timeout(320)
@pytest.mark.parametrize(
    "name",
    [
        "command",
        *(
            pytest.param(each, marks=pytest.mark.nightly)
            for each in ("horovod", "mpi", "mxnet", "ray")
        ),
    ],
)
def test_the_other_examples_end_well(name: str, tmp_path: Path) -> None:
    """They train nothing, or their frameworks are tested elsewhere."""
    job = Example(name, tmp_path).run().end(within_s=300)
    until(lambda: not job.marked(), "the end of everything of the job")
