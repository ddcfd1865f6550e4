"""Blocks in which every record has everything at the same places, as rows of numbers mostly do.

The first record is read; if all others have its tags, lengths and names where it has them, columns are
cut out of the block as a matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from howdah.spark.tfrecord.codec import wire
from howdah.spark.tfrecord.codec.columns import FeatureColumn, FeatureKind, RecordType
from howdah.spark.tfrecord.codec.framing import RecordBlock
from howdah.spark.tfrecord.codec.parsing import contents, parse
from howdah.spark.tfrecord.codec.values import FoundLists, Misfit, assemble, binaries

_FEW = 64
"""Fewer records are not worth it."""
_SHORT = 8
"""Up to so many varints are read in their columns; more at once."""
_SAME = 0xFF
_GOES_ON = 0x80


class _Field(msgspec.Struct, frozen=True):
    """Where a feature of the first record has its values, from the record's begin on."""

    kind: FeatureKind
    ranges: tuple[tuple[int, int], ...]
    """Of each value of bytes; of all numbers together."""


def uniform(block: RecordBlock, columns: Sequence[FeatureColumn]) -> list[pa.Array] | None:
    """The columns of a block of examples; None if its records differ in form.

    Raises:
        RecordError: a value does not fit its column.
    """
    matrix = wire.matrix(block.data, block.starts, block.lengths) if len(block) >= _FEW else None
    if matrix is None or (fields := _fields(block)) is None:
        return None
    marks = np.full(matrix.shape[1], _SAME, dtype=np.uint8)
    for field in fields.values():
        for begin, end in field.ranges if field is not None else ():
            marks[begin:end] = (
                _GOES_ON if field is not None and field.kind is FeatureKind.INT else 0
            )
    # Most blocks that differ do so soon.
    if not (_alike(matrix[:_SHORT], marks) and _alike(matrix, marks)):
        return None
    arrays: list[pa.Array] = []
    for column in columns:
        field = fields.get(column.key)
        try:
            found = [] if field is None else [_found(matrix, field)]
            arrays.append(assemble(found, column, len(block)))
        except Misfit as misfit:
            raise misfit.at(block, column) from None
    return arrays


def _fields(block: RecordBlock) -> dict[bytes, _Field | None] | None:
    """The features of the first record, None for those without a list; None if it is odd."""
    odd = np.zeros(1, dtype=bool)
    parsed = parse(block.cut(0, 1), RecordType.EXAMPLE, None, odd)
    if odd.any():
        return None
    buffer, origin = parsed.buffer, int(block.starts[0])
    found: dict[bytes, _Field | None] = {}
    for name, feature in parsed.context.items():
        if feature.starts[0] == feature.ends[0]:
            found[name] = None
            continue
        tag = int(buffer.octets[feature.starts[0]])
        if tag not in (kind.value for kind in FeatureKind):
            return None
        kind = FeatureKind(tag)
        _, begins, ends, wrong = contents(buffer, kind, feature.starts, feature.ends)
        if wrong.any():
            return None
        if kind is not FeatureKind.BYTES and not _whole(buffer.octets[begins[0] : ends[0]], kind):
            return None
        ranges = zip((begins - origin).tolist(), (ends - origin).tolist())
        found[name] = _Field(kind, tuple(ranges))
    return found


def _whole(packed: Any, kind: FeatureKind) -> bool:
    """Whether packed numbers end where their field does, none of them too long."""
    if kind is FeatureKind.FLOAT:
        return len(packed) % 4 == 0
    lasts = np.flatnonzero(packed < _GOES_ON)
    sizes = np.diff(lasts, prepend=-1)
    return len(packed) == 0 or (
        len(lasts) > 0 and lasts[-1] == len(packed) - 1 and int(sizes.max()) <= 10
    )


def _alike(matrix: Any, marks: Any) -> bool:
    """Whether all rows have the first one's bits where there are marks."""
    edges = np.flatnonzero(np.diff(marks)) + 1
    for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(marks)]):
        mark = marks[begin]
        if not mark:
            continue
        part, first = matrix[:, begin:end], matrix[0, begin:end]
        if mark == _SAME:
            if (part != first).any():
                return False
        elif ((part ^ first) & mark).any():
            return False
    return True


def _found(matrix: Any, field: _Field) -> FoundLists:
    rows = len(matrix)
    owners = np.arange(rows)
    if field.kind is FeatureKind.BYTES:
        sizes = np.array([end - begin for begin, end in field.ranges], dtype=np.int64)
        parts = [matrix[:, begin:end] for begin, end in field.ranges]
        data = (
            np.concatenate(parts, axis=1)
            if len(parts) > 1
            else np.ascontiguousarray(parts[0] if parts else matrix[:, :0])
        )
        counts = np.full(rows, len(sizes))
        return FoundLists(
            field.kind, owners, counts, binaries(data.reshape(-1), np.tile(sizes, rows))
        )
    ((begin, end),) = field.ranges
    part = matrix[:, begin:end]
    if field.kind is FeatureKind.FLOAT:
        values = np.ascontiguousarray(part).reshape(-1).view("<f4")
        return FoundLists(field.kind, owners, np.full(rows, (end - begin) // 4), values)
    lasts = np.flatnonzero(part[0] < _GOES_ON)
    counts = np.full(rows, len(lasts))
    if len(lasts) == end - begin:
        values = part.astype(np.int64).reshape(-1)
    elif len(lasts) <= _SHORT:
        values = _integers(part, lasts)
    else:
        values, _ = wire.integers(np.ascontiguousarray(part).reshape(-1))
    return FoundLists(field.kind, owners, counts, values)


def _integers(part: Any, lasts: Any) -> Any:
    """Varints that end in the same columns of all rows."""
    values = np.zeros((len(part), len(lasts)), dtype=np.uint64)
    begin = 0
    for at, last in enumerate(lasts.tolist()):
        for step in range(last - begin + 1):
            septet = (part[:, begin + step] & 0x7F).astype(np.uint64)
            values[:, at] |= septet << np.uint64(7 * step)
        begin = last + 1
    return values.reshape(-1).view(np.int64)
