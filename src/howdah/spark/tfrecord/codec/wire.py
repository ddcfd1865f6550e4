"""Protocol Buffers' wire format, read for thousands of messages at once.

A message is a range of a shared buffer; functions take arrays of ranges and walk through all of
them in step: one pass of numpy per field, not one of Python per message. Only the form is read that
every writer of `tf.train.Example` produces (each field at most once, keys before values, packed
numbers). A range in any other form is told of as odd, never guessed at: the caller has it rewritten
by `google.protobuf` and comes again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SEVEN = np.uint64(7)
FAR = 64
"""From this mean length on, copying range by range is faster than byte by byte."""


class Buffer:
    """Bytes, and the eight bytes at each place as a number. Needs 8 bytes behind the last range."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.octets: np.ndarray[Any, Any] = np.frombuffer(data, dtype=np.uint8)
        self.words: np.ndarray[Any, Any] = np.ndarray(
            (len(data) - 7,), "<u8", buffer=data, strides=(1,)
        )


def lengths_at(buffer: Buffer, at: Any) -> tuple[Any, Any, Any]:
    """Varints of up to five bytes at places: values, the places behind, which are longer."""
    first = buffer.octets[at]
    longer = first >= 0x80
    if not longer.any():
        return first.astype(np.int64), at + 1, longer
    words = buffer.words[at]
    value = words & np.uint64(0x7F)
    size = np.ones(len(at), dtype=np.int64)
    more = (words >> _SEVEN) & np.uint64(1)
    for step in range(1, 5):
        if not more.any():
            break
        septet = (words >> np.uint64(8 * step)) & np.uint64(0x7F)
        value |= (septet * more) << np.uint64(7 * step)
        size += more.astype(np.int64)
        more &= (words >> np.uint64(8 * step + 7)) & np.uint64(1)
    return value.astype(np.int64), at + size, more.astype(bool)


def pieces(buffer: Buffer, starts: Any, ends: Any, tag: int) -> tuple[Any, Any, Any, Any]:
    """All fields of messages that have nothing but this length-delimited one, again and again.

    Returns:
        For each field the message it is of (in the messages' order, then in theirs), its begin and
        end; and a mask of messages that are odd. Odd ones have no fields.
    """
    active = np.flatnonzero(starts < ends)
    at = starts[active]
    owners: list[Any] = []
    begins: list[Any] = []
    stops: list[Any] = []
    odd = np.zeros(len(starts), dtype=bool)
    while len(active):
        limit = ends[active]
        length, begin, long = lengths_at(buffer, at + 1)
        stop = begin + length
        bad = (buffer.octets[at] != tag) | (stop > limit) | long
        if bad.any():
            odd[active[bad]] = True
            good = ~bad
            active, begin, stop, limit = active[good], begin[good], stop[good], limit[good]
        owners.append(active)
        begins.append(begin)
        stops.append(stop)
        left = stop < limit
        if left.all():
            at = stop
        else:
            active, at = active[left], stop[left]
    if not owners:
        none = np.zeros(0, dtype=np.int64)
        return none, none, none, odd
    owner, begin, stop = np.concatenate(owners), np.concatenate(begins), np.concatenate(stops)
    if odd.any():
        good = ~odd[owner]
        owner, begin, stop = owner[good], begin[good], stop[good]
    if len(owners) > 1:
        order = np.argsort(owner, kind="stable")
        owner, begin, stop = owner[order], begin[order], stop[order]
    return owner, begin, stop, odd


def only(buffer: Buffer, starts: Any, ends: Any, tag: int) -> tuple[Any, Any, Any]:
    """The content of ranges that are exactly one length-delimited field, and which are not."""
    length, begin, long = lengths_at(buffer, starts + 1)
    return begin, ends, (buffer.octets[starts] != tag) | (begin + length != ends) | long


def same(buffer: Buffer, starts: Any, lengths: Any, text: bytes) -> Any:
    """Which ranges are that text."""
    equal = lengths == len(text)
    likely = slice(None) if equal.all() else np.flatnonzero(equal)
    begins = starts[likely]
    for at in range(0, len(text), 8):
        part = text[at : at + 8]
        words = buffer.words[begins + at]
        if len(part) < 8:
            words = words & np.uint64((1 << 8 * len(part)) - 1)
        equal[likely] &= words == np.uint64(int.from_bytes(part, "little"))
    return equal


def gather(buffer: Buffer, starts: Any, ends: Any) -> Any:
    """The bytes of all ranges behind one another (uint8)."""
    lengths = ends - starts
    rows = matrix(buffer.data, starts, lengths)
    if rows is not None:
        return np.ascontiguousarray(rows).reshape(-1)
    if len(starts) and int(lengths.sum()) >= FAR * len(starts):
        places = map(slice, starts.tolist(), ends.tolist())
        return np.frombuffer(b"".join(map(buffer.data.__getitem__, places)), dtype=np.uint8)
    return buffer.octets[places_in(starts, lengths)]


def matrix(data: Any, starts: Any, lengths: Any) -> Any:
    """Ranges of bytes as rows of a matrix, which looks at them where they are. None where they are not two
    or more of one length, each as far from the next."""
    count = len(starts)
    if count < 2:
        return None
    length, stride = int(lengths[0]), int(starts[1] - starts[0])
    if not 0 < length <= stride or (lengths != length).any() or (np.diff(starts) != stride).any():
        return None
    offset = int(starts[0])
    return np.ndarray((count, length), np.uint8, buffer=data, offset=offset, strides=(stride, 1))


def places_in(starts: Any, lengths: Any) -> Any:
    """The places of all bytes of ranges."""
    total = int(lengths.sum())
    if total == 0:
        return np.zeros(0, dtype=np.int64)
    steps = np.ones(total, dtype=np.int64)
    real = lengths > 0
    starts, lengths = starts[real], lengths[real]
    firsts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
    steps[firsts[1:]] = starts[1:] - (starts[:-1] + lengths[:-1] - 1)
    steps[0] = starts[0]
    return np.cumsum(steps)


def integers(data: Any) -> tuple[Any, Any]:
    """All varints of a byte array as int64, and the places of their last bytes.

    Raises:
        ValueError: the last one does not end, or one is longer than ten bytes.
    """
    last = data < 0x80
    if last.all():
        return data.astype(np.int64), np.arange(len(data))
    ends = np.flatnonzero(last)
    if len(ends) == 0 or ends[-1] != len(data) - 1:
        raise ValueError("a number does not end")
    if not (last[1:] | last[:-1]).all():
        return _long_integers(data, ends), ends
    # None has more than two bytes.
    values = data[ends].astype(np.int64)
    long = np.flatnonzero(~last[ends - 1] & (ends > 0))
    values[long] = (values[long] << 7) | (data[ends[long] - 1] & 0x7F)
    return values, ends


def _long_integers(data: Any, ends: Any) -> Any:
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    longest = int(sizes.max())
    if longest > 10:
        raise ValueError("a number has more than ten bytes")
    values = (data[starts] & 0x7F).astype(np.uint64)
    for step in range(1, longest):
        more = np.flatnonzero(sizes > step)
        septets = (data[starts[more] + step] & 0x7F).astype(np.uint64)
        values[more] |= septets << np.uint64(7 * step)
    return values.view(np.int64)
