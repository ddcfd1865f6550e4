"""Which address of this host peers are told."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys

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
        return _of_interface(interface)
    return _facing(*towards)


def _of_interface(name: str) -> str:
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
