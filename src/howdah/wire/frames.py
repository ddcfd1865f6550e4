"""Frames: a 4-byte big-endian length and that many bytes of msgpack. No I/O.

The format is described in `howdah.wire.messages`.
"""

from __future__ import annotations

import struct
from typing import Any, Generic, TypeVar

import msgspec

from howdah.wire.decoders import message_decoder
from howdah.wire.messages import MAX_FRAME

T = TypeVar("T")

_HEADER = struct.Struct(">I")
HEADER_BYTES = _HEADER.size

_encoder = msgspec.msgpack.Encoder()


class FrameError(ValueError):
    """Bytes that are no frame of ours, or a message that does not fit one."""


def encode(message: msgspec.Struct, max_frame: int = MAX_FRAME) -> bytes:
    """The message as one frame.

    Raises:
        FrameError: its body is larger than ``max_frame`` bytes, which the peer would refuse, or
            it holds what msgpack can't (a string that is no Unicode, a number above 64 bits).
    """
    frame = bytearray(HEADER_BYTES)
    try:
        _encoder.encode_into(message, frame, HEADER_BYTES)
    except (TypeError, ValueError, OverflowError) as error:
        name = type(message).__name__
        raise FrameError(f"A {name} message can't be put into a frame: {error}") from error
    length = len(frame) - HEADER_BYTES
    if length > max_frame:
        raise FrameError(
            f"A {type(message).__name__} message of {length} bytes exceeds the limit of"
            f" {max_frame} bytes a frame; send it in parts"
        )
    _HEADER.pack_into(frame, 0, length)
    return bytes(frame)


class FrameDecoder(Generic[T]):
    """Bytes in, messages out, however the bytes were cut up on their way.

    It never holds more than one frame and one piece of input. After a `FrameError` the stream
    can't be trusted any more: the decoder stays failed, its connection is to be closed.
    """

    def __init__(self, types: Any, max_frame: int = MAX_FRAME) -> None:
        """``types`` is the message type, or union of types, that may come."""
        self._decode = message_decoder(types).decode
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._failed: str | None = None

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame held."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[T]:
        """The messages that ``data`` completes, in order.

        Raises:
            FrameError: a frame announces more than the limit, or is not one of the expected
                messages. Messages before the bad frame in the same call are dropped with it.
        """
        if self._failed is not None:
            raise FrameError(self._failed)
        try:
            return self._feed(data)
        except FrameError as error:
            self._failed = str(error)
            self._buffer = bytearray()
            raise

    def _feed(self, data: bytes | bytearray | memoryview) -> list[T]:
        buffer = self._buffer
        if buffer:
            buffer += data
            source = memoryview(buffer)
        else:
            # The common case, whole frames in one read: nothing is copied.
            source = memoryview(data)
        messages: list[T] = []
        start, end = 0, len(source)
        try:
            while end - start >= HEADER_BYTES:
                (length,) = _HEADER.unpack_from(source, start)
                if length > self._max_frame:
                    raise FrameError(
                        f"A frame announces {length} bytes, more than the limit of"
                        f" {self._max_frame}; the peer does not speak this protocol"
                    )
                stop = start + HEADER_BYTES + length
                if stop > end:
                    break
                messages.append(self._message(source[start + HEADER_BYTES : stop]))
                start = stop
            if buffer:
                rest = None
            else:
                rest = bytes(source[start:])
        finally:
            source.release()
        if rest is None:
            del buffer[:start]
        elif rest:
            buffer += rest
        return messages

    def _message(self, body: memoryview) -> T:
        try:
            with body:
                return self._decode(body)
        except Exception as error:
            # Whatever an unknown peer's bytes make the decoder raise (also RecursionError from deep
            # nesting, MemoryError from a huge announced size) is that peer's fault.
            raise FrameError(f"A frame is not a message expected here: {error}") from error
