"""The Spark benchmark: its checksums, and one shape on a real Spark."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from benchmarks.results import Result, machine
from benchmarks.spark import QUICK, benchmark, peer
from benchmarks.spark.shapes import Shape, arrays, arrow, arrow_words, words

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("shape", Shape, ids=lambda shape: shape.value)
def test_all_consumers_have_the_same_checksum_and_every_byte_counts(shape: Shape) -> None:
    columns = arrays(shape)
    batch = arrow(shape)
    total = words(columns)
    assert arrow_words(batch) == total
    parts = arrow_words(batch.slice(0, 6)) + arrow_words(batch.slice(6))
    assert parts % 2**64 == total, "however the rows are cut"
    rows = [list(row.values()) for row in batch.to_pylist()]
    assert peer.checksum(shape, rows) == total
    name = next(iter(columns))
    other = {**columns, name: columns[name].copy()}
    other[name].reshape(-1).view(np.uint8)[-1] ^= 1
    assert words(other) != total


@pytest.mark.timeout(240)
def test_one_shape_is_measured_beside_the_floor() -> None:
    settings = msgspec.structs.replace(
        QUICK,
        runs=1,
        shapes=("10 floats",),
        partitions=(2,),
        rows=20_000,
        peer=False,
        train=False,
        eight=False,
        hosts=False,
    )
    measures, left_out = benchmark(settings)
    assert not left_out
    assert [each.name.split(":")[0] for each in measures][:3] == [
        "first epoch",
        "later epochs",
        "memory",
    ]
    assert all(each.ours > 0 for each in measures)
    told = Result(
        benchmark="spark",
        measures=tuple(measures),
        settings=msgspec.structs.asdict(settings),
        seconds=1.0,
        machine=machine((0.0, 0.0, 0.0)),
    )
    assert msgspec.json.decode(msgspec.json.encode(told), type=Result) == told
