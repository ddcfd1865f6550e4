"""The kernel's tables of TCP sockets, as Linux shows them in /proc/net/tcp and tcp6."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

ESTABLISHED = b"01"
SYN_RECEIVED = b"03"
LISTEN = b"0A"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")

End = tuple[bytes, int]
"""A packed address and a port."""


class SocketRow(NamedTuple):
    """One socket."""

    local: End
    remote: End
    state: bytes
    uid: int
    """User of the process that made it; 0 where no process has it any more, or not yet."""
    inode: int
    """0 where no process has it any more, or not yet."""


def tables() -> Iterator[bytes]:
    """Both tables as they are now; those that cannot be read are left out."""
    for path in _TABLES:
        try:
            with open(path, "rb") as file:
                yield file.read()
        except OSError:
            continue


def rows(table: bytes, port: int) -> Iterator[SocketRow]:
    """Sockets with that port at either end: the table of a busy host has thousands of others."""
    part = b":%04X " % port
    place = table.find(part)
    while place >= 0:
        start = table.rfind(b"\n", 0, place) + 1
        end = table.find(b"\n", place)
        if end < 0:
            end = len(table)
        fields = table[start:end].split()
        if len(fields) > 9 and b":" in fields[1] and b":" in fields[2]:
            local, remote = _end(fields[1]), _end(fields[2])
            yield SocketRow(local, remote, fields[3], int(fields[7]), int(fields[9]))
        place = table.find(part, end)


def listening_at(ports: Iterable[int]) -> list[SocketRow]:
    """Sockets that listen on these ports, on whatever address."""
    return [
        row
        for table in tables()
        for port in ports
        for row in rows(table, port)
        if row.state == LISTEN and row.local[1] == port
    ]


def _end(field: bytes) -> End:
    """``0100007F:1F90`` as packed address and port. The kernel prints words in host order."""
    address, port = field.split(b":")
    words = [int(address[i : i + 8], 16) for i in range(0, len(address), 8)]
    raw = b"".join(struct.pack("=I", word) for word in words)
    return _unmapped(raw), int(port, 16)


def packed(host: str) -> bytes:
    """A numeric address in network order; empty for a name."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return _unmapped(socket.inet_pton(family, host))
    except OSError:
        return b""


def _unmapped(raw: bytes) -> bytes:
    """IPv4 in IPv6 clothes (::ffff:10.0.0.1) as IPv4."""
    return raw[12:] if raw.startswith(b"\0" * 10 + b"\xff\xff") and len(raw) == 16 else raw
