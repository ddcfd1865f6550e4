"""YARN's older format for aggregated logs: a TFile of all containers of an application on a node.

A TFile is blocks, compressed or not, of key-value records, and an index at the end
(``org.apache.hadoop.io.file.tfile.BCFile`` and ``TFile``). A record's key is a container's id, its
value the container's logs: name, length as text, bytes (``AggregatedLogFormat``). There is no index
of the logs: finding one means stepping over those before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from howdah.hadoop.aggregated.source import Data, Files, Log, LogFormatError, Place, modified_utf8

_MAGIC = bytes.fromhex("d111d36891b5d7b639df414092bae150")
_TAIL_BYTES = 8 + 4 + len(_MAGIC)  # where the index is, version, magic
_MAX_INDEX_BYTES = 64 << 20
_MAX_KEY_BYTES = 1 << 16
_MAX_DIGITS = 19  # of Java's long
_NOT_CONTAINERS = ("APPLICATION_ACL", "APPLICATION_OWNER", "VERSION")


def logs(files: Files, path: str, size: int, node: str) -> Iterator[Log]:
    """All logs in a file, in its order.

    Raises:
        LogFormatError: it is damaged or unfinished.
    """
    compression, regions = _blocks(files, path, size)
    for start, length in regions:
        block = Data(files, path, start, length, compression)
        for container, value in _containers(block, path):
            for name, has in _entries(value):
                place = Place(start, length, compression, block.position, value.left, value.last)
                yield Log(container, name, has, node, path, place)
                value.skip(has)


def read(files: Files, log: Log, start: int, length: int) -> Iterator[bytes]:
    """A part of a log, in pieces.

    Raises:
        LogFormatError: the file is damaged.
    """
    place = log.place
    data = Data(files, log.path, place.start, place.length, place.compression)
    data.skip(place.skip)
    value = _Value(data, place.chunk_left or 0, place.last_chunk)
    value.skip(start)
    yield from value.pieces(length)


class _Value:
    """A record's value: chunks, each after its length, which is negative for all but the last."""

    def __init__(self, data: Data, left: int = 0, last: bool = False) -> None:
        """``left`` is what is left of the current chunk, ``last`` says that it is the last one."""
        self._data = data
        self.left = left
        self.last = last

    def at_end(self) -> bool:
        while self.left == 0 and not self.last:
            count = _vint(self._data)
            self.last = count >= 0
            self.left = abs(count)
        return self.left == 0

    def pieces(self, count: int) -> Iterator[bytes]:
        while count > 0:
            yield from self._data.pieces(step := self._step(count))
            count -= step

    def skip(self, count: int) -> None:
        while count > 0:
            step = self._step(count)
            self._data.skip(step)
            count -= step

    def utf(self) -> str:
        length = int.from_bytes(b"".join(self.pieces(2)), "big")
        return modified_utf8(b"".join(self.pieces(length)))

    def finish(self) -> None:
        """Go to the end, where the next record is."""
        while not self.at_end():
            self.skip(self.left)

    def _step(self, count: int) -> int:
        if self.at_end():
            raise LogFormatError("a container's logs end too early")
        step = min(count, self.left)
        self.left -= step
        return step


def _containers(block: Data, path: str) -> Iterator[tuple[str, _Value]]:
    """The containers in a block; the caller need not take all of a value."""
    while not block.at_end():
        key = block.read(_bounded(_vint(block), _MAX_KEY_BYTES, path))
        value = _Value(block)
        name = modified_utf8(key[2:])  # after two bytes of length
        if name not in _NOT_CONTAINERS:
            yield name, value
        value.finish()


def _entries(value: _Value) -> Iterator[tuple[str, int]]:
    """Name and length of each log; the caller takes or skips its bytes before the next one."""
    while not value.at_end():
        name, length = value.utf(), value.utf()
        if not (length.isascii() and length.isdigit() and len(length) <= _MAX_DIGITS):
            raise LogFormatError(f"the length of the log {name!r} is {length!r}")
        yield name, int(length)


def _blocks(files: Files, path: str, size: int) -> tuple[str, list[tuple[int, int]]]:
    """The compression of the records, and where their blocks are: offset and length."""
    if size < _TAIL_BYTES:
        raise LogFormatError(f"{path} is too short for a TFile ({size} bytes)")
    tail = Data(files, path, size - _TAIL_BYTES, _TAIL_BYTES)
    index_at = int.from_bytes(tail.read(8), "big", signed=True)
    major = int.from_bytes(tail.read(2), "big")
    tail.skip(2)
    if tail.read(len(_MAGIC)) != _MAGIC:
        raise LogFormatError(f"{path} does not end as a TFile does; is it still being written?")
    if major != 1:
        raise LogFormatError(f"{path} is of version {major} of its format; 1 is known here")
    if not 0 <= index_at < size or size - index_at > _MAX_INDEX_BYTES:
        raise LogFormatError(f"{path}: its index is said to be at {index_at}")
    index = Data(files, path, index_at, size - index_at)
    for _ in range(_bounded(_vint(index), 1000, path)):
        name, compression = _text(index, path), _text(index, path)
        start, length, _raw = _region(index, path, size)
        if name == "data:BCFile.index":
            return _data_index(Data(files, path, start, length, compression), path, size)
    raise LogFormatError(f"{path} has no index of its blocks")


def _data_index(data: Data, path: str, size: int) -> tuple[str, list[tuple[int, int]]]:
    compression = _text(data, path)
    count = _bounded(_vint(data), size, path)
    return compression, [_region(data, path, size)[:2] for _ in range(count)]


def _region(data: Data, path: str, size: int) -> tuple[int, int, int]:
    start, length, raw = _vint(data), _vint(data), _vint(data)
    if start < 0 or length < 0 or start + length > size:
        raise LogFormatError(f"{path}: a block is said to be at {start} with {length} bytes")
    return start, length, raw


def _text(data: Data, path: str) -> str:
    return data.read(_bounded(_vint(data), _MAX_KEY_BYTES, path)).decode("utf-8", "replace")


def _bounded(value: int, most: int, path: str) -> int:
    if not 0 <= value <= most:
        raise LogFormatError(f"{path} is damaged: a length in it is {value}")
    return value


def _vint(data: Data) -> int:
    """A number as the TFile's own ``Utils.readVLong`` reads it (not that of WritableUtils)."""
    first = int.from_bytes(data.read(1), "big", signed=True)
    if first >= -32:
        return first
    group = (first + 128) // 8
    if group >= 7:
        return (first + 52) << 8 | data.read(1)[0]
    if group >= 3:
        return (first + 88) << 16 | int.from_bytes(data.read(2), "big")
    if group >= 1:
        return (first + 112) << 24 | int.from_bytes(data.read(3), "big")
    length = first + 129
    if length < 4:
        raise LogFormatError(f"a number of {length} bytes is in a form that does not exist")
    return int.from_bytes(data.read(length), "big", signed=True)
