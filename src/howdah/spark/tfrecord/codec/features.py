"""The lists inside of `tf.train.Feature`, sized and written for many rows at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from howdah.spark.tfrecord.codec.columns import FeatureColumn, FeatureKind
from howdah.spark.tfrecord.codec.sink import Sink, varint_size, varints
from howdah.spark.tfrecord.errors import TFRecordError

_ELEMENT = 0x0A


def flat(array: pa.Array, column: FeatureColumn) -> tuple[Any, Any, Any]:
    """The rows that are not null, how many values (or lists) each has, and those.

    Lists inside lists come as their own counts and values.

    Raises:
        TFRecordError: a null inside a list.
    """
    rows = np.flatnonzero(_valid(array)) if array.null_count else np.arange(len(array))
    if column.depth == 0:
        return rows, np.ones(len(rows), dtype=np.int64), array.drop_null()
    counts, values = _unfolded(array, column)
    if column.depth == 1:
        return rows, counts, values
    return rows, counts, _unfolded(values, column)


def _unfolded(array: pa.Array, column: FeatureColumn) -> tuple[Any, pa.Array]:
    offsets = array.drop_null().offsets.to_numpy()
    counts = np.diff(offsets).astype(np.int64)
    values = array.flatten()
    if values.null_count:
        raise TFRecordError(
            f"column {column.name!r} ({column.type}) has a null inside an array, for which a"
            " TFRecord has no place: fill it, or drop it with array_compact"
        )
    return counts, values


def _valid(array: pa.Array) -> Any:
    return array.is_valid().to_numpy(zero_copy_only=False)


class Lists:
    """Features, one for each count."""

    def __init__(self, column: FeatureColumn, counts: Any, values: pa.Array) -> None:
        self._kind = column.kind
        self._elements: Any = None
        if self._kind is FeatureKind.BYTES:
            self._data, elements = _octets(values)
            self._elements = elements
            sizes = 1 + varint_size(elements) + elements
        elif self._kind is FeatureKind.FLOAT:
            self._data, sizes = _floats(values).view(np.uint8), None
            self._inside = 4 * counts
        else:
            self._data, sizes = varints(_integers(values))
        if sizes is not None:
            self._inside = sums(sizes, counts)
            self._element_sizes = sizes
        self._counts = counts
        if self._kind is FeatureKind.BYTES:
            self._list = self._inside
        else:
            packed = 1 + varint_size(self._inside) + self._inside
            self._list = np.where(self._inside > 0, packed, 0)
        self.sizes: Any = 1 + varint_size(self._list) + self._list
        """Bytes of each."""

    def put(self, sink: Sink, at: Any) -> None:
        """Write each at its place."""
        at = sink.head(at, self._kind.value, self._list)
        if self._kind is FeatureKind.BYTES:
            behind = np.cumsum(self._element_sizes) - self._element_sizes
            firsts = np.cumsum(self._inside) - self._inside
            at = sink.head(np.repeat(at - firsts, self._counts) + behind, _ELEMENT, self._elements)
            sink.ranges(at, self._data, self._elements)
            return
        full = self._inside > 0
        inside = self._inside[full]
        sink.ranges(sink.head(at[full], _ELEMENT, inside), self._data, inside)


def sums(values: Any, counts: Any) -> Any:
    """Of successive groups of so many values each."""
    if len(values) == len(counts) and (counts == 1).all():
        return values
    until = np.concatenate(([0], np.cumsum(values)))
    ends = np.cumsum(counts)
    return until[ends] - until[ends - counts]


def _floats(values: pa.Array) -> Any:
    if pa.types.is_decimal(values.type):
        values = values.cast(pa.float64())
    if values.type != pa.float32():
        values = values.cast(pa.float32(), safe=False)
    return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), dtype="<f4")


def _integers(values: pa.Array) -> Any:
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    if values.type != pa.int64():
        values = values.cast(pa.int64(), safe=not pa.types.is_uint64(values.type))
    return np.ascontiguousarray(values.to_numpy(zero_copy_only=False), dtype="<i8")


def _octets(values: pa.Array) -> tuple[Any, Any]:
    """All bytes behind one another, and the size of each value."""
    if pa.types.is_null(values.type):
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    if pa.types.is_fixed_size_binary(values.type):
        values = values.cast(pa.binary())
    if len(values) == 0:
        return np.zeros(0, np.uint8), np.zeros(0, np.int64)
    large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    _, offsets, data = values.buffers()
    kind = np.dtype(np.int64 if large else np.int32)
    edges = np.frombuffer(offsets, kind, len(values) + 1, values.offset * kind.itemsize)
    edges = edges.astype(np.int64)
    octets = (
        np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(0, np.uint8)
    )
    return octets[edges[0] : edges[-1]], np.diff(edges)
