"""Every example trains a real model: exit 0, accuracy, and proof that its ranks worked together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.jobs import Example, Job

TRAINING_SAMPLES = 1440


def accuracies(job: Job) -> list[float]:
    return job.numbers(r"final accuracy (\d\.\d+)")


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("name", "least", "ranks", "synchronous"),
    [
        ("tensorflow", 0.95, 2, True),
        ("tensorflow-ps", 0.95, 1, False),
        ("pytorch", 0.95, 2, True),
        ("jax", 0.95, 2, True),
        ("xgboost", 0.93, 2, True),
        ("lightgbm", 0.93, 2, True),
        ("dask", 0.93, 1, False),
    ],
)
def test_an_example_trains(
    name: str, least: float, ranks: int, synchronous: bool, tmp_path: Path
) -> None:
    job = Example(name, tmp_path).run().end()
    found = accuracies(job)
    assert len(found) >= ranks, job.run.text
    assert min(found) >= least
    if synchronous:
        digests = {match[1] for match in job.lines(r"weights sha256 (\w+)")}
        assert len(digests) == 1, "ranks that train together end with the same weights"
        shards = [
            json.loads(path.read_text())
            for path in sorted((job.directory.path / "shared").glob("samples-*.json"))
        ]
        assert [shard["rank"] for shard in shards] == list(range(ranks))
        ids = [sample for shard in shards for sample in shard["ids"]]
        assert len(ids) == len(set(ids)), "no sample is seen by two ranks"
        assert set(ids) == set(range(TRAINING_SAMPLES)), "every sample is seen"
    assert any((job.directory.path / "tensorboard").rglob("events.out.tfevents*"))
    assert not job.marked(), "nothing is left"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["command", "horovod", "mpi", "mxnet", "ray"])
def test_the_other_examples_end_well(name: str, tmp_path: Path) -> None:
    job = Example(name, tmp_path).run().end(within_s=110)
    assert not job.marked()
