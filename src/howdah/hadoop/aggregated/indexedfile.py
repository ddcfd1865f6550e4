"""YARN's newer format for aggregated logs, with an index: ``IndexedFile``.

At the end of a file are the index (serialised Java objects), its length in four bytes, and 32 bytes
that mark the application (SHA-256 of its id). Logs are compressed one by one
(``LogAggregationIndexedFileController``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from howdah.hadoop.aggregated import javaserial
from howdah.hadoop.aggregated.source import Data, Files, Log, LogFormatError, Place

_MARK_BYTES = 32
_MAX_INDEX_BYTES = 64 << 20
_SUMS = "-checksum"
"""Suffix of the file that says, while logs are being added, how far the last index is good."""


def is_indexed(files: Files, path: str, size: int, app: str) -> bool:
    """It begins with the mark of its application."""
    mark = hashlib.sha256(app.encode()).digest()
    return size >= _MARK_BYTES and files.read(path, 0, _MARK_BYTES) == mark


def good_size(files: Files, folder: str, name: str, sizes: dict[str, int]) -> int:
    """How much of a file is complete: all of it, unless logs are being added to it."""
    for other in sizes:
        if other.startswith(name) and other.endswith(_SUMS):
            said = files.read(f"{folder}/{other}", 0, 8)
            if len(said) == 8:
                return min(sizes[name], int.from_bytes(said, "big"))
    return sizes[name]


def is_sum(name: str) -> bool:
    """It is no file with logs, but belongs to one."""
    return name.endswith(_SUMS)


def read(files: Files, log: Log, start: int, length: int) -> Iterator[bytes]:
    """A part of a log, in pieces.

    Raises:
        LogFormatError: the file is damaged.
    """
    data = Data(files, log.path, log.place.start, log.place.length, log.place.compression)
    data.skip(start)
    yield from data.pieces(length)


def logs(files: Files, path: str, size: int, node: str) -> Iterator[Log]:
    """All logs in a file, those aggregated first at first.

    Raises:
        LogFormatError: it is damaged or unfinished.
    """
    index = _index(files, path, size)
    try:
        compression = str(index.fields["compressName"]).lower()
        for cycle in index.fields["logMetas"].elements():
            for container, metas in sorted(cycle.fields["logMetas"].items()):
                for meta in metas.elements():
                    place = _place(meta.fields, path, size, compression)
                    yield _log(meta.fields, str(container), path, node, place)
    except (KeyError, AttributeError, TypeError, ValueError, OverflowError, OSError) as error:
        if isinstance(error, LogFormatError):
            raise
        raise LogFormatError(f"{path}: its index is not as expected: {error!r}") from None


def _place(meta: dict[str, Any], path: str, size: int, compression: str) -> Place:
    start, length = int(meta["startIndex"]), int(meta["fileCompressedSize"])
    if start < 0 or length < 0 or start + length > size:
        raise LogFormatError(f"{path}: a log is said to be at {start} with {length} bytes")
    return Place(start, length, compression)


def _log(meta: dict[str, Any], container: str, path: str, node: str, place: Place) -> Log:
    # Hadoop changed the field's name.
    changed_ms = meta["lastModifiedTime" if "lastModifiedTime" in meta else "lastModificatedTime"]
    modified = datetime.fromtimestamp(changed_ms / 1000, UTC)
    return Log(container, str(meta["fileName"]), int(meta["fileSize"]), node, path, place, modified)


def _index(files: Files, path: str, size: int) -> javaserial.JavaObject:
    tail = 4 + _MARK_BYTES
    if size < _MARK_BYTES + tail:
        raise LogFormatError(f"{path} is too short for an indexed log file ({size} bytes)")
    length = int.from_bytes(Data(files, path, size - tail, 4).read(4), "big")
    if length > min(_MAX_INDEX_BYTES, size - tail):
        raise LogFormatError(f"{path}: its index is said to have {length} bytes")
    found = javaserial.loads(Data(files, path, size - tail - length, length).read(length))
    if not isinstance(found, javaserial.JavaObject):
        raise LogFormatError(f"{path}: its index is no object")
    return found
