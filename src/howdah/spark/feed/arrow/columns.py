"""Arrow columns as numpy arrays, without copying where numpy can look at the same bytes.

| Arrow | numpy |
|---|---|
| integers, floats | the same; with nulls: floats NaN, integers a masked array |
| boolean | bool (copied: Arrow packs bits); with nulls a masked array |
| decimal | float64 |
| timestamp, date | datetime64, with time zone: UTC; null: NaT |
| time, duration | timedelta64; null: NaT |
| string | object array of str; null: None |
| binary of one length | uint8, (rows, length); else, or with nulls: object array of bytes or None |
| list of one length | (rows, length, …); else, or with null lists: object array of arrays or None |
| struct | dict of arrays by field; a null struct has null fields |
| map | object array of dicts |
| Spark ML vector | float64, (rows, size); sparse ones are made dense |
| Spark image | uint8, (rows, height, width, channels) if they are alike, else object array |
| null, others | object array |

Whether lists and binaries are "of one length" is looked at in every record batch; a column that was
not once stays an object array, and ``shapes`` decides it: a shape demands one length, None says
object array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow import spark_structs
from howdah.spark.feed.arrow.arrays import is_binary, is_list, lengths, objects

FILL = "fill them (df.fillna), drop them (df.dropna), or cast the column to double (NaN)"
"""What to do about nulls that an array of numbers cannot hold."""

Shapes = Mapping[str, Sequence[int] | None]
"""Shape of one row of a column; None: rows differ."""


class Converter:
    """Makes arrays of the chosen columns; remembers which columns have rows that differ."""

    def __init__(
        self, feed: str, names: Sequence[str] | None = None, shapes: Shapes | None = None
    ) -> None:
        self._feed = feed
        self._names = None if names is None else list(names)
        self._shapes = dict(shapes or {})
        self.ragged: set[str] = {name for name, shape in self._shapes.items() if shape is None}

    def convert(self, batch: pa.RecordBatch) -> dict[str, Any]:
        """Arrays by column.

        Raises:
            FeedError: a column is not there, or its rows do not have the shape asked for.
        """
        names = batch.schema.names if self._names is None else self._names
        for name in [*names, *self._shapes]:
            if name not in batch.schema.names:
                raise FeedError(
                    f"The feed {self._feed!r} has no column {name!r}, only "
                    f"{', '.join(batch.schema.names)}"
                )
        return {name: self._column(name, batch.column(name)) for name in names}

    def _column(self, name: str, column: pa.Array) -> Any:
        shape = self._shapes.get(name)
        values = array(column, name, self.ragged)
        if shape is None:
            return values
        if isinstance(values, dict):
            raise FeedError(f"The column {name!r} is a struct: it has no shape")
        if values.dtype == object:
            # Sizes differ, or bytes of which each is one row's.
            raise FeedError(
                f"The rows of column {name!r} ({column.type}) do not all have "
                f"{int(np.prod(shape))} values, as the shape {tuple(shape)} asks: some are of "
                "another length or null. Filter them out, or pass None as its shape and take an "
                "object array"
            )
        try:
            return values.reshape(len(values), *shape)
        except ValueError:
            has = values[0].size if len(values) else 0
            raise FeedError(
                f"The rows of column {name!r} have {has} values; the shape {tuple(shape)} asks "
                f"for {int(np.prod(shape))}"
            ) from None


def array(column: pa.Array, name: str = "", ragged: set[str] | None = None) -> Any:
    """The column as the module's table says. ``name`` is put into ``ragged`` if its rows differ."""
    ragged = set() if ragged is None else ragged
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return array(column.storage, name, ragged)
    if pa.types.is_dictionary(kind):
        return array(column.dictionary_decode(), name, ragged)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _numbers(column)
    if pa.types.is_boolean(kind):
        return _masked(column, pa.scalar(False))
    if pa.types.is_decimal(kind):
        return _numbers(compute.cast(column, pa.float64()))
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        if pa.types.is_date64(kind):
            column = column.cast(pa.timestamp("ms"))
        return column.to_numpy(zero_copy_only=False)
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        if pa.types.is_time(kind):
            unit = kind.unit
            width = pa.int32() if pa.types.is_time32(kind) else pa.int64()
            column = column.view(width).cast(pa.int64()).view(pa.duration(unit))
        return column.to_numpy(zero_copy_only=False)
    if is_binary(kind):
        return _binary(column, name, ragged)
    if is_list(kind):
        return _lists(column, name, ragged)
    if pa.types.is_struct(kind):
        found = spark_structs.array(column, name, ragged)
        return found if found is not None else _fields(column, name, ragged)
    if pa.types.is_map(kind):
        return objects([None if pairs is None else dict(pairs) for pairs in column.to_pylist()])
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column.to_numpy(zero_copy_only=False)
    return objects(column.to_pylist())


def concatenated(parts: Sequence[Any]) -> Any:
    """Rows of several pieces of one column, or of several batches, one after another."""
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], dict):
        return {key: concatenated([part[key] for part in parts]) for key in parts[0]}
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1 or len({part.dtype == object for part in parts}) > 1:
        return objects([row for part in parts for row in part])
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        return np.ma.concatenate(parts)
    return np.concatenate(parts)


def length(values: Any) -> int:
    """Rows of a column or of a batch."""
    if isinstance(values, dict):
        return length(next(iter(values.values()))) if values else 0
    return len(values)


def rows(values: Any, start: int, stop: int) -> Any:
    """A view of some rows of a column or of a batch."""
    if isinstance(values, dict):
        return {key: rows(value, start, stop) for key, value in values.items()}
    return values[start:stop]


def ordered(values: Any, order: np.ndarray) -> Any:
    """A copy of a column or of a batch with the rows in that order."""
    if isinstance(values, dict):
        return {key: ordered(value, order) for key, value in values.items()}
    return values[order]


def tensors(values: Any, name: str, make: Callable[[np.ndarray, str], Any]) -> Any:
    """What ``make(array, name)`` makes of a column, or of each field of a struct. Times are numbers,
    in the column's own unit.

    Raises:
        FeedError: there are nulls among numbers or times.
    """
    if isinstance(values, dict):
        return {key: tensors(value, f"{name}.{key}", make) for key, value in values.items()}
    times = values.dtype.kind in "mM"
    if isinstance(values, np.ma.MaskedArray) or (times and np.isnat(values).any()):
        raise FeedError(
            f"The column {name!r} has nulls, which tensors of {values.dtype} cannot hold: {FILL}"
        )
    return make(values.astype(np.int64) if times else values, name)


def _numbers(column: pa.Array) -> np.ndarray:
    if not column.null_count:
        return _look(column)
    if pa.types.is_floating(column.type):
        values = _look(column).copy()
        values[_nulls(column)] = np.nan
        return values
    return _masked(column, pa.scalar(0, column.type))


def _look(column: pa.Array) -> np.ndarray:
    """The bytes as they are, whatever is where the nulls are."""
    data = column.buffers()[1]
    dtype = np.dtype(column.type.to_pandas_dtype())
    if data is None or not len(column):
        return np.empty(len(column), dtype)
    return _read_only(np.frombuffer(data, dtype, len(column), column.offset * dtype.itemsize))


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values


def _nulls(column: pa.Array) -> np.ndarray:
    return column.is_null().to_numpy(zero_copy_only=False)


def _masked(column: pa.Array, fill: pa.Scalar) -> np.ndarray:
    if not column.null_count:
        return column.to_numpy(zero_copy_only=False)
    values = column.fill_null(fill).to_numpy(zero_copy_only=False)
    return np.ma.MaskedArray(values, _nulls(column))


def _width(column: pa.Array) -> int | None:
    """Length of every row; None if they differ, -1 if there are no rows."""
    if not len(column):
        return -1
    large = pa.types.is_large_list(column.type) or pa.types.is_large_binary(column.type)
    dtype = np.dtype(np.int64 if large else np.int32)
    offsets = np.frombuffer(
        column.buffers()[1], dtype, len(column) + 1, column.offset * dtype.itemsize
    )
    width = int(offsets[1]) - int(offsets[0])
    if int(offsets[-1]) - int(offsets[0]) != width * len(column):
        return None
    return width if len(column) < 3 or (np.diff(offsets) == width).all() else None


def _binary(column: pa.Array, name: str, ragged: set[str]) -> np.ndarray:
    kind = column.type
    if name not in ragged and not column.null_count:
        if pa.types.is_fixed_size_binary(kind):
            width, start = kind.byte_width, column.offset * kind.byte_width
            data = column.buffers()[1]
        else:
            width = _width(column)
            data = column.buffers()[2]
            large = pa.types.is_large_binary(kind)
            dtype = np.dtype(np.int64 if large else np.int32)
            start = 0
            if width is not None and width > 0:
                at = column.offset * dtype.itemsize
                start = int(np.frombuffer(column.buffers()[1], dtype, 1, at)[0])
        if width is not None:
            if width <= 0 or data is None:
                return np.empty((len(column), 0), np.uint8)
            flat = _read_only(np.frombuffer(data, np.uint8, width * len(column), start))
            return flat.reshape(len(column), width)
    if name:
        ragged.add(name)
    return column.to_numpy(zero_copy_only=False)


def _lists(column: pa.Array, name: str, ragged: set[str]) -> np.ndarray:
    fixed = pa.types.is_fixed_size_list(column.type)
    if name not in ragged and not column.null_count:
        width = column.type.list_size if fixed else _width(column)
        if width is not None:
            # `flatten` looks at the rows of this slice only.
            inside: set[str] = set()
            values = array(column.flatten(), name, inside)
            if isinstance(values, dict):
                return objects(column.to_pylist())
            if not len(column):
                return values.reshape(0, max(width, 0), *values.shape[1:])
            if not inside:
                return values.reshape(len(column), width, *values.shape[1:])
    if name:
        ragged.add(name)
    values = array(column.flatten(), name, set())
    if isinstance(values, dict):
        return objects(column.to_pylist())
    ends = np.cumsum(lengths(column))
    found = np.split(values, ends[:-1]) if len(column) else []
    if column.null_count:
        nulls = _nulls(column)
        found = [None if null else row for row, null in zip(found, nulls)]
    return objects(found)


def _fields(column: pa.Array, name: str, ragged: set[str]) -> dict[str, Any]:
    fields = column.flatten()  # with the struct's own nulls in them
    return {
        field.name: array(values, f"{name}.{field.name}", ragged)
        for field, values in zip(column.type, fields)
    }
