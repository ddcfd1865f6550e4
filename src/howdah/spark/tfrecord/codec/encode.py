"""Arrow columns into records, a batch at a time.

First the size of every message is computed for all rows, then a buffer for the whole batch is
filled column by column, frames and checksums included: one scatter of numpy per field, not one
message object per row. The form is the one that `wire` reads: keys in the columns' order, packed
numbers; equal batches give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from howdah.spark.tfrecord.codec import checksum, framing
from howdah.spark.tfrecord.codec.columns import FeatureColumn, RecordType
from howdah.spark.tfrecord.codec.features import Lists, flat
from howdah.spark.tfrecord.codec.sink import Sink, varint_size, varint_word

_ENTRY = 0x0A
_VALUE = 0x12
_PIECE_BYTES = 8 * 1024 * 1024
"""Of Arrow data that is encoded at a time."""


def encode(
    batch: pa.RecordBatch, columns: Sequence[FeatureColumn], record_type: RecordType
) -> Iterator[bytes]:
    """The rows' records as they stand in a file, some MiB at a time.

    Raises:
        TFRecordError: a value has no place in a TFRecord.
    """
    if batch.num_rows == 0:
        return
    per_row = max(1, batch.nbytes // batch.num_rows)
    rows = max(1, min(batch.num_rows, _PIECE_BYTES // per_row))
    for start in range(0, batch.num_rows, rows):
        piece = batch.slice(start, rows)
        if record_type is RecordType.BYTES:
            yield framing.frame(_payloads(piece.column(0)))
        else:
            yield _records(piece, columns, record_type)


def _payloads(column: pa.Array) -> list[bytes]:
    return [value or b"" for value in column.to_pylist()]


def _records(
    batch: pa.RecordBatch, columns: Sequence[FeatureColumn], record_type: RecordType
) -> bytes:
    rows = batch.num_rows
    entries = [_Entry(column, batch.column(at)) for at, column in enumerate(columns)]
    context = _Map([entry for entry in entries if entry.column.depth < 2], rows, 0x0A)
    lists = _Map([entry for entry in entries if entry.column.depth == 2], rows, 0x12)
    sizes = context.sizes + lists.sizes
    begins = np.zeros(rows + 1, dtype=np.int64)
    np.cumsum(sizes + framing.AROUND_BYTES, out=begins[1:])
    sink = Sink(int(begins[-1]))
    starts = begins[:-1] + framing.HEAD_BYTES
    context.put(sink, starts)
    lists.put(sink, starts + context.sizes)
    # Words are written whole and may reach past their field: what lies behind comes later. So do
    # the frames, last of all.
    lengths = sizes.astype("<u8")
    data = sink.octets[: begins[-1]].tobytes()
    sink.half_words(starts + sizes, checksum.of_pieces(checksum.cut(data, starts, sizes)))
    sink.words(begins[:-1], lengths)
    sink.half_words(begins[:-1] + 8, checksum.of_lengths(lengths))
    return sink.octets[: begins[-1]].tobytes()


class _Map:
    """The field that holds a map of features, for all rows; absent where no feature is."""

    def __init__(self, entries: list[_Entry], rows: int, tag: int) -> None:
        self._entries = entries
        self._tag = tag
        self._inside = np.zeros(rows, dtype=np.int64)
        for entry in entries:
            self._inside[entry.rows] += entry.whole
        self._some = np.flatnonzero(self._inside)
        head = 1 + varint_size(self._inside)
        self.sizes = np.where(self._inside > 0, head + self._inside, 0)
        """Bytes in each row."""

    def put(self, sink: Sink, starts: Any) -> None:
        """Write it at a place for each row."""
        some = self._some
        at = starts.copy()
        at[some] = sink.head(starts[some], self._tag, self._inside[some])
        for entry in self._entries:
            entry.put(sink, at[entry.rows])
            at[entry.rows] += entry.whole


class _Entry:
    """One column in all rows that have a value: an entry of a map."""

    def __init__(self, column: FeatureColumn, array: pa.Array) -> None:
        self.column = column
        self.rows, counts, values = flat(array, column)
        if column.depth == 2:
            self._counts: Any = counts
            self._lists = Lists(column, *values)
            inner = self._lists.sizes
            around = 1 + varint_size(inner) + inner
            sums = np.concatenate(([0], np.cumsum(around)))
            ends = np.cumsum(counts)
            self._offsets = sums[:-1]
            self._firsts = sums[ends - counts]
            self._value = sums[ends] - self._firsts
        else:
            self._counts = None
            self._lists = Lists(column, counts, values)
            self._value = self._lists.sizes
        key = column.key
        size = len(key)
        word, length = varint_word(np.array([size], dtype=np.int64))
        self._key = bytes([_ENTRY]) + int(word[0]).to_bytes(8, "little")[: int(length[0])] + key
        self._inside = len(self._key) + 1 + varint_size(self._value) + self._value
        self.whole = 1 + varint_size(self._inside) + self._inside
        """Bytes of the entry in each of `rows`."""

    def put(self, sink: Sink, at: Any) -> None:
        """Write it at a place for each of `rows`."""
        at = sink.head(at, _ENTRY, self._inside)
        at = sink.same(at, self._key)
        at = sink.head(at, _VALUE, self._value)
        if self._counts is not None:
            # Where each feature of a row's list begins: behind those before it in the row.
            first = np.repeat(at - self._firsts, self._counts)
            # Small ones lie so close together that a word would reach into the next.
            sink.careful = True
            at = sink.head(first + self._offsets, _ENTRY, self._lists.sizes)
        self._lists.put(sink, at)
        sink.careful = False
