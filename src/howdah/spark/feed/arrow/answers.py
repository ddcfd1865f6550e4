"""What a program answers to a batch, as an Arrow record batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from howdah.spark.errors import FeedError

COLUMN = "prediction"
"""Name of an answer that is no dict."""


def record_batch(values: Any, rows: int, feed: str) -> pa.RecordBatch:
    """The answers to a batch of so many rows.

    Raises:
        FeedError: they are more or fewer, or are of no type Arrow has.
    """
    try:
        batch = _record_batch(values)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise FeedError(
            f"The results given to the feed {feed!r} are no columns: {error}. Give an array, a "
            "list, a dict of them, or an Arrow record batch"
        ) from error
    if batch.num_rows != rows:
        raise FeedError(
            f"feed.results() of {feed!r} was given {batch.num_rows} values for a batch of {rows} "
            "rows: give exactly one for each row (the last batch of a partition is a short one)"
        )
    return batch


def stream(batches: Sequence[pa.RecordBatch], feed: str) -> bytes:
    """The answers to one record batch, as an Arrow IPC stream with one record batch.

    Raises:
        FeedError: they do not have the same columns.
    """
    try:
        table = pa.Table.from_batches(batches).combine_chunks()
    except pa.ArrowInvalid as error:
        raise FeedError(
            f"The results given to the feed {feed!r} differ in their columns or types from batch "
            f"to batch: {error}"
        ) from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _record_batch(values: Any) -> pa.RecordBatch:
    if isinstance(values, pa.Table):
        batches = values.combine_chunks().to_batches()
        if batches:
            return batches[0]
        return pa.RecordBatch.from_pylist([], schema=values.schema)
    if isinstance(values, pa.RecordBatch):
        return values
    if isinstance(values, Mapping):
        columns = {str(name): _column(value) for name, value in values.items()}
        return pa.record_batch(columns)
    return pa.record_batch({COLUMN: _column(values)})


def _column(values: Any) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, (list, tuple)):
        if values and (isinstance(values[0], np.ndarray) or hasattr(values[0], "__array__")):
            differ = len({np.shape(value) for value in values}) > 1
            values = [np.asarray(v) for v in values] if differ else np.asarray(values)
        return pa.array(values)
    if hasattr(values, "detach"):  # a torch tensor
        values = values.detach().cpu()
    values = np.asarray(values)
    if values.ndim == 0:
        raise ValueError(f"a single value, {values}")
    return nested(values)


def nested(values: np.ndarray) -> pa.Array:
    """One dimension as plain values, each further one as a level of lists.

    Raises:
        ValueError: a list column would have too many values.
    """
    if values.ndim == 1:
        return pa.array(list(values) if values.dtype == object else values)
    width = values.shape[1]
    if len(values) * width > np.iinfo(np.int32).max:
        raise ValueError(
            f"{len(values) * width} values in one batch are more than a list column can hold: take "
            "smaller batches"
        )
    inner = nested(np.ascontiguousarray(values).reshape(-1, *values.shape[2:]))
    # Not a list of a fixed size: Spark has none.
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, inner)
