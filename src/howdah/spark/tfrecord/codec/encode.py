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

from howdah.spark.tfrecord.codec import framing
from howdah.spark.tfrecord.codec.columns import FeatureColumn, FeatureKind, RecordType
from howdah.spark.tfrecord.codec.wire import FAR, matrix, places_in
from howdah.spark.tfrecord.errors import TFRecordError

_ENTRY = 0x0A
_ELEMENT = 0x0A
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
            yield framing.frame([value or b"" for value in piece.column(0).to_pylist()])
        else:
            yield _records(piece, columns, record_type)


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
    sink.half_words(starts + sizes, framing.sums_of_pieces(framing.cut_pieces(data, starts, sizes)))
    sink.words(begins[:-1], lengths)
    sink.half_words(begins[:-1] + 8, framing.sums_of_lengths(lengths))
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


# -- the lists inside of `tf.train.Feature`, sized and written for many rows at once ---------------


def flat(array: pa.Array, column: FeatureColumn) -> tuple[Any, Any, Any]:
    """The rows that are not null, how many values (or lists) each has, and those.

    Lists inside lists come as their own counts and values.

    Raises:
        TFRecordError: a null inside a list.
    """
    rows = np.arange(len(array))
    if array.null_count:
        rows = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
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


# -- a buffer that is filled at many places at once ------------------------------------------------

_LIMITS = np.array([1 << 7 * size for size in range(1, 10)], dtype=np.uint64)


def varint_size(values: Any) -> Any:
    """Bytes of each number as a varint; negative ones have ten."""
    unsigned = values.astype(np.int64, copy=False).view(np.uint64)
    most = int(unsigned.max()) if len(unsigned) else 0
    if most < 1 << 7:
        return np.ones(len(unsigned), dtype=np.int64)
    if most < 1 << 14:
        return (unsigned >= np.uint64(1 << 7)).astype(np.int64) + 1
    return np.searchsorted(_LIMITS, unsigned, side="right").astype(np.int64) + 1


def varint_word(values: Any) -> tuple[Any, Any]:
    """Numbers below 2**49 as varints in a word, and their sizes."""
    sizes = varint_size(values)
    unsigned = values.astype(np.uint64)
    word = unsigned & np.uint64(0x7F)
    for step in range(1, int(sizes.max()) if len(sizes) else 1):
        more = (sizes > step).astype(np.uint64)
        septet = (unsigned >> np.uint64(7 * step)) & np.uint64(0x7F)
        word |= (septet << np.uint64(8 * step)) | (more << np.uint64(8 * step - 1))
    return word, sizes


def varints(values: Any) -> tuple[Any, Any]:
    """Any numbers (int64) as varints behind one another (uint8), and their sizes."""
    unsigned = values.view(np.uint64)
    if len(unsigned) == 0 or int(unsigned.max()) < 0x80:
        return unsigned.astype(np.uint8), np.ones(len(unsigned), dtype=np.int64)
    sizes = varint_size(values)
    if int(unsigned.max()) < 1 << 14:
        both = np.empty((len(unsigned), 2), dtype=np.uint8)
        more = sizes > 1
        both[:, 0] = unsigned & np.uint64(0x7F)
        both[:, 0] |= more.view(np.uint8) << np.uint8(7)
        both[:, 1] = unsigned >> np.uint64(7)
        return both[np.stack([np.ones_like(more), more], axis=1)], sizes
    ends = np.cumsum(sizes)
    starts = ends - sizes
    out = np.empty(int(ends[-1]), dtype=np.uint8)
    for step in range(int(sizes.max())):
        some = np.flatnonzero(sizes > step)
        septet = ((unsigned[some] >> np.uint64(7 * step)) & np.uint64(0x7F)).astype(np.uint8)
        out[starts[some] + step] = septet | (
            (sizes[some] > step + 1).astype(np.uint8) << np.uint8(7)
        )
    return out, sizes


class Sink:
    """So many bytes. Writing a head may spoil up to seven bytes behind it, unless `careful`."""

    def __init__(self, size: int) -> None:
        self.careful = False
        self.octets: np.ndarray[Any, Any] = np.empty(size + 16, dtype=np.uint8)
        self._words = np.ndarray((size + 9,), "<u8", buffer=self.octets.data, strides=(1,))
        self._halves = np.ndarray((size + 13,), "<u4", buffer=self.octets.data, strides=(1,))

    def words(self, at: Any, values: Any) -> None:
        """Eight bytes at each place."""
        self._words[at] = values

    def half_words(self, at: Any, values: Any) -> None:
        """Four bytes at each place."""
        self._halves[at] = values

    def head(self, at: Any, tag: int, lengths: Any) -> Any:
        """A tag and a length at each place; returns the places behind."""
        word, sizes = varint_word(lengths)
        word = (word << np.uint64(8)) | np.uint64(tag)
        if self.careful:
            for step in range(int(sizes.max()) + 1 if len(sizes) else 0):
                some = sizes >= step
                octets = (word >> np.uint64(8 * step)).astype(np.uint8)
                self.octets[at[some] + step] = octets[some]
        else:
            self._words[at] = word
        return at + sizes + 1

    def same(self, at: Any, text: bytes) -> Any:
        """The same bytes at each place; returns the places behind."""
        for offset in range(0, len(text), 8):
            word = int.from_bytes(text[offset : offset + 8], "little")
            self._words[at + offset] = np.uint64(word)
        return at + len(text)

    def ranges(self, at: Any, data: Any, sizes: Any) -> None:
        """Successive pieces of data (uint8), each at its place."""
        rows = matrix(self.octets.data, at, sizes)
        if rows is not None:
            rows[:] = data.reshape(rows.shape)
            return
        if len(data) < FAR * len(at):
            self.octets[places_in(at, sizes)] = data
            return
        target, source = self.octets.data, data.data
        begin = 0
        for place, size in zip(at.tolist(), sizes.tolist()):
            target[place : place + size] = source[begin : begin + size]
            begin += size
