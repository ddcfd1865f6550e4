"""The addresses and ports of this host at which others reach it, as `[network]` of a job file says."""

from __future__ import annotations

import errno
import fcntl
import random
import socket
import struct
import sys

from howdah.wire.sockets import LISTEN_BACKLOG

_SIOCGIFADDR = 0x8915 if sys.platform == "linux" else 0xC0206921


class AddressError(Exception):
    """No address to advertise; the text says what to do."""


class NoInterface(AddressError):
    """The interface the job names is not there or has no address: waiting does not help."""


def advertised(host: str | None, interface: str | None, towards: tuple[str, int]) -> str:
    """The address peers are told: the one set, the interface's, or the one facing ``towards``.

    Raises:
        NoInterface: there is no such interface, or it has no address.
        AddressError: there is no way to ``towards``.
    """
    if host is not None:
        return host
    if interface is not None:
        return address_of(interface)
    return _facing(*towards)


def address_of(name: str) -> str:
    """The address of a network interface of this host.

    Raises:
        NoInterface: there is no such interface, or it has no address.
    """
    if name not in (known := [known for _, known in socket.if_nameindex()]):
        raise NoInterface(
            f"This host has no network interface {name!r} (`[network] interface`); it has "
            f"{', '.join(known)}"
        )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise NoInterface(
                f"The network interface {name!r} (`[network] interface`) has no IPv4 address: "
                f"{error}; set `[network] address` instead"
            ) from error
    return socket.inet_ntoa(answer[20:24])


def _facing(host: str, port: int) -> str:
    """The source address of packets to that host; nothing is sent."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port or 9))
        except OSError as error:
            raise AddressError(
                f"This host has no way to the coordinator at {host}: {error}; set "
                "`[network] address`"
            ) from error
        return str(probe.getsockname()[0])


def listening(host: str, ports: tuple[int, int] | None = None, wanted: int = 0) -> socket.socket:
    """A socket that listens on this host.

    Args:
        host: the address to listen on.
        ports: the first and last of the range its port is taken from, from a random place on; any, if
            None.
        wanted: a port to be tried before all others, such as a predecessor's.

    Raises:
        OSError: no port could be had; the text names the host and the ports.
    """
    problem: OSError | None = None
    for number in [wanted, *_numbers(ports)] if wanted else _numbers(ports):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # asyncio turns off the gathering of small writes (40 ms each) for what says that it is TCP.
        server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind((host, number))
            # Listening now, a port that is taken is found out here.
            server.listen(LISTEN_BACKLOG)
        except OSError as error:
            problem = error
            server.close()
            if error.errno == errno.EADDRNOTAVAIL:
                break
        else:
            return server
    raise _no_port(host, ports, problem)


def bind_within(server: socket.socket, host: str, ports: tuple[int, int] | None) -> None:
    """Bind a socket that already is in other hands to a port of the range, as `listening` chooses it.

    Raises:
        OSError: no port could be had; the text names the host and the ports.
    """
    problem: OSError | None = None
    for number in _numbers(ports):
        # Without SO_REUSEADDR: ports that others have bound and do not listen at yet are left alone.
        try:
            server.bind((host, number))
        except OSError as error:
            problem = error
            if error.errno == errno.EADDRNOTAVAIL:
                break
        else:
            return
    raise _no_port(host, ports, problem)


def _numbers(ports: tuple[int, int] | None) -> list[int]:
    low, high = ports or (0, 0)
    start = random.randrange(high - low + 1)
    return [*range(low + start, high + 1), *range(low, low + start)]


def _no_port(host: str, ports: tuple[int, int] | None, problem: OSError | None) -> OSError:
    among = f" from {ports[0]} to {ports[1]} (`[network] ports`)" if ports else ""
    return OSError(
        problem.errno if problem is not None else 0,
        f"No port{among} could be had at {host}: {problem}; free one or widen the range",
    )
