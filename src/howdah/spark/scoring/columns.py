"""A model's answers as Arrow columns that Spark can hold.

One dimension gives a column of plain values, each further one a level of lists. Spark has no
unsigned integers and no half precision: those widen to the next type it has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from howdah.spark.errors import ScoringError
from howdah.spark.feed.arrow.answers import nested
from howdah.spark.feed.arrow.arrays import unfolded

_WIDER = {
    "float16": np.dtype("float32"),
    "bfloat16": np.dtype("float32"),
    "uint8": np.dtype("int16"),
    "uint16": np.dtype("int32"),
    "uint32": np.dtype("int64"),
}


def to_numpy(answer: Any) -> np.ndarray:
    """A tensor of any framework, or something like an array, as an array in this process."""
    if hasattr(answer, "detach"):  # torch: off the graph, off the device
        answer = answer.detach().cpu()
        if str(answer.dtype) == "torch.bfloat16":
            answer = answer.float()
    try:
        return np.asarray(answer)
    except ValueError:  # rows of different lengths
        ragged = np.empty(len(answer), object)
        ragged[:] = answer
        return ragged


def to_arrow(name: str, answer: Any, rows: int, kind: pa.DataType | None = None) -> pa.Array:
    """One output for ``rows`` rows, as ``kind`` if given.

    Raises:
        ScoringError: another number of rows, or values that cannot be of that type.
    """
    values = to_numpy(answer)
    if values.ndim == 0 or len(values) != rows:
        had = "a single value" if values.ndim == 0 else f"{len(values)} rows"
        raise ScoringError(
            f"the model's {name!r} has {had} for {rows} rows given to it; it must answer each row "
            "by one"
        )
    depth = unfolded(kind)[0] if kind is not None else values.ndim - 1
    while values.ndim - 1 > depth and values.shape[-1] == 1:
        values = values[..., 0]  # (n, 1) where a plain value is declared
    if values.ndim - 1 != depth and not values.dtype.hasobject:
        raise ScoringError(
            f"the model's {name!r} has shape {tuple(values.shape)}, which is not {kind}"
        )
    column = _nested(values, name)
    if kind is None or column.type == kind:
        return column
    try:
        return column.cast(kind, safe=not pa.types.is_floating(unfolded(kind)[1]))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ScoringError(
            f"the model's {name!r} is {column.type} and cannot be {kind}: {error}"
        ) from error


def arrow_type(dtype: str, dimensions: int) -> pa.DataType:
    """The column type of an output of this type and so many dimensions beside rows."""
    array = np.zeros((0, *([1] * dimensions)), dtype)
    return _nested(array, "").type


def _nested(values: np.ndarray, name: str) -> pa.Array:
    values = _plain(values, name)
    try:
        return nested(values)
    except (pa.ArrowException, ValueError) as error:
        raise ScoringError(
            f"the model's {name!r} ({values.dtype}) is no column: {error}"
        ) from error


def _plain(values: np.ndarray, name: str) -> np.ndarray:
    dtype = values.dtype
    if wider := _WIDER.get(dtype.name):
        return values.astype(wider)
    if dtype == np.uint64:
        if len(values) and values.max() > np.iinfo(np.int64).max:
            raise ScoringError(
                f"the model's {name!r} has {values.max()}, too large for Spark's bigint; convert it"
            )
        return values.astype(np.int64)
    if dtype.kind in "SU":
        return values.astype(object)
    if dtype.kind == "c":
        raise ScoringError(f"the model's {name!r} is complex; answer its parts as two outputs")
    return np.ascontiguousarray(values)
