"""Lists of features into Arrow columns of the types that a schema asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from howdah.spark.tfrecord.codec.columns import FeatureColumn, FeatureKind
from howdah.spark.tfrecord.codec.framing import RecordBlock
from howdah.spark.tfrecord.errors import RecordError


class FoundLists(msgspec.Struct, frozen=True):
    """The lists of one kind that a feature has in some records."""

    kind: FeatureKind
    owners: Any
    """Which record each list is of, ascending."""
    counts: Any
    """Values in each."""
    values: Any
    """All of them: float32, int64, or an Arrow array of binaries."""

    def owner_of(self, value: int) -> int:
        """The record that the n-th value is of."""
        return int(self.owners[np.searchsorted(np.cumsum(self.counts), value, side="right")])


class Misfit(Exception):
    """A record's feature does not fit its column."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(problem)
        self.row = row
        self.problem = problem

    def at(self, block: RecordBlock, column: FeatureColumn) -> RecordError:
        """For the user."""
        return RecordError(
            f"feature {column.name!r} of record {block.first + self.row} {self.problem}",
            offset=block.place(self.row),
        )


def assemble(
    found: Sequence[FoundLists],
    column: FeatureColumn,
    rows: int,
    outer: tuple[Any, Any, Any] | None = None,
) -> pa.Array:
    """A column of so many rows; rows without the feature are null.

    Args:
        outer: for a column of depth 2, where `found` counts the features of all feature lists: the
            rows that have such a list, the number of features in each row's (0 without), and the row
            of each feature.

    Raises:
        Misfit: a list is of the wrong kind, too long, or a value is not of the column's type.
    """
    try:
        if column.depth == 0:
            return _scalars(found, column, rows)
        if outer is None:
            return _lists(found, column, rows, column.type)
        present, counts, rows_of = outer
        inner = _lists(found, column, len(rows_of), column.type.value_type)
        return _list_array(column.type, counts, _missing(present, rows), inner)
    except Misfit as misfit:
        if outer is not None:
            raise Misfit(int(outer[2][misfit.row]), misfit.problem) from None
        raise


def binaries(data: Any, sizes: Any) -> pa.Array:
    """Bytes (uint8) as an array of binaries of those sizes."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _scalars(found: Sequence[FoundLists], column: FeatureColumn, rows: int) -> pa.Array:
    parts: list[tuple[Any, pa.Array]] = []
    for each in found:
        if len(each.counts) and int(each.counts.max()) > 1:
            at = int(np.flatnonzero(each.counts > 1)[0])
            raise Misfit(
                int(each.owners[at]),
                f"has {int(each.counts[at])} values, and its column's type is {column.type}: give a"
                f" schema with array<{_spark_name(column.type)}>, or look at more records when the"
                " schema is inferred (sampleRecords, sampleFiles)",
            )
        array = _converted(each, column)
        owners = each.owners if len(array) == len(each.owners) else each.owners[each.counts == 1]
        parts.append((owners, array))
    return _placed(parts, rows, column.type)


def _lists(
    found: Sequence[FoundLists], column: FeatureColumn, rows: int, kind: pa.DataType
) -> pa.Array:
    if len(found) == 1:
        [only] = found
        counts = np.zeros(rows, dtype=np.int64)
        counts[only.owners] = only.counts
        return _list_array(kind, counts, _missing(only.owners, rows), _converted(only, column))
    parts = [
        (each.owners, _list_array(kind, each.counts, None, _converted(each, column)))
        for each in found
    ]
    return _placed(parts, rows, kind)


def _placed(parts: Sequence[tuple[Any, pa.Array]], rows: int, kind: pa.DataType) -> pa.Array:
    """Values at the rows that they are of; the other rows are null."""
    if len(parts) == 1 and len(parts[0][1]) == rows:
        return parts[0][1]
    places = np.full(rows, -1, dtype=np.int64)
    done = 0
    for owners, array in parts:
        places[owners] = np.arange(done, done + len(array))
        done += len(array)
    if not done:
        return pa.nulls(rows, kind)
    indices = pa.array(places, mask=places < 0)
    return pa.concat_arrays([array for _, array in parts]).take(indices)


def _missing(present: Any, rows: int) -> Any:
    """A mask of the other rows; None if there are none."""
    if len(present) == rows:
        return None
    missing = np.ones(rows, dtype=bool)
    missing[present] = False
    return missing


def _list_array(kind: pa.DataType, counts: Any, missing: Any, values: pa.Array) -> pa.Array:
    large = pa.types.is_large_list(kind)
    offsets = np.zeros(len(counts) + 1, dtype=np.int64 if large else np.int32)
    np.cumsum(counts, out=offsets[1:])
    maker = pa.LargeListArray if large else pa.ListArray
    mask = None if missing is None else pa.array(missing)
    return maker.from_arrays(pa.array(offsets), values, type=kind, mask=mask)


def _converted(found: FoundLists, column: FeatureColumn) -> pa.Array:
    """All values as the column has them."""
    target = column.element
    if not len(found.values):
        return pa.array([], target)
    if found.kind is not column.kind and not (
        found.kind is FeatureKind.INT and column.kind is FeatureKind.FLOAT
    ):
        likely = {
            FeatureKind.BYTES: "string or binary",
            FeatureKind.FLOAT: "float or double",
            FeatureKind.INT: "bigint",
        }
        raise Misfit(
            found.owner_of(0),
            f"is a {found.kind.list_name}, and its column's type is {column.type}:"
            f" it can be read as {likely[found.kind]}, or an array of such",
        )
    if found.kind is FeatureKind.BYTES:
        return _bytes(found, target)
    if column.kind is FeatureKind.FLOAT:
        floats = pa.array(found.values)
        if found.kind is FeatureKind.INT:
            floats = floats.cast(pa.float64(), safe=False)
        if pa.types.is_decimal(target):
            floats = floats.cast(pa.float64())
        try:
            return floats.cast(target, safe=pa.types.is_decimal(target))
        except pa.ArrowInvalid as error:
            raise Misfit(found.owner_of(0), f"(or a later one) is no {target}: {error}") from None
    return _integers(found, target)


def _bytes(found: FoundLists, target: pa.DataType) -> pa.Array:
    if pa.types.is_null(target):
        raise Misfit(found.owner_of(0), "has a value, and its column's type is void")
    try:
        return found.values.cast(target)
    except pa.ArrowInvalid as error:
        for at, value in enumerate(found.values.to_pylist()):
            try:
                pa.array([value], pa.binary()).cast(target)
            except pa.ArrowInvalid:
                text = (
                    "is not UTF-8: read it as binary (binaryFeatures, or a schema that says so)"
                    if pa.types.is_string(target) or pa.types.is_large_string(target)
                    else f"is no {target}: {error}"
                )
                raise Misfit(found.owner_of(at), text) from None
        raise


def _integers(found: FoundLists, target: pa.DataType) -> pa.Array:
    values = found.values
    if pa.types.is_boolean(target):
        return pa.array(values != 0)
    if pa.types.is_timestamp(target):
        return pa.array(values).cast(pa.timestamp(target.unit, target.tz))
    width: Any = pa.int32() if pa.types.is_date32(target) else target
    try:
        narrow = pa.array(values).cast(width)
    except pa.ArrowInvalid:
        limits = np.iinfo(width.to_pandas_dtype())
        at = int(np.flatnonzero((values < limits.min) | (values > limits.max))[0])
        raise Misfit(
            found.owner_of(at),
            f"is {int(values[at])}, too much for its column's type {target}: read it as bigint",
        ) from None
    return narrow.cast(target)


def _spark_name(kind: pa.DataType) -> str:
    names = {"int64": "bigint", "int32": "int", "int16": "smallint", "int8": "tinyint"}
    return names.get(str(kind), str(kind))
