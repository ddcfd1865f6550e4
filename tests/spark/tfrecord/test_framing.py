"""Frames, checksums, compression: what is damaged is told with its byte."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from howdah.spark.tfrecord import CorruptRecord, TFRecordError
from howdah.spark.tfrecord.codec.compression import (
    Compression,
    Compressor,
    Unpacking,
    named,
    told_by,
)
from howdah.spark.tfrecord.codec.framing import blocks, frame, sums_of_lengths
from tests.spark.tfrecord.records import RecordType, payloads, table_of

RECORDS = [b"one", b"", b"three" * 100, b"x", b"y", b"z"]
SCHEMA = pa.schema([("record", pa.binary())])


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_checksums_of_lengths_are_those_of_their_bytes(lengths: list[int]) -> None:
    values = np.array(lengths, dtype="<u8")
    sums = [google_crc32c.value(value.tobytes()) for value in values]
    masked = [((each >> 15 | each << 17) + 0xA282EAD8) & 0xFFFFFFFF for each in sums]
    assert sums_of_lengths(values).tolist() == masked


@given(
    st.lists(st.binary(max_size=40) | st.just(b"again"), max_size=120),
    st.integers(1, 300),
)
def test_records_come_back_whatever_the_size_of_a_block(
    records: list[bytes], block_bytes: int
) -> None:
    found = list(blocks(io.BytesIO(frame(records)), block_bytes=block_bytes))
    assert [record for block in found for record in block.payloads()] == records
    assert [block.first for block in found] == list(
        np.cumsum([0, *(len(block) for block in found)])[: len(found)]
    )


def test_long_runs_of_equal_lengths_are_found_whole() -> None:
    records = [b"a" * 5] * 1000 + [b"bb"] + [b"c" * 5] * 40
    assert payloads(frame(records)) == records


@given(st.data())
def test_any_flipped_bit_is_found_at_its_record(data: st.DataObject) -> None:
    whole = bytearray(frame(RECORDS))
    bit = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    starts = np.cumsum([0, *(len(record) + 16 for record in RECORDS)])
    begin = int(starts[np.searchsorted(starts, bit // 8, side="right") - 1])
    with pytest.raises(CorruptRecord) as caught:
        payloads(bytes(whole))
    assert caught.value.offset == begin


@given(st.integers(1, len(frame(RECORDS)) - 1))
def test_a_file_that_ends_early_is_told_with_the_record_it_ends_in(size: int) -> None:
    starts = list(np.cumsum([0, *(len(record) + 16 for record in RECORDS)]))
    part = frame(RECORDS)[:size]
    if size in starts:
        assert payloads(part) == RECORDS[: starts.index(size)]
        return
    with pytest.raises(CorruptRecord, match="ends in the middle of record") as caught:
        payloads(part)
    assert caught.value.offset == max(start for start in starts if start < size)


def test_a_file_of_something_else_is_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("These are notes and no records at all.")
    with pytest.raises(CorruptRecord, match=f"{path}, byte 0: this is no TFRecord file"):
        table_of(path, SCHEMA, record_type=RecordType.BYTES)


def test_a_damaged_record_is_told_with_file_and_byte(tmp_path: Path) -> None:
    path = tmp_path / "part.tfrecord"
    data = bytearray(frame(RECORDS))
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        CorruptRecord, match=f"{path}, byte 35: the checksum of record 2 .500 bytes."
    ):
        table_of(path, SCHEMA, record_type=RecordType.BYTES)
    unchecked = table_of(path, SCHEMA, record_type=RecordType.BYTES, verify=False)
    assert unchecked.num_rows == len(RECORDS)


def _packed(data: bytes, compression: Compression) -> bytes:
    out = io.BytesIO()
    packing = Compressor(out, compression)
    for at in range(0, len(data), 50):
        packing.write(data[at : at + 50])
    packing.finish()
    return out.getvalue()


@pytest.mark.parametrize("compression", Compression)
def test_every_compression_is_read_by_what_a_file_begins_with(
    tmp_path: Path, compression: Compression
) -> None:
    path = tmp_path / "without-a-suffix"
    path.write_bytes(_packed(frame(RECORDS), compression))
    assert told_by(path.read_bytes()[:12]) is compression
    found = table_of(path, SCHEMA, record_type=RecordType.BYTES)
    assert found["record"].to_pylist() == RECORDS


@pytest.mark.parametrize(
    ("compression", "unpack"),
    [(Compression.GZIP, gzip.decompress), (Compression.ZLIB, zlib.decompress)],
)
def test_others_unpack_what_is_packed_here(
    compression: Compression, unpack: Callable[[bytes], bytes]
) -> None:
    assert unpack(_packed(frame(RECORDS), compression)) == frame(RECORDS)


@given(st.integers(1, 5000))
def test_gzip_files_behind_one_another_are_one(size: int) -> None:
    first, second = frame([b"a" * size]), frame([b"b" * 7])
    data = gzip.compress(first) + gzip.compress(b"") + gzip.compress(second) + bytes(512)
    unpacking = Unpacking(io.BytesIO(data), Compression.GZIP)
    parts = []
    while part := unpacking.read(97):
        parts.append(part)
    assert b"".join(parts) == first + second


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZLIB])
def test_a_packed_file_that_ends_early_or_is_damaged_is_told(
    tmp_path: Path, compression: Compression
) -> None:
    whole = _packed(frame([bytes([n % 251]) * n for n in range(200)]), compression)
    path = tmp_path / "part"
    path.write_bytes(whole[:-20])
    with pytest.raises(CorruptRecord, match="part, byte .*ends early"):
        table_of(path, SCHEMA, record_type=RecordType.BYTES)
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes(10) + whole[middle + 10 :])
    with pytest.raises(CorruptRecord, match="part, byte "):
        table_of(path, SCHEMA, record_type=RecordType.BYTES)


def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.touch()
    assert table_of(path, SCHEMA, record_type=RecordType.BYTES).num_rows == 0


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(TFRecordError, match="unknown compression 'zstd': none, gzip or zlib"):
        named("zstd")
