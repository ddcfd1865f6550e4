"""Masked CRC32C, as TFRecord files have it behind a record's length and behind its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_MASK_DELTA = 0xA282EAD8


def of_lengths(lengths: Any) -> Any:
    """Masked sums of lengths, each taken as its eight bytes."""
    distinct, places = np.unique(lengths, return_inverse=True)
    data = distinct.astype("<u8").tobytes()
    return of_pieces([data[at : at + 8] for at in range(0, len(data), 8)])[places]


def of_pieces(pieces: Sequence[bytes]) -> Any:
    """Masked sums of pieces of data (uint32)."""
    from google_crc32c import value

    sums = np.fromiter(map(value, pieces), dtype=np.uint32, count=len(pieces))
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(_MASK_DELTA)


def cut(data: bytes, starts: Any, lengths: Any) -> list[bytes]:
    """The pieces of data at those places, each a copy."""
    places = map(slice, starts.tolist(), (starts + lengths).tolist())
    return list(map(data.__getitem__, places))
