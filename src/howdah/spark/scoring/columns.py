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
from howdah.spark.feed.arrow.answers import column
from howdah.spark.feed.arrow.arrays import lengths, unfolded
from howdah.spark.feed.arrow.columns import FILL

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


def to_arrow(name: str, answer: Any, rows: int, kind: pa.DataType | None = None) -> pa.Array:
    """One output for ``rows`` rows, as ``kind`` if given: floats are rounded to its digits, and nothing
    else changes.

    Raises:
        ScoringError: another number of rows, or values that cannot be of that type.
    """
    try:
        found = column(answer)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ScoringError(f"the model's {name!r} is no column: {error}") from error
    if len(found) != rows:
        raise ScoringError(
            f"the model's {name!r} has {len(found)} rows for {rows} rows given to it; it must answer "
            "each row by one"
        )
    if kind is None or found.type == kind:
        return found
    single = found
    while unfolded(single.type)[0] > unfolded(kind)[0] and _is_single(single):
        single = single.flatten()  # (n, 1) where a plain value is declared
    try:
        return single.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ScoringError(
            f"the model's {name!r} is {found.type} and cannot be {kind}: {error}. Answer what fits, or "
            "give another schema"
        ) from error


def _is_single(lists: pa.Array) -> bool:
    """Whether each row is a list of one value."""
    return not lists.null_count and bool((lengths(lists) == 1).all())


def plain(values: Any, name: str) -> Any:
    """The column ``name`` as a plain array, masked where it has nulls that are no NaN.

    Raises:
        ScoringError: it is a struct, or its rows have different lengths.
    """
    if isinstance(values, dict):
        raise ScoringError(
            f"column {name!r} is a struct; select its fields as columns and map those"
        )
    if values.dtype == object and any(isinstance(value, np.ndarray) for value in values):
        sizes = {None if value is None else len(value) for value in values}
        known = sorted(size for size in sizes if size is not None)
        raise ScoringError(
            f"rows of column {name!r} have {known[0]} to {known[-1]} values"
            f"{', or null' if None in sizes else ''}; a tensor needs the same number in every row: "
            "pad or filter them"
        )
    return values


def as_type(values: Any, dtype: np.dtype, name: str) -> np.ndarray:
    """The column ``name`` as a model's tensor of that type: missing numbers are NaN, floats are rounded to
    the type's digits, and nothing else changes.

    Raises:
        ScoringError: that type has no NaN, or cannot hold these values.
    """
    if values.dtype == dtype and not np.ma.isMaskedArray(values):
        return values
    times = values.dtype.kind in "mM"
    if (times and np.isnat(values).any()) or (dtype.kind != "f" and _missing(values)):
        raise ScoringError(
            f"column {name!r} has nulls, which a tensor of {dtype} cannot hold: {FILL}"
        )
    try:
        with np.errstate(invalid="ignore"):
            found = np.ma.filled(values.astype(dtype), np.nan if dtype.kind == "f" else None)
    except (TypeError, ValueError) as error:
        raise ScoringError(
            f"column {name!r} ({values.dtype}) is no tensor of {dtype}: {error}"
        ) from error
    if dtype.kind in "biu" and values.dtype.kind in "biuf" and not np.array_equal(found, values):
        raise ScoringError(
            f"column {name!r} has values that {dtype} cannot hold, such as "
            f"{values[found != values][0]}: convert it in Spark to what the model is to be given"
        )
    return found


def _missing(values: np.ndarray) -> bool:
    return bool(np.ma.is_masked(values) or (values.dtype.kind == "f" and np.isnan(values).any()))


def side_by_side(parts: list[np.ndarray]) -> np.ndarray:
    """Several columns as the columns of one tensor."""
    if len(parts) == 1:
        return parts[0]
    join = np.ma.concatenate if any(map(np.ma.isMaskedArray, parts)) else np.concatenate
    return join([part.reshape(len(part), -1) for part in parts], axis=1)


def arrow_type(dtype: str, dimensions: int) -> pa.DataType:
    """The column type of an output of this type and so many dimensions beside rows."""
    return column(np.zeros((0, *([1] * dimensions)), dtype)).type
