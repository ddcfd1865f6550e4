"""Masked CRC32C, as TFRecord files have it behind a record's length and behind its data.

The sums of data come from `google_crc32c` (hardware instructions). The lengths have eight bytes
each: too short for a call, so all of a block are summed at once by table.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_FEW = 4


def mask(sums: Any) -> Any:
    """TFRecord's masking of CRCs in an array of uint32."""
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(_MASK_DELTA)


def of_lengths(lengths: Any) -> Any:
    """Masked sums of lengths (uint64), each taken as its eight bytes."""
    values = np.ascontiguousarray(lengths, dtype="<u8")
    if len(values) > _FEW and (values == values[0]).all():
        return np.repeat(of_lengths(values[:1]), len(values))
    tables = _tables()
    octets = values.view(np.uint8).reshape(-1, 8)
    sums = np.zeros(len(values), dtype=np.uint32)
    for at in range(8):
        octet = octets[:, at]
        # The sum's register starts as all ones, which meet the first four bytes.
        sums ^= tables[7 - at][octet ^ np.uint8(0xFF) if at < 4 else octet]
    return mask(sums ^ np.uint32(0xFFFFFFFF))


def of_pieces(data: bytes, starts: Any, lengths: Any) -> Any:
    """Masked sums of pieces of data, by their places."""
    from google_crc32c import value

    count = len(starts)
    if count == 0:
        return np.zeros(0, dtype=np.uint32)
    pieces = cut(data, starts, lengths)
    return mask(np.fromiter(map(value, pieces), dtype=np.uint32, count=count))


def cut(data: bytes, starts: Any, lengths: Any) -> Sequence[bytes] | Any:
    """The pieces themselves, each a copy; an iterable."""
    if len(starts) > _FEW:
        first, length = int(starts[0]), int(lengths[0])
        stride = int(starts[1]) - first
        if stride >= length and (lengths == length).all() and (np.diff(starts) == stride).all():
            whole = memoryview(data)[first : first + stride * (len(starts) - 1)]
            rows = struct.Struct(f"{length}s{stride - length}x").iter_unpack(whole)
            last = int(starts[-1])
            return [*(row[0] for row in rows), data[last : last + length]]
    places = map(slice, starts.tolist(), (starts + lengths).tolist())
    return list(map(data.__getitem__, places))


@functools.cache
def _tables() -> tuple[Any, ...]:
    """``[k][b]``: what byte b does to the sum with k bytes behind it."""
    one = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        one = np.where(one & 1, (one >> 1) ^ np.uint32(_POLYNOMIAL), one >> 1).astype(np.uint32)
    tables = [one]
    for _ in range(7):
        before = tables[-1]
        tables.append((before >> np.uint32(8)) ^ one[before & np.uint32(0xFF)])
    return tuple(tables)
