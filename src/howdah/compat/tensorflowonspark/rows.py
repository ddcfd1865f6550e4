"""Python rows of an RDD as Arrow record batches, and back, exactly as they were.

An RDD's rows are any Python objects, which Spark moves by pickle. So do we: each row is one value of
a binary column, pickled by the Spark task that feeds it and unpickled in the training function's
process. Both belong to the same user's job, and the connection between them is that job's own,
mutually authenticated. DataFrames are not pickled: their columns stay Arrow's, and a row is a tuple.

This way a row costs a pickle of its own; a DataFrame fed to `howdah.spark` costs nothing per row.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

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


def of_batch(batch: Mapping[str, Any]) -> list[Any]:
    """The rows of a feed's batch (columns as arrays): Python objects, as `from_arrow` gives them."""
    if is_pickled(list(batch)):
        return loads(batch[PICKLED])
    columns = [
        values.tolist() if hasattr(values, "tolist") else values for values in batch.values()
    ]
    return list(zip(*columns))


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
