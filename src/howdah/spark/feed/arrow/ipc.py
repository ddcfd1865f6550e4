"""Arrow's IPC stream, read so that a body is received where it stays.

`pyarrow.ipc.open_stream` over a file object copies; here only a message's head is parsed (a length
out of its flatbuffer), the rest goes from the socket into aligned memory at once.
Source: https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable

import msgspec
import pyarrow as pa

from howdah.spark.errors import FeedError

ALIGNMENT = 64
"""Bytes: what Arrow recommends for a buffer's start, and gives its own."""
CONTINUATION = 0xFFFFFFFF
LARGEST_HEAD = 16 << 20
"""Bytes of a message's head, more than any schema needs."""

ReadInto = Callable[[memoryview], None]
"""Fills the whole view, or raises `EOFError` or `OSError`."""

_PREFIX = struct.Struct("<II")
_U16, _I32, _U32, _I64 = (struct.Struct(f"<{kind}") for kind in "HiIq")


class IpcKind(enum.Enum):
    """What a message holds: ``MessageHeader`` of Arrow's Message.fbs."""

    SCHEMA = 1
    DICTIONARY = 2
    RECORD_BATCH = 3


class Head(msgspec.Struct, frozen=True):
    """A message without its body."""

    kind: IpcKind
    metadata: bytes
    """As it came, with prefix and padding."""
    body: int
    """Bytes that follow."""


def read_head(read_into: ReadInto) -> Head | None:
    """The next message's head, or None at the end-of-stream mark.

    Raises:
        FeedError: this is no Arrow stream.
        EOFError, OSError: the connection ended.
    """
    prefix = bytearray(_PREFIX.size)
    read_into(memoryview(prefix))
    mark, size = _PREFIX.unpack(prefix)
    if mark != CONTINUATION:
        raise FeedError(
            f"The feeder sent {bytes(prefix)!r} where an Arrow message begins. Use the same "
            "version of howdah in Spark's executors and in the training processes"
        )
    if size == 0:
        return None
    if size > LARGEST_HEAD:
        raise FeedError(f"The feeder announced an Arrow message with a head of {size} bytes")
    metadata = bytearray(_PREFIX.size + size)
    metadata[: _PREFIX.size] = prefix
    read_into(memoryview(metadata)[_PREFIX.size :])
    try:
        kind, body = _message(metadata, _PREFIX.size)
        return Head(IpcKind(kind), bytes(metadata), body)
    except (struct.error, ValueError, IndexError) as error:
        raise FeedError(f"The feeder sent an Arrow message that cannot be read: {error}") from error


def _message(data: bytearray, base: int) -> tuple[int, int]:
    """Kind and body length of the flatbuffer ``Message`` that begins at ``base``."""
    table = base + _U32.unpack_from(data, base)[0]
    vtable = table - _I32.unpack_from(data, table)[0]
    slots = _U16.unpack_from(data, vtable)[0]

    def field(number: int) -> int:
        slot = 4 + 2 * number
        return _U16.unpack_from(data, vtable + slot)[0] if slot < slots else 0

    kind = data[table + field(1)] if field(1) else 0
    body = _I64.unpack_from(data, table + field(3))[0] if field(3) else 0
    if body < 0:
        raise ValueError(f"a body of {body} bytes")
    return kind, body


def read_schema(head: Head, read_into: ReadInto) -> pa.Schema:
    """The schema message: head and, where there is one, body.

    Raises:
        FeedError: it is none.
        EOFError, OSError: the connection ended.
    """
    if head.body > LARGEST_HEAD:
        raise FeedError(f"The feeder announced a schema of {head.body} bytes")
    body = bytearray(head.body)
    read_into(memoryview(body))
    try:
        return pa.ipc.read_schema(pa.py_buffer(head.metadata + body))
    except (pa.ArrowException, OSError) as error:
        raise FeedError(f"The feeder sent a schema that cannot be read: {error}") from error


def read_body(head: Head, read_into: ReadInto) -> pa.Buffer:
    """The whole message, body aligned."""
    size = len(head.metadata)
    pad = -size % ALIGNMENT
    buffer = pa.allocate_buffer(pad + size + head.body)
    view = memoryview(buffer).cast("B")
    view[pad : pad + size] = head.metadata
    read_into(view[pad + size :])
    return buffer.slice(pad, size + head.body)


def record_batch(message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The record batch of a message, looking at its memory."""
    return pa.ipc.read_record_batch(pa.ipc.read_message(message), schema)
