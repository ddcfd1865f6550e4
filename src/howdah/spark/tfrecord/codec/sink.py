"""A buffer that is filled at many places at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from howdah.spark.tfrecord.codec.wire import FAR, matrix, places_in

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
