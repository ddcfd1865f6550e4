"""What models take and answer, as they declare it, and columns made into that: plain arrays of one shape."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from howdah.spark.errors import ScoringError

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
