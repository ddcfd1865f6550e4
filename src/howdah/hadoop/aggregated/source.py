"""Where files come from, bytes of them, and what a log in them is."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Protocol

from howdah.hadoop.errors import HadoopError

PIECE_BYTES = 1 << 20
"""How much is read of a file at a time."""

_ZLIB_OR_GZIP = 47  # zlib's own code for: whichever of both the data begin with


class LogFormatError(HadoopError, ValueError):
    """A file of aggregated logs is damaged, unfinished, or of a kind that is not known here."""


class Files(Protocol):
    """The file system with the logs; any client of it can be given as one."""

    def files(self, folder: str) -> Mapping[str, int]:
        """Names and lengths in bytes of the files in a folder; empty if there is no folder."""
        ...

    def read(self, path: str, offset: int, length: int) -> bytes:
        """So many bytes of a file; fewer only at its end. `OSError` if that does not work."""
        ...


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a log's bytes are in a file.

    Attributes:
        start, length: of the part of the file that is compressed as one.
        compression: of that part, ``none`` or ``gz``.
        skip: bytes of its content before the log.
        chunk_left: for content in chunks, how much of the current one is left; else None.
        last_chunk: the current chunk is the last one.
    """

    start: int
    length: int
    compression: str
    skip: int = 0
    chunk_left: int | None = None
    last_chunk: bool = True


@dataclasses.dataclass(frozen=True)
class Log:
    """One log of one container, as it is in one aggregated file.

    A service that runs for long has its logs aggregated in parts: the same container and name
    then come several times, in order.
    """

    container: str
    name: str
    size: int
    node: str
    """``host:port`` of the NodeManager."""
    path: str
    """The aggregated file."""
    place: Place = dataclasses.field(repr=False)
    modified: datetime | None = None
    """When the container wrote to it last; the TFile format does not say."""


class Data:
    """A file, or a part of it, read from the front; stepping over bytes reads them only if compressed."""

    def __init__(
        self, files: Files, path: str, start: int, length: int, compression: str = "none"
    ) -> None:
        """The part begins at ``start`` and has ``length`` bytes in the file.

        Raises:
            LogFormatError: the compression is not known here.
        """
        if compression not in ("none", "gz"):
            raise LogFormatError(
                f"{path}: its compression {compression!r} is not known here (none and gz are)"
            )
        self._files = files
        self._path = path
        self._at = start
        self._end = start + length
        self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP) if compression == "gz" else None
        self._packed = b""
        self._buffer = b""
        self._used = 0
        self.position: int = 0
        """How much of the content lies behind."""

    def at_end(self) -> bool:
        """Nothing is left."""
        return self._used == len(self._buffer) and not self._fill()

    def read(self, count: int) -> bytes:
        """Exactly so many bytes.

        Raises:
            LogFormatError: there are fewer.
        """
        return b"".join(self.pieces(count))

    def pieces(self, count: int) -> Iterator[bytes]:
        """Exactly so many bytes, in pieces; errors as in `read`."""
        while count > 0:
            if self._used == len(self._buffer) and not self._fill():
                raise LogFormatError(f"{self._path} ends too early")
            piece = self._buffer[self._used : self._used + count]
            self._used += len(piece)
            self.position += len(piece)
            count -= len(piece)
            yield piece

    def skip(self, count: int) -> None:
        """Go so many bytes on; errors as in `read`."""
        here = min(count, len(self._buffer) - self._used)
        self._used += here
        self.position += here
        count -= here
        if self._inflate is None:
            if count > self._end - self._at:
                raise LogFormatError(f"{self._path} ends too early")
            self._at += count
            self.position += count
        else:
            for _ in self.pieces(count):
                pass

    def _fill(self) -> bool:
        """Have something in the buffer; false if nothing is left."""
        while self._packed or self._at < self._end:
            data, self._packed = self._packed, b""
            if not data:
                wanted = min(PIECE_BYTES, self._end - self._at)
                data = self._files.read(self._path, self._at, wanted)
                if not data:
                    raise LogFormatError(f"{self._path} ends too early")
                self._at += len(data)
            self._used = 0
            self._buffer = data if self._inflate is None else self._unpacked(data)
            if self._buffer:
                return True
        if self._inflate is not None:
            self._used, self._buffer = 0, self._unpacked(b"")  # zlib keeps the last ones
        return self._used < len(self._buffer)

    def _unpacked(self, data: bytes) -> bytes:
        """A thousand times as much may come out of it: no more than a piece does at a time."""
        assert self._inflate is not None
        try:
            made = self._inflate.decompress(data, PIECE_BYTES)
        except zlib.error as error:
            raise LogFormatError(f"{self._path}: its compressed data: {error}") from None
        self._packed = self._inflate.unconsumed_tail
        return made


def modified_utf8(data: bytes) -> str:
    """Java's own UTF-8: zero in two bytes, characters beyond 16 bits as two surrogates."""
    try:
        text = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    except UnicodeError as error:
        raise LogFormatError(f"a name is no text: {error}") from None
