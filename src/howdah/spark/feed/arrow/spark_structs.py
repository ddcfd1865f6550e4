"""Structs that mean something: Spark ML's vectors and Spark's images.

Sources: org.apache.spark.ml.linalg.VectorUDT.sqlType, org.apache.spark.ml.image.ImageSchema.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from howdah.spark.feed.arrow.arrays import lengths, objects

_VECTOR = ["type", "size", "indices", "values"]
_MATRIX = ["type", "numRows", "numCols", "colPtrs", "rowIndices", "values", "isTransposed"]
_IMAGE = ["origin", "height", "width", "nChannels", "mode", "data"]
_BYTE_MODES = (0, 8, 16, 24)
"""OpenCV's CV_8UC1 to CV_8UC4."""


def array(column: pa.Array, name: str, ragged: set[str]) -> Any:
    """The struct column as one array, if it is such a struct; else None."""
    fields = [field.name for field in column.type]
    if fields == _VECTOR and pa.types.is_floating(column.type.field("values").type.value_type):
        found = _vectors(column, name in ragged)
    elif fields == _MATRIX:
        found = _matrices(column)
    elif fields == _IMAGE:
        found = _images(column, name in ragged)
    else:
        return None
    if found.dtype == object:
        ragged.add(name)
    return found


def _vectors(column: pa.Array, ragged: bool) -> np.ndarray:
    if not len(column):
        return np.empty((0, 0))
    kinds = column.field("type").fill_null(1).to_numpy(zero_copy_only=False)
    values = column.field("values")
    counts = lengths(values)
    dense = kinds == 1
    sizes = column.field("size").fill_null(0).to_numpy(zero_copy_only=False)
    sizes = np.where(dense, counts, sizes)
    if ragged or column.null_count or (sizes != sizes[0]).any():
        return objects([_vector(row) for row in column.to_pylist()])
    flat = values.flatten().to_numpy(zero_copy_only=False)
    width = int(sizes[0])
    if dense.all():
        return flat.reshape(len(column), width)
    result = np.zeros((len(column), width), flat.dtype)
    row_of = np.repeat(np.arange(len(column)), counts)
    is_dense = np.repeat(dense, counts)
    within = np.arange(len(flat)) - np.repeat(np.cumsum(counts) - counts, counts)
    indices = column.field("indices").flatten().to_numpy(zero_copy_only=False)
    at = within.astype(np.int64)
    at[~is_dense] = indices
    result[row_of, at] = flat
    return result


def _vector(row: dict[str, Any] | None) -> np.ndarray | None:
    if row is None:
        return None
    if row["type"] == 1:
        return np.asarray(row["values"], float)
    result = np.zeros(row["size"])
    result[row["indices"]] = row["values"]
    return result


def _matrices(column: pa.Array) -> np.ndarray:
    found = [_matrix(row) for row in column.to_pylist()]
    if found and all(row is not None and row.shape == found[0].shape for row in found):
        return np.stack(found)
    return objects(found)


def _matrix(row: dict[str, Any] | None) -> Any:
    if row is None:
        return None
    shape = (row["numRows"], row["numCols"])
    if row["type"] == 1:
        values = np.asarray(row["values"], float)
        return values.reshape(shape) if row["isTransposed"] else values.reshape(shape[::-1]).T
    result = np.zeros(shape[::-1] if not row["isTransposed"] else shape)
    for line, (start, stop) in enumerate(zip(row["colPtrs"], row["colPtrs"][1:])):
        result[line, row["rowIndices"][start:stop]] = row["values"][start:stop]
    return result if row["isTransposed"] else result.T


def _images(column: pa.Array, ragged: bool) -> np.ndarray:
    parts = [column.field(name) for name in ("height", "width", "nChannels", "mode")]
    data = column.field("data")
    whole = not ragged and not column.null_count and not data.null_count and len(column)
    if whole and not any(part.null_count for part in parts):
        first = [part[0].as_py() for part in parts]
        alike = all(
            (part.to_numpy(zero_copy_only=False) == value).all()
            for part, value in zip(parts, first)
        )
        height, width, channels, mode = first
        size = height * width * channels
        sizes = compute.call_function("binary_length", [data]).to_numpy(zero_copy_only=False)
        if alike and mode in _BYTE_MODES and (sizes == size).all():
            start = height * width * channels * len(column)
            offsets = np.frombuffer(data.buffers()[1], np.int32, 1, data.offset * 4)
            flat = np.frombuffer(data.buffers()[2], np.uint8, start, int(offsets[0]))
            return flat.reshape(len(column), height, width, channels)
    return objects([_image(row) for row in column.to_pylist()])


def _image(row: dict[str, Any] | None) -> Any:
    if row is None or row["data"] is None:
        return None
    shape = (row["height"], row["width"], row["nChannels"])
    dtype = np.uint8 if row["mode"] in _BYTE_MODES else np.float32
    try:
        return np.frombuffer(row["data"], dtype).reshape(shape)
    except ValueError:
        return np.frombuffer(row["data"], np.uint8)
