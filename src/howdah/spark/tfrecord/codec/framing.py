"""TFRecord files: ``length (8) · crc of it (4) · data · crc of it (4)``, again and again.

All of a block's records are found and checked together. Every sum is checked; what does not fit is
reported with the byte its record begins at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from howdah.spark.tfrecord.codec.wire import Buffer
from howdah.spark.tfrecord.errors import CorruptRecord

HEAD_BYTES = 12
FOOT_BYTES = 4
AROUND_BYTES = HEAD_BYTES + FOOT_BYTES

BLOCK_BYTES = 4 * 1024 * 1024
"""Read and decoded at a time: little enough for the caches of a processor."""

PADDING = bytes(16)
"""Behind a block's data, so that words may be read at its last bytes."""

_LARGEST = 2**31 - 2**20
_MASK_DELTA = 0xA282EAD8
_LENGTH = struct.Struct("<Q")
_HEAD, _FOOT = struct.Struct("<QI"), struct.Struct("<I")
_FIRST_LOOK = 32


class Reads(Protocol):
    """Anything with ``read``."""

    def read(self, size: int, /) -> bytes: ...


class RecordBlock:
    """Records that lie behind one another in `data`."""

    def __init__(self, data: bytes, starts: Any, lengths: Any, *, offset: int, first: int) -> None:
        self.data = data
        """With at least `PADDING` behind the last record."""
        self.starts = starts
        """Where each record's own bytes begin in `data` (int64)."""
        self.lengths = lengths
        self.offset = offset
        """Of ``data[0]`` in the file."""
        self.first = first
        """Number of its first record in the file, from 0 on."""

    def __len__(self) -> int:
        return len(self.starts)

    def place(self, index: int) -> int:
        """The byte of the file at which the record's frame begins."""
        return self.offset + int(self.starts[index]) - HEAD_BYTES

    def payloads(self) -> list[bytes]:
        """Copies of all records."""
        return cut_pieces(self.data, self.starts, self.lengths)

    def cut(self, begin: int, end: int) -> RecordBlock:
        """Some of the records, over the same data."""
        return RecordBlock(
            self.data,
            self.starts[begin:end],
            self.lengths[begin:end],
            offset=self.offset,
            first=self.first + begin,
        )


def blocks(
    stream: Reads, *, block_bytes: int = BLOCK_BYTES, verify: bool = True
) -> Iterator[RecordBlock]:
    """All records of a stream, some MiB at a time.

    Raises:
        CorruptRecord: a sum is wrong, or the stream ends inside a record.
    """
    rest, offset, first, wanted = b"", 0, 0, block_bytes
    while True:
        chunk = _read(stream, wanted)
        data = b"".join((rest, chunk, PADDING))
        size = len(data) - len(PADDING)
        if size == 0:
            return
        block, end, wanted = _found(data, size, offset, first)
        if len(block):
            if verify:
                _verify(block)
            yield block
        if end == size and not chunk:
            return
        if not chunk:
            raise _truncated(data, end, size, offset, first + len(block))
        rest = data[end:size]
        offset, first = offset + end, first + len(block)
        wanted = max(block_bytes, wanted)


def sums_of_lengths(lengths: Any) -> Any:
    """Masked CRC32C of lengths, each taken as its eight bytes."""
    distinct, places = np.unique(lengths, return_inverse=True)
    data = distinct.astype("<u8").tobytes()
    return sums_of_pieces([data[at : at + 8] for at in range(0, len(data), 8)])[places]


def sums_of_pieces(pieces: Sequence[bytes]) -> Any:
    """Masked CRC32C of pieces of data (uint32)."""
    from google_crc32c import value

    sums = np.fromiter(map(value, pieces), dtype=np.uint32, count=len(pieces))
    return ((sums >> np.uint32(15)) | (sums << np.uint32(17))) + np.uint32(_MASK_DELTA)


def cut_pieces(data: bytes, starts: Any, lengths: Any) -> list[bytes]:
    """The pieces of data at those places, each a copy."""
    places = map(slice, starts.tolist(), (starts + lengths).tolist())
    return list(map(data.__getitem__, places))


def frame(payloads: list[bytes]) -> bytes:
    """Those records as they stand in a file."""
    lengths = np.fromiter(map(len, payloads), dtype="<u8", count=len(payloads))
    heads = sums_of_lengths(lengths)
    feet = sums_of_pieces(payloads)
    parts: list[bytes] = []
    for payload, head, foot in zip(payloads, heads.tolist(), feet.tolist()):
        parts += [_HEAD.pack(len(payload), head), payload, _FOOT.pack(foot)]
    return b"".join(parts)


def head_is_right(data: bytes, at: int) -> bool:
    """Whether the length at that place has its checksum behind it."""
    length, told = _HEAD.unpack_from(data, at)
    return told == int(sums_of_lengths([length])[0])


def _read(stream: Reads, size: int) -> bytes:
    """So many bytes, unless the stream ends before."""
    chunk = stream.read(size)
    if len(chunk) >= size or not chunk:
        return chunk
    parts, left = [chunk], size - len(chunk)
    while left > 0 and (chunk := stream.read(left)):
        parts.append(chunk)
        left -= len(chunk)
    return b"".join(parts)


def _found(data: bytes, size: int, offset: int, first: int) -> tuple[RecordBlock, int, int]:
    """The whole records, where they end, and how many bytes are missing to the next one's end."""
    unpack = _LENGTH.unpack_from
    begins: list[int] = []
    runs: list[Any] = []
    at, before, missing = 0, -1, 0
    while at + HEAD_BYTES <= size:
        (length,) = unpack(data, at)
        end = at + AROUND_BYTES + length
        if end > size:
            # A wrong length would have us read the whole file: believe its sum only. If that is
            # wrong too, a wrong length before may have led here.
            if not head_is_right(data, at):
                before_it = _block(data, [*runs, np.array(begins, dtype=np.int64)], offset, first)
                _verify(before_it)
                raise _wrong_length(first + len(before_it), offset + at)
            if length > _LARGEST:
                raise CorruptRecord(
                    f"a record of {length:,} bytes is more than can be read ({_LARGEST:,})",
                    offset=offset + at,
                )
            missing = end - size
            break
        if length == before:
            run = _run(data, at, size, length)
            runs += [
                np.array(begins, dtype=np.int64),
                at + (length + AROUND_BYTES) * np.arange(run),
            ]
            begins = []
            at += run * (length + AROUND_BYTES)
            continue
        begins.append(at)
        before = length
        at = end
    return _block(data, [*runs, np.array(begins, dtype=np.int64)], offset, first), at, missing


def _block(data: bytes, runs: list[Any], offset: int, first: int) -> RecordBlock:
    """The records whose frames begin at those places."""
    frames = np.concatenate(runs)
    lengths = Buffer(data).words[frames].astype(np.int64)
    return RecordBlock(data, frames + HEAD_BYTES, lengths, offset=offset, first=first)


def _run(data: bytes, at: int, size: int, length: int) -> int:
    """How many records from there on have the same length, at least 1."""
    stride = length + AROUND_BYTES
    most = (size - at) // stride
    look, known = _FIRST_LOOK, 1
    while known < most:
        heads = np.ndarray((min(look, most),), "<u8", buffer=data, offset=at, strides=(stride,))
        differ = np.flatnonzero(heads != length)
        if len(differ):
            return int(differ[0])
        known, look = len(heads), look * 8
    return known


def _verify(block: RecordBlock) -> None:
    data, frames = block.data, block.starts - HEAD_BYTES
    halves = np.ndarray((len(data) - 3,), "<u4", buffer=data, strides=(1,))
    wrong = halves[frames + 8] != sums_of_lengths(block.lengths)
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        if bad:
            _verify(block.cut(0, bad))
        raise _wrong_length(block.first + bad, block.place(bad))
    wrong = halves[block.starts + block.lengths] != sums_of_pieces(block.payloads())
    if wrong.any():
        bad = int(np.flatnonzero(wrong)[0])
        raise CorruptRecord(
            f"the checksum of record {block.first + bad} ({int(block.lengths[bad]):,} bytes) is"
            " wrong: its data is damaged",
            offset=block.place(bad),
        )


def _wrong_length(number: int, offset: int) -> CorruptRecord:
    if number == 0:
        text = (
            "the checksum of the first record's length is wrong: this is no TFRecord file,"
            " or it is compressed in a way that was not told"
        )
    else:
        text = f"the checksum of the length of record {number} is wrong: the file is damaged here"
    return CorruptRecord(text, offset=offset)


def _truncated(data: bytes, at: int, size: int, offset: int, number: int) -> CorruptRecord:
    there = size - at
    if there < HEAD_BYTES:
        wanted = f"its length and checksum need {HEAD_BYTES}"
    else:
        wanted = f"it needs {_LENGTH.unpack_from(data, at)[0] + AROUND_BYTES:,}"
    return CorruptRecord(
        f"the file ends in the middle of record {number}: {there:,} bytes of it are there, {wanted}",
        offset=offset + at,
    )
