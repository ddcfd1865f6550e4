"""Records into Arrow columns, a block at a time.

Features are found by walking through all records in step (`wire`); a record in an unusual form is
rewritten by `google.protobuf` first, so that every valid message is read and there is one way only
from bytes to columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from howdah.spark.tfrecord import protos, wire
from howdah.spark.tfrecord.columns import Column, Kind, RecordType
from howdah.spark.tfrecord.errors import CorruptRecord
from howdah.spark.tfrecord.framing import PADDING, Block
from howdah.spark.tfrecord.values import Found, Misfit, assemble

_ENTRY = 0x0A
_VALUE = 0x12
_PATIENCE = 64
"""So many different names at one place of a record are compared in turn; more are looked up."""


class Features(msgspec.Struct, frozen=True):
    """One feature's messages in a block: `tf.train.Feature`, or `FeatureList`."""

    owners: Any
    """Which record each is of, ascending; each record at most once."""
    starts: Any
    ends: Any


class Parsed(msgspec.Struct, frozen=True):
    """A block's features by name."""

    buffer: wire.Buffer
    context: dict[bytes, Features]
    """Of examples, and of a SequenceExample's context."""
    lists: dict[bytes, Features]


def decode(
    block: Block, columns: Sequence[Column], schema: pa.Schema, record_type: RecordType
) -> pa.RecordBatch:
    """The block's records as rows.

    Raises:
        CorruptRecord: a record is no message of that type.
        RecordError: one does not fit a column.
    """
    if record_type is RecordType.BYTES:
        kind = schema.field(0).type
        return pa.RecordBatch.from_arrays([pa.array(block.payloads(), kind)], schema=schema)
    wanted = {column.key for column in columns}
    # Odd forms show in two steps, of the map and of the lists in it; rewritten records have none.
    for _ in range(3):
        odd = np.zeros(len(block), dtype=bool)
        parsed = parse(block, record_type, wanted, odd)
        arrays = None if odd.any() else _arrays(parsed, block, columns, odd)
        if arrays is not None:
            return pa.RecordBatch.from_arrays(arrays, schema=schema)
        block = rewritten(block, record_type, odd)
    raise AssertionError("protobuf has written a message in an unusual form")


def parse(block: Block, record_type: RecordType, wanted: set[bytes] | None, odd: Any) -> Parsed:
    """Find features; marks records in ``odd`` that must be rewritten first.

    Args:
        wanted: names to find; None for all.
    """
    buffer = wire.Buffer(block.data)
    starts, ends = block.starts, block.starts + block.lengths
    lists: dict[bytes, Features] = {}
    if record_type is RecordType.SEQUENCE_EXAMPLE:
        context_ends = _first_field(buffer, starts, ends, odd)
        lists = _features(buffer, context_ends, ends, 0x12, wanted, odd)
        ends = context_ends
    context = _features(buffer, starts, ends, 0x0A, wanted, odd)
    return Parsed(buffer, context, lists)


def rewritten(block: Block, record_type: RecordType, odd: Any) -> Block:
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
    again = Rewritten(data, starts, lengths, offset=block.offset, first=block.first)
    again.original = block
    return again


class Rewritten(Block):
    """Tells places by the block as it was in the file."""

    original: Block

    def place(self, index: int) -> int:
        return self.original.place(index)


# -- inside ------------------------------------------------------------------------------------


def _first_field(buffer: wire.Buffer, starts: Any, ends: Any, odd: Any) -> Any:
    """Where a SequenceExample's context ends and its feature lists begin."""
    split = starts.copy()
    has = np.flatnonzero((starts < ends) & (buffer.octets[starts] == _ENTRY))
    if len(has):
        length, begin, long = wire.lengths_at(buffer, starts[has] + 1)
        stop = begin + length
        bad = stop > ends[has]
        if long is not None:
            bad |= long
        split[has] = np.where(bad, ends[has], stop)
        odd[has[bad]] = True
    return split


def _features(
    buffer: wire.Buffer, starts: Any, ends: Any, tag: int, wanted: set[bytes] | None, odd: Any
) -> dict[bytes, Features]:
    """A map from names to messages, of each range that is a field with a map in it, or empty."""
    some = np.flatnonzero((starts < ends) & ~odd)
    begins, stops, bad = wire.only(buffer, starts[some], ends[some], tag)
    odd[some[bad]] = True
    some, begins, stops = some[~bad], begins[~bad], stops[~bad]
    owner, begin, stop, wrong = wire.pieces(buffer, begins, stops, _ENTRY)
    if wrong is not None:
        odd[some[wrong]] = True
    owner = some[owner]
    # An entry: its key, then its value, which reaches to the entry's end.
    length, key, long = wire.lengths_at(buffer, begin + 1)
    value = key + length
    bad = (buffer.octets[begin] != _ENTRY) | (value >= stop)
    bad = bad if long is None else bad | long
    value = np.where(bad, begin, value)
    size, inside, long = wire.lengths_at(buffer, value + 1)
    bad |= (buffer.octets[value] != _VALUE) | (inside + size != stop)
    bad = bad if long is None else bad | long
    if bad.any():
        odd[owner[bad]] = True
        good = ~bad
        owner, key, length = owner[good], key[good], length[good]
        inside, stop = inside[good], stop[good]
    found: dict[bytes, Features] = {}
    for name, where in _names(buffer, key, length, wanted):
        owners = owner[where]
        if len(owners) > 1 and (owners[1:] == owners[:-1]).any():
            # A name twice: the last one counts, which `google.protobuf` sees to.
            odd[owners[1:][owners[1:] == owners[:-1]]] = True
        found[name] = Features(owners, inside[where], stop[where])
    return found


def _names(
    buffer: wire.Buffer, starts: Any, lengths: Any, wanted: set[bytes] | None
) -> list[tuple[bytes, Any]]:
    """Names and the places in the arrays that have them, in order."""
    found: list[tuple[bytes, Any]] = []
    if wanted is not None:
        for name in wanted:
            where = np.flatnonzero(wire.same(buffer, starts, lengths, name))
            if len(where):
                found.append((name, where))
        return found
    rest = np.arange(len(starts))
    for _ in range(_PATIENCE):
        if not len(rest):
            return found
        at, size = int(starts[rest[0]]), int(lengths[rest[0]])
        name = buffer.data[at : at + size]
        equal = wire.same(buffer, starts[rest], lengths[rest], name)
        found.append((name, rest[equal]))
        rest = rest[~equal]
    slow: dict[bytes, list[int]] = {}
    for index in rest.tolist():
        at = int(starts[index])
        slow.setdefault(buffer.data[at : at + int(lengths[index])], []).append(index)
    return found + [(name, np.array(where)) for name, where in slow.items()]


def _arrays(
    parsed: Parsed, block: Block, columns: Sequence[Column], odd: Any
) -> list[pa.Array] | None:
    """A column each; None as soon as records turn out odd."""
    arrays: list[pa.Array] = []
    for column in columns:
        source = parsed.lists if column.depth == 2 else parsed.context
        features = source.get(column.key)
        try:
            arrays.append(_array(parsed.buffer, features, column, len(block), odd))
        except Misfit as misfit:
            raise misfit.at(block, column) from None
        if odd.any():
            return None
    return arrays


def _array(
    buffer: wire.Buffer, features: Features | None, column: Column, rows: int, odd: Any
) -> pa.Array:
    if features is None:
        return pa.nulls(rows, column.type)
    if column.depth < 2:
        found = read_lists(buffer, features.owners, features.starts, features.ends, odd)
        return pa.nulls(rows, column.type) if odd.any() else assemble(found, column, rows)
    owner, begin, stop, wrong = wire.pieces(buffer, features.starts, features.ends, _ENTRY)
    if wrong is not None:
        odd[features.owners[wrong]] = True
        return pa.nulls(rows, column.type)
    rows_of = features.owners[owner]
    inner_odd = np.zeros(len(owner), dtype=bool)
    found = read_lists(buffer, np.arange(len(owner)), begin, stop, inner_odd)
    if inner_odd.any():
        odd[rows_of[inner_odd]] = True
        return pa.nulls(rows, column.type)
    counts = np.zeros(rows, dtype=np.int64)
    counts[features.owners] = np.bincount(owner, minlength=len(features.owners))
    return assemble(found, column, rows, outer=(features.owners, counts, rows_of))


def read_lists(buffer: wire.Buffer, owners: Any, starts: Any, ends: Any, odd: Any) -> list[Found]:
    """The lists inside of features, by kind; features without one are left out."""
    some = np.flatnonzero(starts < ends)
    if len(some) < len(starts):
        owners, starts, ends = owners[some], starts[some], ends[some]
    tags = buffer.octets[starts]
    found: list[Found] = []
    for kind in Kind:
        mine = tags == kind.value
        if not mine.any():
            continue
        if not mine.all():
            rest = owners[mine], starts[mine], ends[mine]
        else:
            rest = owners, starts, ends
        tags = tags[~mine] if not mine.all() else tags[:0]
        if len(tags):
            owners, starts, ends = owners[~mine], starts[~mine], ends[~mine]
        found.append(_read_list(buffer, kind, *rest, odd))
        if not len(tags):
            return found
    odd[owners] = True
    return found


def _read_list(
    buffer: wire.Buffer, kind: Kind, owners: Any, starts: Any, ends: Any, odd: Any
) -> Found:
    begin, stop, bad = wire.only(buffer, starts, ends, kind.value)
    odd[owners[bad]] = True
    begin = np.where(bad, stop, begin)
    if kind is Kind.BYTES:
        owner, begin, stop, wrong = wire.pieces(buffer, begin, stop, _ENTRY)
        if wrong is not None:
            odd[owners[wrong]] = True
        counts = np.bincount(owner, minlength=len(owners))
        return Found(kind, owners, counts, binaries(buffer, begin, stop))
    # Numbers are packed: one field with all of them.
    full = begin < stop
    if full.all():
        begin, stop, bad = wire.only(buffer, begin, stop, _ENTRY)
        if bad.any():
            odd[owners[bad]] = True
            begin = np.where(bad, stop, begin)
    else:
        at = np.flatnonzero(full)
        inner, _, bad = wire.only(buffer, begin[at], stop[at], _ENTRY)
        odd[owners[at[bad]]] = True
        begin = begin.copy()
        begin[at] = np.where(bad, stop[at], inner)
    if kind is Kind.FLOAT:
        lengths = stop - begin
        if (lengths & 3).any():
            odd[owners[(lengths & 3) != 0]] = True
            begin = np.where(lengths & 3, stop, begin)
        floats = wire.gather(buffer, begin, stop).view("<f4")
        return Found(kind, owners, (stop - begin) >> 2, floats)
    data = wire.gather(buffer, begin, stop)
    unended = (begin < stop) & (buffer.octets[stop - 1] >= 0x80)
    try:
        numbers, last = wire.integers(data)
    except ValueError:
        unended[:] = True
    if unended.any():
        odd[owners[unended]] = True
        return Found(kind, owners, np.zeros(len(owners), np.int64), np.zeros(0, np.int64))
    if len(numbers) == len(data):
        counts = stop - begin
    else:
        until = np.concatenate(([0], np.cumsum(last)))
        ends = np.cumsum(stop - begin)
        counts = until[ends] - until[ends - (stop - begin)]
    return Found(kind, owners, counts, numbers)


def binaries(buffer: wire.Buffer, starts: Any, ends: Any) -> pa.Array:
    """The bytes of ranges, a value each."""
    offsets = np.zeros(len(starts) + 1, dtype=np.int32)
    np.cumsum(ends - starts, out=offsets[1:])
    data = wire.gather(buffer, starts, ends)
    return pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
