"""Arrow columns as numpy arrays for models: the first dimension is rows.

Numbers without nulls are views. Nulls: NaN in floating point columns and, since a model takes
numbers, in integer and boolean ones, which become float64; None in strings and binary. Lists must
have one length each; lists in lists give more dimensions. Decimals become float64. Spark's vectors
(dense and sparse) become two-dimensional float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from howdah.spark.scoring.errors import ScoringError

pc: Any = pyarrow.compute
"""Its functions are made when it is imported: type checkers do not see them."""

VECTOR = ("type", "size", "indices", "values")
"""Fields of a `pyspark.ml.linalg` vector, as Arrow has it."""


def to_numpy(column: pa.Array, name: str) -> np.ndarray:
    """The column as an array.

    Raises:
        ScoringError: lists of different lengths, null lists, or a type without an array.
    """
    kind: Any = column.type
    if isinstance(column, pa.ExtensionArray):
        return to_numpy(column.storage, name)
    if pa.types.is_dictionary(kind):
        return to_numpy(column.dictionary_decode(), name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return _lists(column, name)
    if pa.types.is_struct(kind):
        if tuple(field.name for field in kind) == VECTOR:
            return _vectors(column, name)
        raise ScoringError(
            f"column {name!r} is a struct; select its fields as columns and map those"
        )
    if pa.types.is_map(kind):
        raise ScoringError(f"column {name!r} is a map, which no tensor holds; select values of it")
    if pa.types.is_fixed_size_binary(kind) and not column.null_count:
        width = kind.byte_width
        data = np.frombuffer(column.buffers()[1], np.uint8)
        return data[column.offset * width :][: len(column) * width].reshape(-1, width)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif column.null_count and (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        column = column.cast(pa.int8() if pa.types.is_boolean(kind) else kind).cast(
            pa.float64(), safe=False
        )
    if column.null_count and pa.types.is_floating(column.type):
        column = pc.fill_null(column, float("nan"))
    return column.to_numpy(zero_copy_only=False)


def _lists(column: Any, name: str) -> np.ndarray:
    if column.null_count:
        raise ScoringError(
            f"column {name!r} has {column.null_count} null lists among {len(column)} rows; fill or "
            "filter them: df.dropna(subset=[…])"
        )
    if pa.types.is_fixed_size_list(column.type):
        length = column.type.list_size
    else:
        lengths = pc.min_max(pc.list_value_length(column)).as_py()
        length = lengths["min"]
        if length is None:
            length = 0
        elif length != lengths["max"]:
            raise ScoringError(
                f"lists of column {name!r} have {length} to {lengths['max']} values; a tensor needs "
                "the same number in every row: pad them"
            )
    values = to_numpy(column.flatten(), name)
    return values.reshape(len(column), length, *values.shape[1:])


def _vectors(column: pa.StructArray, name: str) -> np.ndarray:
    if column.null_count:
        raise ScoringError(f"column {name!r} has {column.null_count} null vectors; filter them")
    kinds = column.field("type").to_numpy(zero_copy_only=False)
    values: Any = column.field("values")
    if len(column) and kinds.all():
        return _lists(values, name)
    sizes = column.field("size")
    rows = []
    for row, dense in enumerate(kinds):
        held = values[row].values.to_numpy(zero_copy_only=False)
        if not dense:
            sparse = np.zeros(sizes[row].as_py())
            sparse[column.field("indices")[row].values.to_numpy(zero_copy_only=False)] = held
            held = sparse
        rows.append(held)
    if len({len(row) for row in rows}) > 1:
        raise ScoringError(f"vectors of column {name!r} have different sizes; a tensor needs one")
    return np.stack(rows) if rows else np.zeros((0, 0))
