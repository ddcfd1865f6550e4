"""Python rows of an RDD as Arrow record batches, and back, exactly as they were.

An RDD's rows are any Python objects, which Spark moves by pickle. So do we: each row is one value of
a binary column, pickled by the Spark task that feeds it and unpickled in the training function's
process. Both belong to the same user's job, and the connection between them is that job's own,
mutually authenticated. DataFrames are not pickled: their columns stay Arrow's, and a row is a tuple.

This way a row costs a pickle of its own; a DataFrame fed to `howdah.spark` costs nothing per row.
"""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from howdah.spark.feed.arrow.arrays import is_binary, is_list, unfolded

PICKLED = "howdah.python"
"""Name of the column, and key of its schema's metadata."""
BATCH_BYTES = 1 << 20
BATCH_ROWS = 8192
FIRST_ROWS = 64
"""The first batch is small: the program has something to do while the rest is made."""

SCHEMA = pa.schema([pa.field(PICKLED, pa.binary(), nullable=False)], metadata={PICKLED: b"1"})


def to_arrow(rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """Record batches of pickled rows, each of about `BATCH_BYTES`."""
    # Arrays that are views of others would take all of those along: protocol 5 copies what is used.
    dumps = pickle.dumps
    kept: list[bytes] = []
    size, limit = 0, FIRST_ROWS
    for row in rows:
        data = dumps(row, protocol=pickle.HIGHEST_PROTOCOL)
        kept.append(data)
        size += len(data)
        if size >= BATCH_BYTES or len(kept) >= limit:
            yield _batch(kept)
            kept, size, limit = [], 0, BATCH_ROWS
    if kept:
        yield _batch(kept)


def answers_to_arrow(answers: Sequence[Any]) -> pa.RecordBatch:
    """One record batch with as many rows as there are answers."""
    return _batch([pickle.dumps(answer, protocol=pickle.HIGHEST_PROTOCOL) for answer in answers])


def of_batch(batch: Mapping[str, Any], schema: pa.Schema | pa.StructType) -> list[Any]:
    """The rows of a feed's batch (columns as arrays): as they were, or `Row` objects of a DataFrame.

    ``schema`` is that of the columns, for what an array does not say: a feed gives lists, and bytes, as
    arrays of numbers where it can.
    """
    if is_pickled(list(batch)):
        return loads(batch[PICKLED])
    columns = [_values(column, schema.field(name).type) for name, column in batch.items()]
    make = _row_maker(list(batch))
    return [make(*values) for values in zip(*columns)]


def _values(column: Any, kind: Any) -> Sequence[Any]:
    if isinstance(column, Mapping):  # of a struct
        return of_batch(column, kind)
    leaf = unfolded(kind)[1]
    values = column if is_binary(leaf) else column.tolist()
    if _is_other(leaf) or (column.dtype.hasobject and is_list(kind)):
        return [_value(value, kind) for value in values]
    return values


def _value(value: Any, kind: Any) -> Any:
    """As ``df.rdd`` has it."""
    if value is None:
        return None
    if is_binary(kind):
        return bytes(value)
    if _is_instant(kind):
        return _local(value)
    if pa.types.is_map(kind):
        pairs = dict(value).items()
        return {_value(key, kind.key_type): _value(each, kind.item_type) for key, each in pairs}
    if pa.types.is_struct(kind) and isinstance(value, Mapping):  # a vector or an image is an array
        values = [_value(value[field.name], field.type) for field in kind]
        return _row_maker(list(value))(*values)
    if not is_list(kind):
        return value
    if hasattr(value, "tolist") and not is_binary(unfolded(kind)[1]):
        value = value.tolist()
    if _is_other(unfolded(kind)[1]) or is_list(kind.value_type):
        return [_value(each, kind.value_type) for each in value]
    return value


def _local(time: datetime.datetime) -> datetime.datetime:
    """An instant as pyspark's rows have it: this machine's time, without a zone. Arrays of instants are in UTC and
    do not say so."""
    instant = time if time.tzinfo is not None else time.replace(tzinfo=datetime.UTC)
    return instant.astimezone().replace(tzinfo=None)


def _is_other(kind: pa.DataType) -> bool:
    """Whether a row's value of that type is something else than what an array's own ``tolist`` makes of it."""
    nested = pa.types.is_map(kind) or pa.types.is_struct(kind)
    return nested or is_binary(kind) or _is_instant(kind)


def _is_instant(kind: Any) -> bool:
    return pa.types.is_timestamp(kind) and kind.tz is not None


def _row_maker(names: list[str]) -> Callable[..., Any]:
    """What makes rows as ``df.rdd`` has them; tuples where Spark is not installed."""
    try:
        from pyspark.sql import Row
    except ImportError:
        return lambda *values: values
    return Row(*names)


def is_pickled(names: Sequence[str]) -> bool:
    """Whether columns of these names are such a batch's."""
    return list(names) == [PICKLED]


def loads(values: Iterable[bytes]) -> list[Any]:
    """The rows of a batch's column."""
    return [pickle.loads(value) for value in values]  # noqa: S301 - of this job's own Spark tasks


def from_arrow(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Rows again: what was pickled as it was, tuples of Python values from other columns."""
    for batch in batches:
        if is_pickled(batch.schema.names):
            yield from loads(batch.column(0).to_pylist())
        else:
            yield from zip(*(column.to_pylist() for column in batch.columns))


def _batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], schema=SCHEMA)
