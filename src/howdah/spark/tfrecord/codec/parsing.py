"""Features found in records by name: places only, nothing is read yet."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from howdah.spark.tfrecord.codec import wire
from howdah.spark.tfrecord.codec.columns import FeatureKind, RecordType
from howdah.spark.tfrecord.codec.framing import RecordBlock

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


def parse(
    block: RecordBlock, record_type: RecordType, wanted: set[bytes] | None, odd: Any
) -> Parsed:
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


def contents(buffer: wire.Buffer, kind: FeatureKind, starts: Any, ends: Any) -> tuple[Any, ...]:
    """What is inside of features that have a list of that kind.

    Returns:
        For each value of bytes, or for all numbers of a list together, the list it is of, its begin
        and end; and a mask of lists that are odd.
    """
    begin, stop, odd = wire.only(buffer, starts, ends, kind.value)
    begin = np.where(odd, stop, begin)
    if kind is FeatureKind.BYTES:
        owner, begin, stop, wrong = wire.pieces(buffer, begin, stop, _ENTRY)
        return owner, begin, stop, odd | wrong
    full = np.flatnonzero(begin < stop)
    inner, end, bad = wire.only(buffer, begin[full], stop[full], _ENTRY)
    odd[full[bad]] = True
    begin[full] = np.where(bad, end, inner)
    return np.arange(len(starts)), begin, stop, odd


def _first_field(buffer: wire.Buffer, starts: Any, ends: Any, odd: Any) -> Any:
    """Where a SequenceExample's context ends and its feature lists begin."""
    split = starts.copy()
    has = np.flatnonzero((starts < ends) & (buffer.octets[starts] == _ENTRY))
    if len(has):
        length, begin, long = wire.lengths_at(buffer, starts[has] + 1)
        stop = begin + length
        bad = (stop > ends[has]) | long
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
    odd[some[wrong]] = True
    owner = some[owner]
    # An entry: its key, then its value, which reaches to the entry's end.
    length, key, long = wire.lengths_at(buffer, begin + 1)
    value = key + length
    bad = (buffer.octets[begin] != _ENTRY) | (value >= stop) | long
    value = np.where(bad, begin, value)
    size, inside, long = wire.lengths_at(buffer, value + 1)
    bad |= (buffer.octets[value] != _VALUE) | (inside + size != stop) | long
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
