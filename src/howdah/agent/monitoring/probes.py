"""Has a program found its peers? Read from the kernel's socket tables; nothing is sent.

Proof is that a process of the attempt has bound one of the ports reserved for it, or holds an
established connection to an address reserved for a peer. The tables are the host's: a socket counts
only if one of the attempt's own processes has it open. They list no socket that is bound but does
not listen (LightGBM's, while it waits for a peer): those are asked for their port one by one.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Collection, Iterable, Iterator

from howdah.agent.host.processes import HAS_PROC, socket_inodes
from howdah.agent.host.tcp_table import ESTABLISHED, LISTEN, listening_at, packed, rows, tables

Address = tuple[str, int]


def joined(
    pids: Callable[[], Collection[int]], own_ports: Collection[int], peers: Collection[Address]
) -> bool:
    """Whether these processes have found their peers.

    Args:
        pids: gives the attempt's processes.
        own_ports: ports reserved for the attempt.
        peers: numeric addresses and ports reserved for the others.
    """
    if _seen(pids, own_ports, peers):
        return True
    return HAS_PROC and any(port in own_ports for pid in pids() for port in bound_ports(pid))


def _seen(
    pids: Callable[[], Collection[int]], own_ports: Collection[int], peers: Collection[Address]
) -> bool:
    """Whether the kernel's tables show a listener or a connection of these processes."""
    if not HAS_PROC:
        return _joined_portably(pids(), own_ports, peers)
    candidates: set[int] = set()
    for table in tables():
        candidates |= listening(table, own_ports)
        candidates |= connected(table, peers)
    return bool(candidates) and not candidates.isdisjoint(socket_inodes(pids()))


def foreign_owners(pids: Callable[[], Collection[int]], ports: Collection[int]) -> dict[int, int]:
    """Who else listens on these ports, as ``{port: uid}``: neither this user, nor one whom a process of
    the attempt runs as. Nobody where the kernel does not tell."""
    if not HAS_PROC:
        return {}
    found = {row.local[1]: row.uid for row in listening_at(ports) if row.uid != os.getuid()}
    if not found:
        return found
    own: set[int] = set()
    for pid in pids():
        with contextlib.suppress(OSError):
            own.add(os.stat(f"/proc/{pid}").st_uid)  # noqa: PTH116
    return {port: uid for port, uid in found.items() if uid not in own}


def user(uid: int) -> str:
    """``mallory (uid 1001)``."""
    import pwd

    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


_PIDFD_GETFD = 438
"""System call number, the same on every architecture (pidfd_getfd(2), Linux 5.6)."""


def bound_ports(pid: int) -> Iterator[int]:
    """Local ports of a process's sockets, listening or not; none where the kernel does not tell."""
    import ctypes

    system_call = ctypes.CDLL(None).syscall
    try:
        handle = os.pidfd_open(pid)
    except (OSError, AttributeError):
        return
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            try:
                target = os.readlink(entry.path)  # noqa: PTH115
            except FileNotFoundError:
                continue  # closed while we looked: the rest are still to be told
            if not target.startswith("socket:"):
                continue
            copy = system_call(_PIDFD_GETFD, handle, int(entry.name), 0)
            if copy < 0:
                continue
            try:
                twin = socket.socket(fileno=copy)
            except OSError:  # of a kind Python does not know
                os.close(copy)
                continue
            with twin:
                if twin.family in (socket.AF_INET, socket.AF_INET6):
                    yield twin.getsockname()[1]
    except OSError:
        return  # the process ended, or is not ours to look into
    finally:
        os.close(handle)


def listening(table: bytes, ports: Collection[int]) -> set[int]:
    """Inodes of sockets that listen on one of these ports, on whatever address.

    ``table`` is the content of /proc/net/tcp or tcp6.
    """
    found: set[int] = set()
    for port in ports:
        found |= {
            row.inode for row in rows(table, port) if row.state == LISTEN and row.local[1] == port
        }
    return found


def connected(table: bytes, peers: Collection[Address]) -> set[int]:
    """Inodes of sockets with an established connection to one of these addresses."""
    found: set[int] = set()
    wanted = {(packed(host), port) for host, port in peers}
    for port in {port for _, port in peers}:
        found |= {
            row.inode
            for row in rows(table, port)
            if row.state == ESTABLISHED and row.remote in wanted
        }
    return found


def _joined_portably(
    pids: Iterable[int], own_ports: Collection[int], peers: Collection[Address]
) -> bool:
    from howdah.agent.host.portable import connections

    wanted = set(peers)
    return any(
        (listens and port in own_ports) or (host.removeprefix("::ffff:"), remote) in wanted
        for port, host, remote, listens in connections(pids)
    )
