"""Rows to read and write."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pyarrow as pa


class Shape(enum.Enum):
    """Kinds of rows."""

    FLOATS = "10 floats"
    MIXED = "id, 3 numbers, string, label"
    IMAGE = "784 floats and a label"
    WHOLE = "784 whole numbers and a label"


ROWS = {Shape.FLOATS: 200_000, Shape.MIXED: 200_000, Shape.IMAGE: 20_000, Shape.WHOLE: 20_000}

_COLUMNS = {
    Shape.FLOATS: [f"cast((id * {n + 7}) % 1000 as float) / 1000f as x{n}" for n in range(10)],
    Shape.MIXED: [
        "id",
        "cast(id as float) / 7f as a",
        "id * 7 % 100000 as b",
        "-id as c",
        "concat('user-', id % 5000) as s",
        "id % 10 as y",
    ],
    Shape.IMAGE: [
        "transform(sequence(0, 783), n -> cast((id * 31 + n) % 1000 as float) / 1000f) as x",
        "id % 10 as y",
    ],
    Shape.WHOLE: ["transform(sequence(0, 783), n -> (id * 31L + n) % 256) as x", "id % 10 as y"],
}


def frame(spark: Any, shape: Shape, scale: float) -> Any:
    """The rows in Spark's memory, in four partitions."""
    rows = spark.range(0, int(ROWS[shape] * scale), 1, 4)
    made = rows.selectExpr(*_COLUMNS[shape]).cache()
    made.count()
    return made


def batch(shape: Shape, scale: float) -> pa.RecordBatch:
    """Rows of that kind without Spark."""
    count = max(100, int(ROWS[shape] * scale) // 2)
    rng = np.random.default_rng(1)
    if shape is Shape.FLOATS:
        columns = {f"x{n}": pa.array(rng.random(count, np.float32)) for n in range(10)}
    elif shape is Shape.MIXED:
        ids = np.arange(count)
        columns = {
            "id": pa.array(ids),
            "a": pa.array(rng.random(count, np.float32)),
            "b": pa.array(ids * 7 % 100000),
            "c": pa.array(-ids),
            "s": pa.array([f"user-{n % 5000}" for n in range(count)]),
            "y": pa.array(ids % 10),
        }
    else:
        if shape is Shape.IMAGE:
            values: Any = rng.random(count * 784, np.float32)
        else:
            values = rng.integers(0, 256, count * 784)
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * 784)
        columns = {
            "x": pa.ListArray.from_arrays(offsets, pa.array(values)),
            "y": pa.array(np.arange(count) % 10),
        }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
