"""Frames of Hadoop's RPC, version 9, as bytes in and out. No I/O.

A frame is a 4-byte big-endian length and that many bytes: messages, each after its own length as
a varint. A request is header, request header and request; a response is header and message.
Source: ``org.apache.hadoop.ipc.Server`` and ``Client``, ``RpcConstants``, and the protocol
description in ``RpcHeader.proto``.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import NamedTuple

from google.protobuf.message import DecodeError, Message

from howdah.hadoop.errors import ProtocolError, RemoteError, remote_error
from howdah.hadoop.protos import common

VERSION = 9
AUTH_NONE = 0x00
AUTH_SASL = 0xDF

CALL_CONNECTION_CONTEXT = -3
CALL_PING = -4
CALL_SASL = -33
RETRY_INVALID = -1  # what special calls carry

_LENGTH = struct.Struct(">I")
_FOREIGN = {
    b"HTTP": "this is a web server's answer: the port is a web port, not an RPC port",
    b"\x15\x03\x03\x00": "this is a TLS alert: the port expects TLS",
    b"\x15\x03\x01\x00": "this is a TLS alert: the port expects TLS",
}


def connection_header(auth: int) -> bytes:
    """The first bytes a client sends: magic, version, service class, kind of authentication."""
    return b"hrpc" + bytes((VERSION, 0, auth))


def varint(value: int) -> bytes:
    """A length as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A length and where the next byte after it is.

    Raises:
        ProtocolError: the bytes end within it, or it has more than 5 bytes.
    """
    value = shift = 0
    while shift < 35:
        if at >= len(data):
            raise ProtocolError("a frame ends within a message's length")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ProtocolError("a message's length has more than 32 bits")


def frame(*messages: Message) -> bytes:
    """Messages as one frame."""
    parts: list[bytes] = []
    for message in messages:
        data = message.SerializeToString()
        parts += (varint(len(data)), data)
    body = b"".join(parts)
    return _LENGTH.pack(len(body)) + body


def special_frame(call_id: int, client_id: bytes, *messages: Message) -> bytes:
    """A frame that is no call: connection context, SASL, ping."""
    header = common.RpcRequestHeaderProto(
        rpcKind=common.RpcKindProto.RPC_PROTOCOL_BUFFER,
        rpcOp=common.RpcRequestHeaderProto.OperationProto.RPC_FINAL_PACKET,
        callId=call_id,
        clientId=client_id,
        retryCount=RETRY_INVALID,
    )
    return frame(header, *messages)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call as it goes over the wire.

    ``call_id`` and the client's id name the call for ever: a server with a cache of answers
    recognises it when it comes again with a larger ``retry``.
    """

    call_id: int
    protocol: str
    method: str
    request: Message
    protocol_version: int = 1
    retry: int = 0

    def frame(self, client_id: bytes) -> bytes:
        """The bytes to send."""
        header = common.RpcRequestHeaderProto(
            rpcKind=common.RpcKindProto.RPC_PROTOCOL_BUFFER,
            rpcOp=common.RpcRequestHeaderProto.OperationProto.RPC_FINAL_PACKET,
            callId=self.call_id,
            clientId=client_id,
            retryCount=self.retry,
        )
        what = common.RequestHeaderProto(
            methodName=self.method,
            declaringClassProtocolName=self.protocol,
            clientProtocolVersion=self.protocol_version,
        )
        return frame(header, what, self.request)


class Response(NamedTuple):
    """One answer: the message's bytes, or the error in its place."""

    call_id: int
    body: bytes
    error: RemoteError | None
    fatal: bool
    """The server closes the connection after this."""


def parse_response(data: bytes) -> Response:
    """The answer in a frame (without its length).

    Raises:
        ProtocolError: it is none.
    """
    header_bytes, at = _delimited(data, 0)
    try:
        header = common.RpcResponseHeaderProto.FromString(header_bytes)
    except DecodeError as error:
        raise ProtocolError(f"a frame does not begin with a response's header: {error}") from None
    # callId is an unsigned field that carries negative numbers.
    call_id = header.callId - (1 << 32) if header.callId >= 1 << 31 else header.callId
    statuses = common.RpcResponseHeaderProto.RpcStatusProto
    if header.status != statuses.SUCCESS:
        error = remote_error(header.exceptionClassName, header.errorMsg)
        return Response(call_id, b"", error, header.status == statuses.FATAL)
    body = _delimited(data, at)[0] if at < len(data) else b""
    return Response(call_id, body, None, False)


def _delimited(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = read_varint(data, at)
    if at + length > len(data):
        raise ProtocolError(f"a frame of {len(data)} bytes announces a message of {length} bytes")
    return data[at : at + length], at + length


class FrameReader:
    """Bytes in, frames out, however the bytes were cut up on their way."""

    def __init__(self, max_bytes: int) -> None:
        """``max_bytes`` is what one frame may have."""
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._first = True

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame held."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames (without lengths) that ``data`` completes.

        Raises:
            ProtocolError: a frame is larger than allowed, or the server is none of Hadoop's.
        """
        self._buffer += data
        frames: list[bytes] = []
        at, end = 0, len(self._buffer)
        while end - at >= 4:
            start = bytes(self._buffer[at : at + 4])
            if self._first and start in _FOREIGN:
                raise ProtocolError(_FOREIGN[start])
            (length,) = _LENGTH.unpack(start)
            if length > self._max_bytes:
                raise ProtocolError(
                    f"the server announces an answer of {length} bytes, more than the"
                    f" {self._max_bytes} allowed (ipc.maximum.response.length)"
                )
            self._first = False
            if end - at - 4 < length:
                break
            frames.append(bytes(self._buffer[at + 4 : at + 4 + length]))
            at += 4 + length
        del self._buffer[:at]
        return frames
