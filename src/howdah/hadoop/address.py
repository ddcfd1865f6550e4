"""Where a server listens."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """A host (name or IP address, IPv6 without brackets) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, default_port: int | None = None) -> Address:
        """``host:port``, ``[v6]:port``, or ``host`` alone where there is a default port.

        Raises:
            ValueError: it is none of them, with the text in the message.
        """
        host, port_text = text.strip(), ""
        if host.startswith("["):
            host, closing, rest = host[1:].partition("]")
            port_text = rest.removeprefix(":")
            if not closing or (rest and not rest.startswith(":")):
                raise ValueError(f"{text!r} is not host:port")
        elif host.count(":") == 1:
            host, _, port_text = host.partition(":")
        if not host:
            raise ValueError(f"{text!r} names no host")
        if not port_text and default_port is not None:
            return cls(host, default_port)
        if not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) < 65536):
            raise ValueError(f"{text!r} has no port between 1 and 65535")
        return cls(host, int(port_text))
