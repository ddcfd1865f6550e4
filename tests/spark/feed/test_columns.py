"""Which array a column becomes."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from howdah.spark.errors import FeedError
from howdah.spark.feed.arrow.columns import Converter, array, concatenated, rows


def converted(column: pa.Array, **arguments: Any) -> Any:
    return Converter("train", **arguments).convert(pa.record_batch({"c": column}))["c"]


def looks_at(values: np.ndarray, column: pa.Array) -> bool:
    buffers = [buffer for buffer in column.buffers() if buffer is not None]
    address = values.__array_interface__["data"][0]
    return any(b.address <= address < b.address + b.size for b in buffers)


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.float32(), pa.float64()]
)
def test_numbers_are_looked_at_where_they_are(kind: pa.DataType) -> None:
    column = pa.array([1, 2, 3, 4], kind)
    values = array(column.slice(1))
    assert values.tolist() == [2, 3, 4]
    assert values.dtype == kind.to_pandas_dtype()
    assert looks_at(values, column)
    assert not values.flags.writeable


def test_nulls_are_nan_in_floats_and_masked_in_integers() -> None:
    floats = array(pa.array([1.5, None, 3.5, None])[1:])
    assert np.array_equal(floats, [np.nan, 3.5, np.nan], equal_nan=True)
    integers = array(pa.array([1, None, 3]))
    assert isinstance(integers, np.ma.MaskedArray)
    assert integers.tolist() == [1, None, 3]
    assert integers.dtype == np.int64
    flags = array(pa.array([True, None, False]))
    assert flags.tolist() == [True, None, False]
    assert array(pa.array([True, False])).dtype == np.bool_


def test_decimals_times_and_dates_have_numpys_types() -> None:
    assert array(pa.array([decimal.Decimal("1.25"), None])).tolist()[0] == 1.25
    moment = datetime.datetime(2026, 11, 21, 12, 30)
    stamps = array(pa.array([moment, None], pa.timestamp("us", "UTC")))
    assert stamps.dtype == np.dtype("datetime64[us]")
    assert stamps[0] == np.datetime64(moment) and np.isnat(stamps[1])
    days = array(pa.array([datetime.date(2026, 11, 21), None]))
    assert days[0] == np.datetime64("2026-11-21") and np.isnat(days[1])
    lengths = array(pa.array([datetime.timedelta(seconds=3), None]))
    assert lengths[0] == np.timedelta64(3, "s") and np.isnat(lengths[1])
    clock = array(pa.array([datetime.time(0, 0, 5)]))
    assert clock[0] == np.timedelta64(5, "s")
    clock = array(pa.array([datetime.time(0, 1), None], pa.time32("s")))
    assert clock[0] == np.timedelta64(60, "s") and np.isnat(clock[1])


def test_texts_and_maps_and_nulls_are_objects() -> None:
    assert array(pa.array(["a", None, "c"])).tolist() == ["a", None, "c"]
    maps = pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))
    assert array(maps).tolist() == [{"a": 1}, None]
    assert array(pa.nulls(2)).tolist() == [None, None]
    assert array(pa.array(["x", "y", "x"]).dictionary_encode()).tolist() == ["x", "y", "x"]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list, lambda kind: pa.list_(kind, 3)])
def test_lists_of_one_length_are_one_array_without_copying(make: Any) -> None:
    column = pa.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]], make(pa.float32()))
    values = array(column.slice(1), "c")
    assert values.tolist() == [[4, 5, 6], [7, 8, 9]]
    assert looks_at(values, column)
    assert array(column.slice(0, 0), "c").shape[0] == 0


def test_lists_of_lists_have_as_many_dimensions() -> None:
    values = array(pa.array([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), "c")
    assert values.shape == (2, 2, 2)
    uneven = array(pa.array([[[1, 2], [3]], [[5, 6], [7, 8]]]), "c")
    assert uneven.dtype == object
    assert [part.tolist() for part in uneven[0]] == [[1, 2], [3]]


def test_lists_of_other_lengths_stay_rows_from_then_on() -> None:
    converter = Converter("train")
    alike = pa.record_batch({"c": pa.array([[1, 2], [3, 4]])})
    other = pa.record_batch({"c": pa.array([[1, 2], None, [], [3]])})
    assert converter.convert(alike)["c"].shape == (2, 2)
    found = converter.convert(other)["c"]
    assert [None if row is None else row.tolist() for row in found] == [[1, 2], None, [], [3]]
    assert converter.convert(alike)["c"].dtype == object


def test_nulls_inside_lists_are_as_in_columns() -> None:
    values = array(pa.array([[1.0, None], [3.0, 4.0]]), "c")
    assert np.array_equal(values, [[1.0, np.nan], [3.0, 4.0]], equal_nan=True)


def test_binaries_of_one_length_are_bytes_in_two_dimensions() -> None:
    column = pa.array([b"abc", b"def", b"ghi"])
    values = array(column.slice(1), "c")
    assert values.dtype == np.uint8 and values.shape == (2, 3)
    assert values.tobytes() == b"defghi"
    assert looks_at(values, column)
    assert array(pa.array([b"abc", b"def"], pa.binary(3)), "c").tobytes() == b"abcdef"
    assert array(pa.array([b"abc", b"de", None]), "c").tolist() == [b"abc", b"de", None]
    assert array(pa.array([b"", b""]), "c").shape == (2, 0)


def test_structs_are_dicts_of_arrays_and_their_nulls_are_their_fields() -> None:
    column = pa.array([{"a": 1.0, "b": [1, 2]}, None, {"a": 3.0, "b": [5, 6]}])
    values = array(column, "c")
    assert np.array_equal(values["a"], [1.0, np.nan, 3.0], equal_nan=True)
    assert values["b"][1] is None
    assert rows(values, 1, 3)["a"].shape == (2,)
    joined = concatenated([rows(values, 0, 1), rows(values, 2, 3)])
    assert joined["a"].tolist() == [1.0, 3.0]


VECTOR = pa.struct(
    [
        pa.field("type", pa.int8()),
        pa.field("size", pa.int32()),
        pa.field("indices", pa.list_(pa.int32())),
        pa.field("values", pa.list_(pa.float64())),
    ]
)


def test_vectors_of_spark_are_dense_rows() -> None:
    dense = {"type": 1, "size": None, "indices": None, "values": [1.0, 2.0, 3.0]}
    sparse = {"type": 0, "size": 3, "indices": [0, 2], "values": [7.0, 9.0]}
    column = pa.array([dense, dense], VECTOR)
    assert array(column, "c").tolist() == [[1, 2, 3], [1, 2, 3]]
    assert array(pa.array([sparse, dense, sparse], VECTOR)[1:], "c").tolist() == [
        [1, 2, 3],
        [7, 0, 9],
    ]
    longer = {"type": 0, "size": 4, "indices": [1], "values": [1.0]}
    mixed = array(pa.array([dense, longer, None], VECTOR), "c")
    assert mixed[1].tolist() == [0, 1, 0, 0] and mixed[2] is None


def test_matrices_of_spark_are_read_column_by_column() -> None:
    kind = pa.struct(
        [
            pa.field("type", pa.int8()),
            pa.field("numRows", pa.int32()),
            pa.field("numCols", pa.int32()),
            pa.field("colPtrs", pa.list_(pa.int32())),
            pa.field("rowIndices", pa.list_(pa.int32())),
            pa.field("values", pa.list_(pa.float64())),
            pa.field("isTransposed", pa.bool_()),
        ]
    )
    dense = {
        "type": 1,
        "numRows": 2,
        "numCols": 3,
        "values": [1.0, 4.0, 2.0, 5.0, 3.0, 6.0],
        "isTransposed": False,
    }
    sparse = {
        "type": 0,
        "numRows": 2,
        "numCols": 3,
        "colPtrs": [0, 1, 1, 2],
        "rowIndices": [0, 1],
        "values": [8.0, 9.0],
        "isTransposed": False,
    }
    values = array(pa.array([dense, sparse], kind), "c")
    assert values.tolist() == [[[1, 2, 3], [4, 5, 6]], [[8, 0, 0], [0, 0, 9]]]


def test_images_of_spark_are_pixels() -> None:
    def image(height: int, width: int) -> dict[str, Any]:
        size = height * width * 3
        data = bytes(range(size))
        return {
            "origin": "f",
            "height": height,
            "width": width,
            "nChannels": 3,
            "mode": 16,
            "data": data,
        }

    kind = pa.struct(
        [("origin", pa.string())]
        + [(name, pa.int32()) for name in ("height", "width", "nChannels", "mode")]
        + [("data", pa.binary())]
    )
    alike = array(pa.array([image(2, 3)] * 3, kind)[1:], "c")
    assert alike.shape == (2, 2, 3, 3) and alike.dtype == np.uint8
    assert alike[1].tobytes() == bytes(range(18))
    mixed = array(pa.array([image(2, 3), image(1, 1), None], kind), "c")
    assert [None if row is None else row.shape for row in mixed] == [(2, 3, 3), (1, 1, 3), None]


def test_shapes_give_rows_their_form_or_say_why_not() -> None:
    column = pa.array([list(range(6)), list(range(6, 12))])
    assert converted(column, shapes={"c": (2, 3)}).shape == (2, 2, 3)
    assert converted(column, shapes={"c": (-1, 2)}).shape == (2, 3, 2)
    assert converted(column, shapes={"c": None}).dtype == object
    assert converted(pa.array([1.0, 2.0]), shapes={"c": (1,)}).shape == (2, 1)
    with pytest.raises(FeedError, match=r"have 6 values; the shape \(4, 4\) asks for 16"):
        converted(column, shapes={"c": (4, 4)})
    with pytest.raises(FeedError, match="another length or null"):
        converted(pa.array([[1, 2], [3]]), shapes={"c": (2,)})
    with pytest.raises(FeedError, match="no column 'other', only c"):
        converted(column, shapes={"other": (2,)})


def test_pieces_that_differ_in_width_become_rows() -> None:
    joined = concatenated([np.zeros((2, 3)), np.ones((1, 4))])
    assert [row.shape for row in joined] == [(3,), (3,), (4,)]
    masked = concatenated([np.array([1, 2]), np.ma.MaskedArray([3], [True])])
    assert masked.tolist() == [1, 2, None]
