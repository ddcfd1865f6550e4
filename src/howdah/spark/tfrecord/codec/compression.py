"""Compression of TFRecord files: none, gzip, zlib."""

from __future__ import annotations

import enum
import zlib
from typing import Any

from howdah.spark.tfrecord.codec.framing import HEAD_BYTES, head_is_right
from howdah.spark.tfrecord.errors import CorruptRecord, TFRecordError

_CHUNK_BYTES = 1024 * 1024
_GZIP_MAGIC = b"\x1f\x8b"


class Compression(enum.Enum):
    """How a file is packed."""

    NONE = "none"
    GZIP = "gzip"
    ZLIB = "zlib"
    """TensorFlow's ZLIB, Hadoop's DeflateCodec."""

    @property
    def suffix(self) -> str:
        """What a file's name ends with."""
        return {"none": "", "gzip": ".gz", "zlib": ".deflate"}[self.value]


_NAMES = {
    "": Compression.NONE,
    "none": Compression.NONE,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "gz": Compression.GZIP,
    "org.apache.hadoop.io.compress.gzipcodec": Compression.GZIP,
    "zlib": Compression.ZLIB,
    "deflate": Compression.ZLIB,
    "org.apache.hadoop.io.compress.deflatecodec": Compression.ZLIB,
    "org.apache.hadoop.io.compress.defaultcodec": Compression.ZLIB,
}


def named(name: str) -> Compression:
    """By the name TensorFlow, Spark or Hadoop has for it.

    Raises:
        TFRecordError: there is none of that name.
    """
    found = _NAMES.get(name.strip().lower())
    if found is None:
        raise TFRecordError(
            f"unknown compression {name!r}: none, gzip or zlib (deflate) can be read and written"
        )
    return found


def told_by(head: bytes) -> Compression:
    """What a file's first bytes say: a record's length with its checksum, or a magic number.

    Raises:
        CorruptRecord: neither.
    """
    if not head:
        return Compression.NONE
    if len(head) >= HEAD_BYTES and head_is_right(head, 0):
        return Compression.NONE
    if head.startswith(_GZIP_MAGIC):
        return Compression.GZIP
    if len(head) >= 2 and head[0] & 0x0F == 8 and int.from_bytes(head[:2], "big") % 31 == 0:
        return Compression.ZLIB
    if len(head) < HEAD_BYTES:
        raise CorruptRecord(
            f"the file ends after {len(head)} bytes: no record is so short", offset=0
        )
    raise CorruptRecord(
        "this is no TFRecord file: its first bytes are neither a record's length with the right"
        " checksum nor those of gzip or zlib",
        offset=0,
    )


class Unpacking:
    """What a packed stream unpacks to; gzip members behind one another are one stream."""

    def __init__(self, stream: Any, compression: Compression) -> None:
        self._stream = stream
        self._bits = _bits(compression)
        self._unpacker: Any = zlib.decompressobj(self._bits)
        self._begun = False
        self._packed = b""
        self._done = 0

    def read(self, size: int, /) -> bytes:
        """At most so many bytes; none at the end.

        Raises:
            CorruptRecord: the packed data is damaged or ends early.
        """
        while True:
            if self._unpacker.eof:
                self._packed = self._unpacker.unused_data or self._packed
                self._unpacker, self._begun = zlib.decompressobj(self._bits), False
            source = self._packed or self._stream.read(_CHUNK_BYTES)
            self._packed = b""
            if not source and not self._begun:
                return b""
            if not self._begun and not source.strip(b"\0"):
                continue  # zeros may follow a gzip member
            self._begun = True
            try:
                out = self._unpacker.decompress(source, size)
            except zlib.error as error:
                raise CorruptRecord(
                    f"the compressed data is damaged ({error}); it unpacks to this byte",
                    offset=self._done,
                ) from None
            if not self._unpacker.eof:
                self._packed = self._unpacker.unconsumed_tail
            if out:
                self._done += len(out)
                return out
            if not source and not self._unpacker.eof:
                raise CorruptRecord(
                    "the compressed file ends early: it unpacks to this byte and no further",
                    offset=self._done,
                )


class Compressor:
    """Packs what is written into anything with ``write``; `finish` must be called."""

    def __init__(self, stream: Any, compression: Compression) -> None:
        self._stream = stream
        self._packer = None
        if compression is not Compression.NONE:
            self._packer = zlib.compressobj(wbits=_bits(compression))

    def write(self, data: bytes) -> None:
        """Add so much."""
        packed = data if self._packer is None else self._packer.compress(data)
        if packed:
            self._stream.write(packed)

    def finish(self) -> None:
        """Write what is still held back. The stream below stays open."""
        if self._packer is not None:
            self._stream.write(self._packer.flush())


def _bits(compression: Compression) -> int:
    return zlib.MAX_WBITS + (16 if compression is Compression.GZIP else 0)
