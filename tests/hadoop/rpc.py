"""Hadoop RPC by hand, for the few orders that no REST interface takes.

The product has a whole client (`howdah.hadoop`); the cluster that tests it must not depend on it.
One call, one connection, no security. Framing: Hadoop's ``RpcHeader.proto`` and
``IpcConnectionContext.proto``; version 9.
"""

from __future__ import annotations

import secrets
import socket

from tests.hadoop.errors import ClusterError

_PROTOCOL_BUFFERS, _FINAL_PACKET, _CONTEXT, _NO_RETRY = 2, 0, -3, -1
_BY_USER = 0
_LEAVE_SAFE_MODE, _ENTER_SAFE_MODE = 1, 2


def become_active(port: int, user: str) -> None:
    """HAServiceProtocol.transitionToActive of the daemon behind that admin port."""
    _change_state(port, user, "transitionToActive")


def become_standby(port: int, user: str) -> None:
    """HAServiceProtocol.transitionToStandby."""
    _change_state(port, user, "transitionToStandby")


def set_safe_mode(port: int, user: str, *, on: bool) -> None:
    """ClientProtocol.setSafeMode of the NameNode: with it on, nothing can be written."""
    action = _ENTER_SAFE_MODE if on else _LEAVE_SAFE_MODE
    _call(
        port,
        user,
        protocol="org.apache.hadoop.hdfs.protocol.ClientProtocol",
        method="setSafeMode",
        request=_number(1, action),
    )


def _change_state(port: int, user: str, method: str) -> None:
    _call(
        port,
        user,
        protocol="org.apache.hadoop.ha.HAServiceProtocol",
        method=method,
        request=_bytes(1, _number(1, _BY_USER)),
    )


def _call(port: int, user: str, *, protocol: str, method: str, request: bytes) -> None:
    """Raises OSError if nobody answers, ClusterError with Hadoop's words if it refuses."""
    client = secrets.token_bytes(16)
    context = _bytes(2, _bytes(1, user.encode())) + _bytes(3, protocol.encode())
    called = _bytes(1, method.encode()) + _bytes(2, protocol.encode()) + _number(3, 1)
    with socket.create_connection(("127.0.0.1", port), timeout=120) as connection:
        connection.sendall(b"hrpc\x09\x00\x00")
        connection.sendall(_frame(_header(_CONTEXT, client), context))
        connection.sendall(_frame(_header(0, client), called, request))
        with connection.makefile("rb") as stream:
            length = int.from_bytes(stream.read(4))
            answer = stream.read(length)
    if not answer:
        raise ConnectionError("the server, which may be starting, closed the connection")
    header = _delimited(answer)
    status = header.get(2, 0)
    if status != 0:
        name, text = header.get(4, b""), header.get(5, b"")
        raise ClusterError(f"{method} was refused: {name!r}: {text!r}")


def _header(call: int, client: bytes) -> bytes:
    return (
        _number(1, _PROTOCOL_BUFFERS)
        + _number(2, _FINAL_PACKET)
        + _number(3, _signed(call))
        + _bytes(4, client)
        + _number(5, _signed(_NO_RETRY))
    )


def _frame(*messages: bytes) -> bytes:
    body = b"".join(_varint(len(each)) + each for each in messages)
    return len(body).to_bytes(4) + body


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _signed(value: int) -> int:
    """Zigzag, of a 32-bit number."""
    return (value << 1) ^ (value >> 31)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _delimited(data: bytes) -> dict[int, int | bytes]:
    """The fields of the first message of an answer: numbers and byte strings only."""
    length, at = _read_varint(data, 0)
    end = at + length
    fields: dict[int, int | bytes] = {}
    while at < end:
        key, at = _read_varint(data, at)
        value, at = _read_varint(data, at)
        if key & 7 == 2:
            fields[key >> 3] = data[at : at + value]
            at += value
        else:
            fields[key >> 3] = value
    return fields


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at
