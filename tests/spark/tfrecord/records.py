"""Rows and records for tests of the codec."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from howdah.spark.tfrecord.codec.columns import RecordType, columns
from howdah.spark.tfrecord.codec.compression import Compression
from howdah.spark.tfrecord.codec.decode import decode
from howdah.spark.tfrecord.codec.encode import encode
from howdah.spark.tfrecord.codec.framing import blocks
from howdah.spark.tfrecord.folders import RecordFile
from howdah.spark.tfrecord.options import TFRecordOptions
from howdah.spark.tfrecord.reading import Split, rows

EXAMPLE = RecordType.EXAMPLE
SEQUENCE = RecordType.SEQUENCE_EXAMPLE


def encoded(batch: pa.RecordBatch, record_type: RecordType = EXAMPLE) -> bytes:
    """A batch as it stands in a file."""
    return b"".join(encode(batch, columns(batch.schema, record_type), record_type))


def payloads(data: bytes) -> list[bytes]:
    """The records of a file."""
    return [payload for block in blocks(io.BytesIO(data)) for payload in block.payloads()]


def decoded(
    data: bytes, schema: pa.Schema, record_type: RecordType = EXAMPLE, block_bytes: int = 1 << 22
) -> pa.Table:
    """A file's rows."""
    wanted = columns(schema, record_type)
    found = blocks(io.BytesIO(data), block_bytes=block_bytes)
    return pa.Table.from_batches(
        [decode(block, wanted, schema, record_type) for block in found], schema
    )


def table_of(path: Path, schema: pa.Schema, **options: Any) -> pa.Table:
    """A file's rows, as a task of Spark reads them."""
    split = Split((RecordFile(str(path), path.stat().st_size),))
    found = rows(split, schema, TFRecordOptions(paths=(str(path),), **options))
    return pa.Table.from_batches(list(found), schema)


def batch(**arrays: Any) -> pa.RecordBatch:
    """A batch of named arrays."""
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def lists(kind: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """A column of arrays."""
    return pa.array(values, pa.list_(kind))


__all__ = ["Compression", "EXAMPLE", "SEQUENCE", "RecordType"]
