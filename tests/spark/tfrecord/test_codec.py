"""Arrow columns to records and back, whatever is in them."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from howdah.spark.tfrecord import RecordError, TFRecordError
from howdah.spark.tfrecord.codec import protos
from howdah.spark.tfrecord.codec.columns import columns
from howdah.spark.tfrecord.codec.framing import frame
from tests.spark.tfrecord.records import (
    EXAMPLE,
    SEQUENCE,
    RecordType,
    batch,
    decoded,
    encoded,
    lists,
    payloads,
)

_INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
_FLOAT = st.floats(width=32, allow_nan=False)
VALUES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float32(), _FLOAT),
    (pa.float64(), _FLOAT),
    (pa.int64(), _INT64),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.bool_(), st.booleans()),
    (pa.string(), st.text(max_size=12) | st.text(min_size=120, max_size=140)),
    (pa.binary(), st.binary(max_size=12) | st.binary(min_size=120, max_size=140)),
]
NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


@st.composite
def batches(draw: st.DrawFn, depth: int) -> pa.RecordBatch:
    """Some rows of some columns, arrays nested at most so deep."""
    count = draw(st.integers(1, 6))
    arrays: dict[str, pa.Array] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        kind, values = draw(st.sampled_from(VALUES))
        for _ in range(draw(st.integers(0, depth))):
            kind, values = pa.list_(kind), st.lists(values, max_size=4)
        column = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        arrays[name] = pa.array(column, kind)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


@settings(max_examples=50)
@given(batches(depth=1))
def test_rows_come_back_from_examples_as_they_were(rows: pa.RecordBatch) -> None:
    assert decoded(encoded(rows), rows.schema).to_batches() == [rows]


@settings(max_examples=50)
@given(batches(depth=2))
def test_rows_come_back_from_sequence_examples_as_they_were(rows: pa.RecordBatch) -> None:
    assert decoded(encoded(rows, SEQUENCE), rows.schema, SEQUENCE).to_batches() == [rows]


@settings(max_examples=40)
@given(batches(depth=1), st.integers(0, 3), st.integers(20, 400))
def test_a_slice_is_written_alone_and_any_size_of_block_reads_the_same(
    rows: pa.RecordBatch, start: int, block_bytes: int
) -> None:
    piece = rows.slice(min(start, rows.num_rows - 1))
    alone = pa.RecordBatch.from_pylist(piece.to_pylist(), piece.schema)
    assert encoded(piece) == encoded(alone)
    again = decoded(encoded(piece), rows.schema, block_bytes=block_bytes).combine_chunks()
    assert again.to_pylist() == alone.to_pylist()


@settings(max_examples=40)
@given(batches(depth=1))
def test_what_is_written_is_what_protobuf_writes_of_the_same_message(
    rows: pa.RecordBatch,
) -> None:
    for record in payloads(encoded(rows)):
        parsed = protos.message("Example").FromString(record)
        ours = protos.message("Example").FromString(record)
        assert parsed.ByteSize() == len(record)
        assert ours.SerializeToString(deterministic=True) == protos.rewritten("Example", record)


@settings(max_examples=100)
@given(st.binary(max_size=200))
def test_any_bytes_are_rows_or_an_error_with_their_place(record: bytes) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    for kind in (EXAMPLE, SEQUENCE):
        data = frame([b"", record])
        try:
            assert decoded(data, schema, kind).num_rows == 2
        except RecordError as error:
            assert error.offset == 16


UNIFORM = {
    "f": pa.array(np.arange(100, dtype=np.float32)),
    "small": pa.array(np.arange(100)),
    "large": pa.array(-np.arange(100) - 1),
    "two": lists(pa.int64(), [[n, 200 + n] for n in range(100)]),
    "many": lists(pa.int64(), [[n % 128, 300 + n] * 10 for n in range(100)]),
    "text": pa.array([f"{n:03}" for n in range(100)]),
    "texts": lists(pa.string(), [["a" * 5, f"{n:02}", ""] for n in range(100)]),
    "image": pa.array([bytes([n]) * 200 for n in range(100)]),
    "floats": lists(pa.float32(), [[n, 0.5] for n in range(100)]),
    "none": lists(pa.float32(), [[]] * 100),
}


def test_records_of_one_form_are_read_whatever_is_in_them() -> None:
    rows = batch(**UNIFORM)
    records = payloads(encoded(rows))
    assert len({len(record) for record in records}) == 1
    wide = pa.schema([*rows.schema, ("missing", pa.string())])
    found = decoded(frame(records), wide).combine_chunks().to_batches()[0]
    assert found.select(rows.schema.names) == rows and found["missing"].null_count == 100
    fields = [pa.field(name, kind.type) for name, kind in reversed(UNIFORM.items())]
    some = decoded(frame(records), pa.schema(fields[:3]))
    assert some.combine_chunks().to_batches()[0] == rows.select([f.name for f in fields[:3]])
    with pytest.raises(RecordError, match="feature 'text' of record 0 is a bytes_list"):
        decoded(frame(records), pa.schema([("text", pa.int64())]))


@given(st.integers(0, 99), st.sampled_from(["value", "name", "absent", "number", "unended"]))
def test_one_record_of_the_same_length_in_another_form_is_seen(at: int, how: str) -> None:
    usual = [_message(n=_ints(7), s=_bytes(b"%03d" % n)) for n in range(100)]
    other = {
        "value": _message(n=_ints(200), s=_bytes(b"ab")),
        "name": _message(m=_ints(7), s=_bytes(b"abc")),
        "absent": _message(s=_bytes(b"x" * 15)),
        "number": _message(n=_ints(7, 8), s=_bytes(b"ab")),
        "unended": _message(n=_ints(7), s=_bytes(b"abc")),
    }[how]
    records = [each.SerializeToString(deterministic=True) for each in usual]
    changed = other.SerializeToString(deterministic=True)
    if how == "unended":
        changed = changed.replace(b"\x0a\x01\x07", b"\x0a\x01\x87")
    assert len(changed) == len(records[at])
    records[at] = changed
    schema = pa.schema([("n", pa.list_(pa.int64())), ("s", pa.string())])
    if how == "unended":
        with pytest.raises(RecordError, match=f"record {at} is no tf.train.Example"):
            decoded(frame(records), schema)
        return
    wanted = [{"n": [7], "s": f"{n:03}"} for n in range(100)]
    wanted[at] = {
        "value": {"n": [200], "s": "ab"},
        "name": {"n": None, "s": "abc"},
        "absent": {"n": None, "s": "x" * 15},
        "number": {"n": [7, 8], "s": "ab"},
    }[how]
    assert decoded(frame(records), schema).to_pylist() == wanted


def _message(**features: Any) -> Any:
    return protos.message("Example")(features={"feature": features})


def _floats(*values: float) -> Any:
    return {"float_list": {"value": values}}


def _ints(*values: int) -> Any:
    return {"int64_list": {"value": values}}


def _bytes(*values: bytes) -> Any:
    return {"bytes_list": {"value": values}}


def _field(number: int, content: bytes) -> bytes:
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def _entry(name: bytes, feature: bytes) -> bytes:
    return _field(1, _field(1, name) + _field(2, feature))


UNUSUAL = {
    "numbers that are not packed": _field(1, _entry(b"a", _field(3, b"\x08\x05\x08\xac\x02"))),
    "numbers packed in two parts": _field(
        1, _entry(b"a", _field(3, _field(1, b"\x05") + _field(1, b"\xac\x02")))
    ),
    "the value before its name": _field(
        1, _field(1, _field(2, _field(3, _field(1, b"\x05\xac\x02"))) + _field(1, b"a"))
    ),
    "a name twice": _field(
        1,
        _entry(b"a", _field(3, _field(1, b"\x09")))
        + _entry(b"a", _field(3, _field(1, b"\x05\xac\x02"))),
    ),
    "features in two parts": _field(1, _entry(b"b", _field(1, b"")))
    + _field(1, _entry(b"a", _field(3, _field(1, b"\x05\xac\x02")))),
    "a field nobody knows": _field(9, b"x")
    + _field(1, _entry(b"a", _field(3, _field(1, b"\x05\xac\x02")))),
    "a length in more bytes than it needs": b"\x0a\x90\x00"
    + _entry(b"a", _field(3, b"\x0a\x83\x80\x00\x05\xac\x02")),
}


@pytest.mark.parametrize("record", UNUSUAL.values(), ids=UNUSUAL)
def test_every_form_of_a_message_is_read(record: bytes) -> None:
    usual = _message(a=_ints(7)).SerializeToString()
    assert protos.message("Example").FromString(record).features.feature["a"].int64_list.value == [
        5,
        300,
    ]
    found = decoded(frame([usual, record, usual]), pa.schema([("a", pa.list_(pa.int64()))]))
    assert found.to_pydict() == {"a": [[7], [5, 300], [7]]}


def test_records_with_other_features_in_another_order_share_a_block() -> None:
    records = [
        _message(b=_bytes(b"x"), a=_ints(1)).SerializeToString(),
        b"",
        _message(**{f"z{number}": _ints(number) for number in range(200)}).SerializeToString(),
        _message(a=_ints()).SerializeToString(),
        _message(a=_ints(-1), c=_floats(2.5)).SerializeToString(),
    ]
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
    assert decoded(frame(records), schema).to_pylist() == [
        {"a": 1, "b": "x", "c": None},
        {"a": None, "b": None, "c": None},
        {"a": None, "b": None, "c": None},
        {"a": None, "b": None, "c": None},
        {"a": -1, "b": None, "c": 2.5},
    ]


def test_whole_numbers_are_read_into_a_column_of_floats_also_beside_floats() -> None:
    records = [_message(a=_ints(3)), _message(a=_floats(0.5)), _message()]
    data = frame([record.SerializeToString() for record in records])
    scalars = decoded(data, pa.schema([("a", pa.float64())]))
    assert scalars["a"].to_pylist() == [3.0, 0.5, None]
    arrays = decoded(data, pa.schema([("a", pa.list_(pa.float32()))]))
    assert arrays["a"].to_pylist() == [[3.0], [0.5], None]


@pytest.mark.parametrize(
    ("feature", "kind", "words"),
    [
        (_ints(1, 2), pa.int64(), r"has 2 values.*give a schema with array<bigint>"),
        (_ints(2**31), pa.int32(), "is 2147483648, too much for its column's type int32"),
        (
            _floats(1.5),
            pa.int64(),
            "is a float_list, and its column's type is int64.*float or double",
        ),
        (_bytes(b"x"), pa.float32(), "is a bytes_list.*string or binary"),
        (_ints(1), pa.string(), "is a int64_list.*bigint"),
        (_bytes(b"\xff"), pa.string(), "is not UTF-8: read it as binary"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_record(
    feature: Any, kind: pa.DataType, words: str
) -> None:
    first = _message().SerializeToString()
    data = frame([first, _message(a=feature).SerializeToString()])
    with pytest.raises(
        RecordError, match=f"byte {len(first) + 16}: feature 'a' of record 1 {words}"
    ):
        decoded(data, pa.schema([("a", kind)]))


def test_dates_and_times_are_numbers_and_come_back_where_the_schema_says_so() -> None:
    day, moment = datetime.date(2026, 11, 21), datetime.datetime(2026, 11, 21, 20, 0, 1, 5)
    utc = pa.timestamp("us", tz="UTC")
    rows = batch(day=pa.array([day], pa.date32()), moment=pa.array([moment], utc))
    assert decoded(encoded(rows), rows.schema).to_batches() == [rows]
    numbers = decoded(encoded(rows), pa.schema([("day", pa.int64()), ("moment", pa.int64())]))
    assert numbers.to_pylist() == [{"day": 20778, "moment": 1795291201000005}]


def test_decimals_are_written_as_floats() -> None:
    rows = batch(price=pa.array([decimal.Decimal("1.25"), None], pa.decimal128(6, 2)))
    assert decoded(encoded(rows), rows.schema).to_batches() == [rows]
    assert decoded(encoded(rows), pa.schema([("price", pa.float32())]))["price"].to_pylist() == [
        1.25,
        None,
    ]


def test_doubles_are_narrowed_to_what_an_example_has() -> None:
    rows = batch(x=pa.array([0.1, 1e300, float("nan")], pa.float64()))
    found = decoded(encoded(rows), rows.schema)["x"].to_numpy()
    assert found[0] == np.float32(0.1) and np.isinf(found[1]) and np.isnan(found[2])


@pytest.mark.parametrize(
    ("kind", "record_type", "words"),
    [
        (pa.struct([("x", pa.int64())]), EXAMPLE, "vector_to_array"),
        (pa.map_(pa.string(), pa.int64()), EXAMPLE, "map_keys"),
        (pa.list_(pa.list_(pa.int64())), EXAMPLE, "recordType=SequenceExample"),
        (pa.list_(pa.list_(pa.list_(pa.int64()))), SEQUENCE, "arrays inside arrays"),
        (pa.int64(), RecordType.BYTES, "one column, of type binary"),
    ],
)
def test_a_type_without_a_place_in_a_record_is_refused_by_name(
    kind: pa.DataType, record_type: RecordType, words: str
) -> None:
    with pytest.raises(TFRecordError, match=words):
        columns([pa.field("it", kind)], record_type)


def test_a_null_inside_an_array_is_refused() -> None:
    with pytest.raises(TFRecordError, match="column 'a' .* has a null inside an array"):
        encoded(batch(a=lists(pa.int64(), [[1, None]])))


def test_records_of_any_kind_are_read_and_written_as_they_are() -> None:
    rows = batch(byteArray=pa.array([b"", b"x" * 300, b"\0"]))
    data = encoded(rows, RecordType.BYTES)
    assert payloads(data) == [b"", b"x" * 300, b"\0"]
    assert decoded(data, rows.schema, RecordType.BYTES).to_batches() == [rows]
