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


def objects(values: Sequence[Any]) -> np.ndarray:
    """An array of the values themselves, whatever they are."""
    result = np.empty(len(values), object)
    for index, value in enumerate(values):
        result[index] = value
    return result
