"""Rows of four shapes, and a checksum over all their bytes.

Few distinct rows are repeated, so that data are made quickly, and Spark itself can say what the sum
must be: it counts how often each distinct row is there.

The checksum is the sum of all 8-byte words modulo 2**64 (of narrow rows, of 4-byte words): every byte
counts, the order does not, and it costs next to nothing beside moving the bytes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np

_DISTINCT = 32
MASK = 2**64 - 1
"""What is left of a sum: a checksum has 64 bits."""


class Shape(enum.Enum):
    """What a row is."""

    NARROW = "10 floats"
    PIXELS = "784 uint8 + label"
    FLOATS = "784 floats"
    WIDE = "100 KB binary"


class Facts(msgspec.Struct, frozen=True):
    """Of one shape."""

    schema: str
    row_bytes: int
    batch: int
    """Rows in a batch of the training function."""
    arrow_batch: int
    """``spark.sql.execution.arrow.maxRecordsPerBatch``, the same for all consumers."""
    rows: int
    """In a full run."""
    quick_rows: int
    peer_rows: int
    """TensorFlowOnSpark takes minutes for what takes others a second."""
    peer_quick_rows: int


FACTS = {
    Shape.NARROW: Facts(
        ", ".join(f"f{i} float" for i in range(10)),
        40,
        8192,
        10_000,
        4_000_000,
        1_000_000,
        60_000,
        8_000,
    ),
    Shape.PIXELS: Facts(
        "pixels binary, label bigint", 792, 1024, 10_000, 400_000, 240_000, 60_000, 8_000
    ),
    Shape.FLOATS: Facts(
        "features array<float>", 3136, 1024, 10_000, 150_000, 90_000, 30_000, 6_000
    ),
    Shape.WIDE: Facts("payload binary", 100_000, 64, 200, 5_000, 3_000, 4_000, 600),
}


def arrays(shape: Shape) -> dict[str, np.ndarray]:
    """The distinct rows: by column, the first dimension is rows."""
    chance = np.random.default_rng(7)
    if shape is Shape.NARROW:
        return {f"f{i}": chance.random(_DISTINCT, np.float32) for i in range(10)}
    if shape is Shape.PIXELS:
        pixels = chance.integers(0, 256, (_DISTINCT, 784), np.uint8)
        return {"pixels": pixels, "label": np.arange(_DISTINCT, dtype=np.int64) % 10}
    if shape is Shape.FLOATS:
        return {"features": chance.random((_DISTINCT, 784), np.float32)}
    return {"payload": chance.integers(0, 256, (_DISTINCT, 100_000), np.uint8)}


def frame(spark: Any, shape: Shape, rows: int, partitions: int) -> Any:
    """So many rows in so many partitions, cached in Spark's memory."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", FACTS[shape].arrow_batch)
    made = spark.range(0, rows, 1, partitions).mapInArrow(_Make(shape), FACTS[shape].schema)
    made = made.persist()
    assert made.count() == rows
    return made


class _Make:
    """``mapInArrow`` function: numbers become rows."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        table = arrow(self._shape)
        step = max(1, FACTS[self._shape].arrow_batch // 4)
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            for begin in range(0, len(numbers), step):
                picked = pa.array(numbers[begin : begin + step] % _DISTINCT)
                yield pa.RecordBatch.from_arrays(
                    [column.take(picked) for column in table.columns], names=table.schema.names
                )


def arrow(shape: Shape) -> Any:
    """The distinct rows as Arrow."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for name, values in arrays(shape).items():
        if values.ndim == 1:
            columns[name] = pa.array(values)
        elif values.dtype == np.uint8:
            columns[name] = pa.array([row.tobytes() for row in values], pa.binary())
        else:
            columns[name] = pa.array(list(values), pa.list_(pa.float32()))
    return pa.RecordBatch.from_pydict(columns)


def expected(made: Any, shape: Shape) -> int:
    """The checksum by Spark's own counting, in the JVM."""
    total = 0
    for row in made.groupBy(*made.columns).count().collect():
        one = row.asDict()
        count = one.pop("count")
        columns: dict[str, Any] = {}
        for name, value in one.items():
            if isinstance(value, bytes | bytearray):
                columns[name] = np.frombuffer(value, np.uint8)
            else:
                columns[name] = np.asarray([value], np.int64 if name == "label" else np.float32)
        total += count * words(columns)
    return total & MASK


def words(columns: dict[str, Any]) -> int:
    """The checksum of a batch: numpy arrays by column; object arrays hold one `bytes` a row."""
    total = 0
    for values in columns.values():
        if values.dtype == object:
            for value in values:
                total += _sum(np.frombuffer(value, np.uint8))
        else:
            total += _sum(values)
    return total & MASK


def _sum(values: np.ndarray) -> int:
    flat = np.ascontiguousarray(values).reshape(-1)
    # Of single floats a batch may have an odd number.
    word = np.uint32 if flat.dtype == np.float32 and values.ndim == 1 else np.uint64
    return int(flat.view(word).sum(dtype=np.uint64))


def arrow_words(batch: Any) -> int:
    """The checksum of an Arrow record batch, where its bytes lie."""
    import pyarrow as pa

    total = 0
    for column in batch.columns:
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            offsets = np.frombuffer(
                column.buffers()[1], np.int64 if pa.types.is_large_binary(kind) else np.int32
            )
            begin, end = offsets[column.offset], offsets[column.offset + len(column)]
            values = np.frombuffer(column.buffers()[2], np.uint8)[begin:end]
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            values = column.flatten().to_numpy().reshape(len(column), -1)
        else:
            values = column.to_numpy()
        total += _sum(values)
    return total & MASK
