"""What every run of an example must have shown, wherever it ran."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

TRAINING_SAMPLES = 1440


class Expected(NamedTuple):
    """Of one example."""

    name: str
    accuracy: float
    """At least so much, on images it has not seen."""
    ranks: int
    """How many processes tell an accuracy."""
    synchronous: bool
    """All ranks have the same weights, and see every sample once."""


TRAININGS = {
    each.name: each
    for each in (
        Expected("tensorflow", 0.95, 2, True),
        Expected("tensorflow-ps", 0.95, 1, False),
        Expected("pytorch", 0.95, 2, True),
        Expected("jax", 0.95, 2, True),
        Expected("xgboost", 0.93, 2, True),
        Expected("lightgbm", 0.93, 2, True),
        Expected("dask", 0.93, 1, False),
    )
}


def check_training(expected: Expected, printed: str, shards: Iterable[Any]) -> None:
    """It learned, and its ranks worked together.

    Args:
        expected: of that example.
        printed: the logs of all tasks.
        shards: what the ranks wrote to ``samples-<rank>.json``.
    """
    accuracies = [float(match[1]) for match in re.finditer(r"final accuracy (\d\.\d+)", printed)]
    assert len(accuracies) >= expected.ranks, printed
    assert min(accuracies) >= expected.accuracy
    if not expected.synchronous:
        return
    digests = set(re.findall(r"checksum of the weights (\w{12}) ", printed))
    assert len(digests) == 1, "ranks that train together end with the same weights"
    by_rank = sorted(shards, key=lambda shard: shard["rank"])
    assert [shard["rank"] for shard in by_rank] == list(range(expected.ranks))
    ids = [sample for shard in by_rank for sample in shard["ids"]]
    assert len(ids) == len(set(ids)), "no sample is seen by two ranks"
    assert set(ids) == set(range(TRAINING_SAMPLES)), "every sample is seen"
