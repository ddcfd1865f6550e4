"""Whose a TCP socket of this machine is, by the kernel's tables.

A port says nothing of who serves it: any user of the machine may listen on one that is free for a
moment. What a page's reader sends, and the secret that goes with it, is for the task alone.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Collection

from howdah.agent.host.processes import HAS_PROC, socket_inodes
from howdah.agent.host.tcp_table import (
    ESTABLISHED,
    SYN_RECEIVED,
    SocketRow,
    listening_at,
    packed,
    rows,
    tables,
)

_ANY = (b"\0" * 4, b"\0" * 16)


def listeners(host: str, port: int) -> list[SocketRow]:
    """The sockets that get connections to a numeric address, as Linux chooses among them: those bound
    to the very address, else to all IPv4 addresses, else to all (``__inet_lookup_listener``)."""
    found = listening_at((port,))
    for address in (packed(host), *_ANY):
        if chosen := [row for row in found if row.local[0] == address]:
            return chosen
    return []


def serves(pids: Callable[[], Collection[int]], host: str, port: int) -> bool:
    """Whether connections to that numeric address get to these processes and to no others."""
    if not HAS_PROC:
        return _serves_portably(pids(), port)
    inodes = {row.inode for row in listeners(host, port)}
    return bool(inodes) and inodes <= socket_inodes(pids())


def _serves_portably(pids: Collection[int], port: int) -> bool:
    from howdah.agent.host.portable import connections

    return any(listens and own == port for own, _, _, listens in connections(pids))


def far_uid(near: socket.socket) -> int | None:
    """The user at the other end of a connection inside this machine.

    None where the other end is on another machine, is closed, or the system does not tell.
    """
    if not can_be_told(near):
        return None
    try:
        ours, theirs = near.getsockname()[:2], near.getpeername()[:2]
    except OSError:
        return None
    ends = (packed(theirs[0]), theirs[1]), (packed(ours[0]), ours[1])
    for table in tables():
        for row in rows(table, theirs[1]):
            if (row.local, row.remote) == ends:
                if row.inode:
                    return row.uid
                if row.state in (ESTABLISHED, SYN_RECEIVED):
                    # Not accepted yet: it is the listener's.
                    uids = {each.uid for each in listeners(*theirs)}
                    return uids.pop() if len(uids) == 1 else None
    return None


def can_be_told(near: socket.socket) -> bool:
    """Whether the other end is on this machine, and the system tells whose it is while there is one:
    who has hung up already is nobody."""
    try:
        ours, theirs = near.getsockname()[0], near.getpeername()[0]
    except OSError:
        return HAS_PROC
    return HAS_PROC and (ours == theirs or ipaddress.ip_address(theirs).is_loopback)
