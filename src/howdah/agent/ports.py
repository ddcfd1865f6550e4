"""Ports for one attempt: no other program on this host gets them while the attempt lives.

A port is locked by ``flock`` on a file in this user's private folder (`howdah.storage.runtime`), for all
agents of the user, tested by binding it, and kept bound until just before the program starts, so
that no foreign program slips in while the gang gathers. A program that can share its port
(SO_REUSEPORT on both sides) may have it held on.

The locks are the user's alone: in a folder that all users share, anybody could keep everybody from
locking, and read there which ports are about to be used. Agents of different users choose from
thousands of ports by chance, and a port that another user's agent holds is found bound.

Not guaranteed: that a foreign program does not take the port in the moment between our letting go and
the program's own bind. `howdah.agent.outcome` finds that out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import math
import os
import random
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path

from howdah.storage import runtime
from howdah.storage.errors import is_transient

BASE = runtime.SHARED
"""Where the private folder is: the same for all of the user's agents, whatever their environment."""
_FOLDER = "ports"
_TRIES_FOR_FOLDER = 20


class PortsError(Exception):
    """The wanted ports can't be had; the text says what to do."""

    def __init__(self, text: str, *, transient: bool) -> None:
        """``transient``: see `howdah.storage.errors`."""
        super().__init__(text)
        self.transient = transient


class KeptPortTaken(PortsError):
    """A port the task must have again is held by another program."""

    def __init__(self, port: int) -> None:
        text = f"Port {port}, which the task had before and must have again, is taken by another"
        super().__init__(f"{text} program on this host", transient=True)
        self.port = port


class Lock:
    """A locked port. The lock ends with `release`, or with the process."""

    def __init__(self, port: int, descriptor: int, path: Path) -> None:
        self.port = port
        self._descriptor = descriptor
        self._path = path

    def release(self) -> None:
        """Give it back; twice is harmless."""
        if self._descriptor < 0:
            return
        # Removed while still locked: see `lock`.
        with contextlib.suppress(OSError):
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1
        with contextlib.suppress(OSError):
            self._path.parent.rmdir()
            self._path.parent.parent.rmdir()


def lock(port: int) -> Lock | None:
    """Lock that port, or None if another agent has it or its lock can't be had.

    Raises:
        PortsError: the folder for locks can't be used.
    """
    while True:
        path = _folder() / f"{port}.lock"
        descriptor = _open(path)
        if descriptor is None:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        try:
            # A lock on a file that its last owner has just removed is worth nothing.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return Lock(port, descriptor, path)
        except FileNotFoundError:
            pass
        os.close(descriptor)


def tidy(port: int) -> None:
    """Remove the lock file of an agent that died, unless another agent has the port by now."""
    with contextlib.suppress(PortsError):
        left = lock(port)
        if left is not None:
            left.release()


def folder() -> Path:
    """Where the locks are; it need not exist.

    Raises:
        OSError: there can be none.
    """
    return runtime.private_folder(BASE) / _FOLDER


def _folder() -> Path:
    try:
        return folder()
    except OSError as error:
        raise _unusable(error) from error


def _open(path: Path) -> int | None:
    """None if this file can't be opened; another port's may."""
    for _ in range(_TRIES_FOR_FOLDER):
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            try:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise _unusable(error) from error
        except OSError as error:
            if is_transient(error):
                raise _unusable(error) from error
            return None
    raise _unusable(FileNotFoundError(f"{path.parent} vanishes again and again"))


def _unusable(error: OSError) -> PortsError:
    text = f"Ports can't be locked: {error}. Make room for a folder of yours in {BASE}"
    return PortsError(text, transient=is_transient(error))


# -- reserving -----------------------------------------------------------------------------------


class Reservation:
    """The ports of one attempt."""

    def __init__(self) -> None:
        self._locks: list[Lock] = []
        self._held: list[socket.socket] = []

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(lock.port for lock in self._locks)

    def take(self, port: int, host: str, *, again: bool = False) -> bool:
        """Lock, test and hold one more port; false if it is not free.

        ``again``: it was the task's before, so remains of its own connections do not count.
        """
        lock_ = lock(port)
        if lock_ is None:
            return False
        if not is_free(port, host, again=again):
            lock_.release()
            return False
        self._locks.append(lock_)
        with contextlib.suppress(OSError):
            self._held.append(_hold(port))
        return True

    def let_go(self, but: int = 0) -> None:
        """Unbind, for the program to bind; the locks stay. The first so many stay bound, too."""
        for held in self._held[but:]:
            held.close()
        del self._held[but:]

    def release(self) -> None:
        self.let_go()
        for lock_ in self._locks:
            lock_.release()
        self._locks.clear()


def reserve(
    count: int,
    host: str,
    allowed: tuple[int, int],
    keep: Sequence[int] = (),
    chance: random.Random | None = None,
) -> Reservation:
    """``count`` ports on this host; with ``keep`` exactly those.

    Raises:
        KeptPortTaken: one of ``keep`` is taken.
        PortsError: not that many are free.
    """
    reservation = Reservation()
    try:
        for port in keep:
            if not reservation.take(port, host, again=True):
                raise KeptPortTaken(port)
        if len(reservation.ports) < count:
            _fill(reservation, count, host, allowed, chance or random.SystemRandom())
    except BaseException:
        reservation.release()
        raise
    return reservation


def _fill(
    reservation: Reservation, count: int, host: str, allowed: tuple[int, int], chance: random.Random
) -> None:
    for port in _candidates(allowed, chance):
        if port in reservation.ports:
            continue
        if reservation.take(port, host) and len(reservation.ports) >= count:
            return
    raise PortsError(
        f"Only {len(reservation.ports)} of {count} ports are free in {allowed[0]}-{allowed[1]} on "
        f"{host}; widen `[network] ports`",
        transient=allowed[1] - allowed[0] + 1 >= count,
    )


def _candidates(allowed: tuple[int, int], chance: random.Random) -> Iterator[int]:
    """Each port of the range once, first those the kernel does not give to outgoing connections."""
    first, last = allowed
    low, high = ephemeral_range()
    below, above = range(first, min(last + 1, low)), range(max(first, high + 1), last + 1)
    inside = range(max(first, low), min(last, high) + 1)
    yield from _in_random_order([below, above], chance)
    yield from _in_random_order([inside], chance)


def _in_random_order(ranges: Sequence[range], chance: random.Random) -> Iterator[int]:
    """All numbers of the ranges. Shuffling ten thousand takes longer than reserving a port."""
    total = sum(map(len, ranges))
    if total == 0:
        return
    step = chance.randrange(total) | 1
    while math.gcd(step, total) != 1:
        step += 2
    place = chance.randrange(total)
    for _ in range(total):
        place = (place + step) % total
        number = place
        for each in ranges:
            if number < len(each):
                yield each[number]
                break
            number -= len(each)


def ephemeral_range() -> tuple[int, int]:
    """Where the kernel takes the ports of outgoing connections from."""
    try:
        low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("utf-8").split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 49152, 65535  # IANA's range; macOS uses it


def is_free(port: int, host: str, *, again: bool = False) -> bool:
    """Whether a server could bind the port now, on ``host`` and on all addresses."""
    places = [(socket.AF_INET, "0.0.0.0")]  # noqa: S104 - a test, not a service
    if host not in ("", "0.0.0.0"):  # noqa: S104 - only compared
        places.append((socket.AF_INET6 if ":" in host else socket.AF_INET, host))
    if socket.has_ipv6:
        places.append((socket.AF_INET6, "::"))
    return all(_binds(family, address, port, again) for family, address in places)


def _binds(family: int, address: str, port: int, again: bool) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as test:
            if again:
                test.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                test.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            test.bind((address, port))
    except OSError as error:
        # The address may be one the host does not have itself (a load balancer's), or IPv6 off.
        return error.errno not in (errno.EADDRINUSE, errno.EACCES)
    return True


def _hold(port: int) -> socket.socket:
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if hasattr(socket, "SO_REUSEPORT"):
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("0.0.0.0", port))  # noqa: S104 - so that no other program can; never listens
    except OSError:
        held.close()
        raise
    return held
