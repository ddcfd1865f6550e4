"""Columns as tensors that a model takes, and its answers as Arrow columns that Spark can hold.

One dimension gives a column of plain values, each further one a level of lists. Spark has no
unsigned integers and no half precision: those widen to the next type it has.
"""

from __future__ import annotations

from typing import Any

import msgspec
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

Batch = dict[str, Any]
"""Tensors by name: arrays whose first dimension is rows, as `howdah.spark.feed.arrow.columns` makes them
(integers with nulls are masked arrays; rows that differ in length, object arrays)."""


class Tensor(msgspec.Struct, frozen=True):
    """An input or output as the model declares it."""

    name: str
    dtype: str = ""
    """numpy's name of it; empty: any."""
    shape: tuple[int | None, ...] | None = None
    """Of one row; None where the model does not say."""


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


def plain(values: Any, name: str) -> Any:
    """The column ``name`` as a plain array; missing numbers are NaN (in float64).

    Raises:
        ScoringError: it is a struct, or its rows have different lengths.
    """
    if isinstance(values, dict):
        raise ScoringError(
            f"column {name!r} is a struct; select its fields as columns and map those"
        )
    if np.ma.isMaskedArray(values):
        return np.ma.filled(values.astype(np.float64), np.nan)
    if values.dtype == object and any(isinstance(value, np.ndarray) for value in values):
        sizes = {None if value is None else len(value) for value in values}
        lengths = sorted(size for size in sizes if size is not None)
        raise ScoringError(
            f"rows of column {name!r} have {lengths[0]} to {lengths[-1]} values"
            f"{', or null' if None in sizes else ''}; a tensor needs the same number in every row: "
            "pad or filter them"
        )
    return values


def side_by_side(parts: list[np.ndarray]) -> np.ndarray:
    """Several columns as the columns of one tensor."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)


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
