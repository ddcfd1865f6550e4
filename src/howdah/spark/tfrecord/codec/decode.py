"""Records into Arrow columns, a block at a time.

Features are found by walking through all records in step (`wire`); a record in an unusual form is
rewritten by `google.protobuf` first, so that every valid message is read and there is one way only
from bytes to columns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from howdah.spark.tfrecord.codec import protos, wire
from howdah.spark.tfrecord.codec.columns import FeatureColumn, FeatureKind, RecordType
from howdah.spark.tfrecord.codec.framing import PADDING, RecordBlock
from howdah.spark.tfrecord.codec.parsing import Features, Parsed, contents, parse
from howdah.spark.tfrecord.codec.uniform_records import uniform
from howdah.spark.tfrecord.codec.values import FoundLists, Misfit, assemble, binaries
from howdah.spark.tfrecord.errors import CorruptRecord

T = TypeVar("T")

_ENTRY = 0x0A


def decode(
    block: RecordBlock, columns: Sequence[FeatureColumn], schema: pa.Schema, record_type: RecordType
) -> pa.RecordBatch:
    """The block's records as rows.

    Raises:
        CorruptRecord: a record is no message of that type.
        RecordError: one does not fit a column.
    """
    if record_type is RecordType.BYTES:
        kind = schema.field(0).type
        return pa.RecordBatch.from_arrays([pa.array(block.payloads(), kind)], schema=schema)
    if record_type is RecordType.EXAMPLE:
        arrays = uniform(block, columns)
        if arrays is not None:
            return pa.RecordBatch.from_arrays(arrays, schema=schema)
    wanted = {column.key for column in columns}
    arrays = in_usual_form(block, record_type, wanted, functools.partial(_arrays, columns))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_usual_form(
    block: RecordBlock,
    record_type: RecordType,
    wanted: set[bytes] | None,
    read: Callable[[Parsed, RecordBlock, Any], T],
) -> T:
    """What ``read`` makes of the block's features, once no record is odd: it may find further ones.

    Args:
        wanted: as for `parse`.

    Raises:
        CorruptRecord: a record is no message of that type.
    """
    # Odd forms show in two steps, of the map and of the lists in it; rewritten records have none.
    for _ in range(3):
        odd = np.zeros(len(block), dtype=bool)
        parsed = parse(block, record_type, wanted, odd)
        if not odd.any():
            found = read(parsed, block, odd)
            if not odd.any():
                return found
        block = _rewritten(block, record_type, odd)
    raise AssertionError("protobuf has written a message in an unusual form")


def _rewritten(block: RecordBlock, record_type: RecordType, odd: Any) -> RecordBlock:
    """The same records, the odd ones in the usual form, behind the data of all."""
    parts, at = [block.data], len(block.data)
    starts, lengths = block.starts.copy(), block.lengths.copy()
    for index in np.flatnonzero(odd).tolist():
        begin = int(starts[index])
        record = block.data[begin : begin + int(lengths[index])]
        try:
            new = protos.rewritten(record_type.value, record)
        except ValueError as error:
            raise CorruptRecord(
                f"record {block.first + index} is no tf.train.{record_type.value}: {error}",
                offset=block.place(index),
            ) from None
        parts.append(new)
        starts[index], lengths[index] = at, len(new)
        at += len(new)
    data = b"".join([*parts, PADDING])
    again = _Rewritten(data, starts, lengths, offset=block.offset, first=block.first)
    again.original = block
    return again


class _Rewritten(RecordBlock):
    """Tells places by the block as it was in the file."""

    original: RecordBlock

    def place(self, index: int) -> int:
        return self.original.place(index)


def read_lists(
    buffer: wire.Buffer, owners: Any, starts: Any, ends: Any, odd: Any
) -> list[FoundLists]:
    """The lists inside of features, by kind; features without one are left out."""
    rest = starts < ends
    found: list[FoundLists] = []
    for kind in FeatureKind:
        mine = rest & (buffer.octets[starts] == kind.value)
        if mine.any():
            rest &= ~mine
            found.append(_read_list(buffer, kind, owners[mine], starts[mine], ends[mine], odd))
    odd[owners[rest]] = True
    return found


def read_nested(buffer: wire.Buffer, features: Features, odd: Any) -> tuple[Any, list[FoundLists]]:
    """The lists inside of feature lists, by kind; of each the feature list it is of."""
    owner, begin, stop, wrong = wire.pieces(buffer, features.starts, features.ends, _ENTRY)
    odd[features.owners[wrong]] = True
    inner = np.zeros(len(owner), dtype=bool)
    found = read_lists(buffer, np.arange(len(owner)), begin, stop, inner)
    odd[features.owners[owner[inner]]] = True
    return owner, found


def _arrays(
    columns: Sequence[FeatureColumn], parsed: Parsed, block: RecordBlock, odd: Any
) -> list[pa.Array]:
    """A column each, as far as no record turns out odd."""
    arrays: list[pa.Array] = []
    for column in columns:
        source = parsed.lists if column.depth == 2 else parsed.context
        features = source.get(column.key)
        try:
            arrays.append(_array(parsed.buffer, features, column, len(block), odd))
        except Misfit as misfit:
            raise misfit.at(block, column) from None
        if odd.any():
            break
    return arrays


def _array(
    buffer: wire.Buffer, features: Features | None, column: FeatureColumn, rows: int, odd: Any
) -> pa.Array:
    if features is None:
        return pa.nulls(rows, column.type)
    if column.depth < 2:
        found = read_lists(buffer, features.owners, features.starts, features.ends, odd)
        return pa.nulls(rows, column.type) if odd.any() else assemble(found, column, rows)
    owner, found = read_nested(buffer, features, odd)
    if odd.any():
        return pa.nulls(rows, column.type)
    counts = np.zeros(rows, dtype=np.int64)
    counts[features.owners] = np.bincount(owner, minlength=len(features.owners))
    return assemble(found, column, rows, outer=(features.owners, counts, features.owners[owner]))


def _read_list(
    buffer: wire.Buffer, kind: FeatureKind, owners: Any, starts: Any, ends: Any, odd: Any
) -> FoundLists:
    owner, begin, stop, wrong = contents(buffer, kind, starts, ends)
    odd[owners[wrong]] = True
    if kind is FeatureKind.BYTES:
        counts = np.bincount(owner, minlength=len(owners))
        values = binaries(wire.gather(buffer, begin, stop), stop - begin)
        return FoundLists(kind, owners, counts, values)
    if kind is FeatureKind.FLOAT:
        bad = (stop - begin) & 3 != 0
        odd[owners[bad]] = True
        begin = np.where(bad, stop, begin)
        floats = wire.gather(buffer, begin, stop).view("<f4")
        return FoundLists(kind, owners, (stop - begin) >> 2, floats)
    data = wire.gather(buffer, begin, stop)
    unended = (begin < stop) & (buffer.octets[stop - 1] >= 0x80)
    try:
        numbers, lasts = wire.integers(data)
    except ValueError:
        unended[:] = True
    if unended.any():
        odd[owners[unended]] = True
        return FoundLists(kind, owners, np.zeros(len(owners), np.int64), np.zeros(0, np.int64))
    counts = stop - begin
    if len(numbers) < len(data):
        edges = np.concatenate(([0], np.cumsum(counts)))
        counts = np.diff(np.searchsorted(lasts, edges))
    return FoundLists(kind, owners, counts, numbers)
