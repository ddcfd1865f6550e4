"""What a program answers to a batch, as an Arrow record batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.arrays import unfolded

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


def by_name(values: Any) -> dict[str, Any] | None:
    """The columns of an answer that says what they are called: a dict, Arrow's table or record batch, a
    DataFrame of pandas. None of any other."""
    if isinstance(values, Mapping):
        return {str(name): column for name, column in values.items()}
    if isinstance(values, (pa.Table, pa.RecordBatch)):
        return dict(zip(values.schema.names, values.columns))
    if hasattr(values, "iloc") and hasattr(values, "columns"):
        return {str(name): column for name, column in values.items()}
    return None


def column(values: Any) -> pa.Array:
    """One answer as a column: of numpy, Arrow, pandas or a framework, or a list.

    What is masked is null. One dimension gives plain values, each further one a level of lists. Types
    that Spark has not become the next one that it has.

    Raises:
        ValueError: it is a single value, or a list column would have too many values.
        ArrowException, TypeError: it is of no type Arrow has.
    """
    found = _column(values)
    depth, kind = unfolded(found.type)
    wider = _WIDER.get(kind)
    if wider is None:
        return found
    for _ in range(depth):
        wider = pa.list_(wider)
    return found.cast(wider)


def untyped(schema: pa.Schema) -> str:
    """A column of which no value tells a type, only nulls and empty lists; empty if there is none."""
    return next((each.name for each in schema if pa.types.is_null(unfolded(each.type)[1])), "")


_WIDER = {
    pa.float16(): pa.float32(),
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
}


def _record_batch(values: Any) -> pa.RecordBatch:
    if isinstance(values, pa.RecordBatch):
        return values
    columns = by_name(values)
    if columns is None:
        columns = {COLUMN: values}
    return pa.record_batch({name: column(each) for name, each in columns.items()})


def _column(values: Any) -> pa.Array:
    if hasattr(values, "iloc") or hasattr(values, "__arrow_array__"):
        values = pa.array(values)
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    if isinstance(values, (list, tuple)):
        return _listed(values)
    try:
        array = _numpy(values)
    except ValueError:  # rows of different lengths
        return _listed(list(values))
    if array.ndim == 0:
        raise ValueError(f"a single value, {array}")
    return _nested(array)


def _numpy(values: Any) -> np.ndarray:
    """An array or tensor of any framework in numpy; a mask stays, which `np.asarray` drops."""
    if hasattr(values, "detach"):  # torch: off the graph, off the device
        values = values.detach().cpu()
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if array.dtype.kind == "c":
        raise TypeError("they are complex; answer their parts as two columns")
    return array


def _listed(rows: Sequence[Any]) -> pa.Array:
    """A column of these rows, arrays among them."""
    rows = [_row(row) for row in rows]
    arrays = [row for row in rows if isinstance(row, np.ndarray)]
    if arrays and len(arrays) == len(rows) and len({each.shape for each in arrays}) == 1:
        masked = any(isinstance(each, np.ma.MaskedArray) for each in arrays)
        return _nested(np.ma.stack(arrays) if masked else np.stack(arrays))
    # Arrow looks at no mask inside a list.
    masked = [each for each in arrays if isinstance(each, np.ma.MaskedArray) and each.ndim == 1]
    kinds = {each.dtype for each in arrays} if masked else set()
    kind = pa.list_(pa.from_numpy_dtype(kinds.pop())) if len(kinds) == 1 else None
    return pa.array([_unmasked(row) for row in rows], kind)


def _row(value: Any) -> Any:
    if value is np.ma.masked:
        return None
    if isinstance(value, np.generic) or not hasattr(value, "__array__"):
        return value
    array = _numpy(value)
    return array if array.ndim else array[()]


def _unmasked(value: Any) -> Any:
    """The same with None for what is masked, however deep in lists."""
    if isinstance(value, np.ma.MaskedArray):
        return value.tolist()
    several = isinstance(value, np.ndarray) and (value.dtype == object or value.ndim > 1)
    if several or isinstance(value, (list, tuple)):
        return [_unmasked(each) for each in value]
    return value


def _nested(values: np.ndarray) -> pa.Array:
    """One dimension as plain values, each further one as a level of lists.

    Raises:
        ValueError: a list column would have too many values.
    """
    if values.ndim == 1:
        return _listed(values.tolist()) if values.dtype == object else pa.array(values)
    width = values.shape[1]
    if len(values) * width > np.iinfo(np.int32).max:
        raise ValueError(
            f"{len(values) * width} values in one batch are more than a list column can hold: take "
            "smaller batches"
        )
    inner = _nested(values.reshape(-1, *values.shape[2:]))
    # Not a list of a fixed size: Spark has none.
    offsets = pa.array(np.arange(len(values) + 1, dtype=np.int32) * width)
    return pa.ListArray.from_arrays(offsets, inner)
