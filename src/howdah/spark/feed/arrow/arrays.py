"""Small things that arrays of columns are made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute


def lengths(column: pa.Array) -> np.ndarray:
    """Of the rows of a list column; 0 where there is none."""
    found = compute.call_function("list_value_length", [column]).fill_null(0)
    return found.to_numpy(zero_copy_only=False).astype(np.int64)


def is_list(kind: pa.DataType) -> bool:
    """Whether a column of it has a list a row."""
    types = pa.types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def is_binary(kind: pa.DataType) -> bool:
    """Whether a column of it has bytes a row."""
    types = pa.types
    return types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)


def unfolded(kind: pa.DataType) -> tuple[int, pa.DataType]:
    """How deep lists lie in lists, and the type of the values inside all of them."""
    depth = 0
    while is_list(kind):
        depth, kind = depth + 1, kind.value_type  # type: ignore[attr-defined]
    return depth, kind


def objects(values: Sequence[Any]) -> np.ndarray:
    """An array of the values themselves, whatever they are."""
    result = np.empty(len(values), object)
    for index, value in enumerate(values):
        result[index] = value
    return result
