"""Who reads a team's portal, what they may, and the gate that lets them in.

A reverse proxy signs people in and says in a header who they are. It is believed from the proxy's
address alone; a request from anywhere else is refused, whatever it says.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from howdah.coordinator.web.security import SAFE_METHODS, Gate, Proof, Refusal, is_same_origin
from howdah.spec.model import Acl

NAME_MAX = 256
GROUPS_MAX = 500
ALL = "*"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class JobAcl(msgspec.Struct, frozen=True):
    """Whom a job belongs to, and whom it lets see and stop it."""

    owner: str = ""
    acl: Acl = Acl()

    def viewers(self) -> set[str]:
        """Who may see it, as `Reader.marks` has them."""
        return _marks(self.owner, self.acl.view, self.acl.view_groups)

    def modifiers(self) -> set[str]:
        """Who may stop it, if they may see it."""
        return _marks(self.owner, self.acl.modify, self.acl.modify_groups)


def _marks(owner: str, users: Sequence[str], groups: Sequence[str]) -> set[str]:
    names = {f"user:{name}" for name in (owner, *users) if name}
    return names | {f"group:{name}" for name in groups if name}


class Reader(msgspec.Struct, frozen=True):
    """Who reads."""

    name: str
    groups: tuple[str, ...] = ()
    is_admin: bool = False
    """They may see and stop every job."""

    def marks(self) -> list[str]:
        """What lets them see or stop a job."""
        return [f"user:{self.name}", f"user:{ALL}", *(f"group:{each}" for each in self.groups)]


MYSELF = Reader("", is_admin=True)
"""Who reads a portal of their own."""


class Team(msgspec.Struct, frozen=True, kw_only=True):
    """How readers are known."""

    user_header: str
    proxies: tuple[Network, ...]
    group_header: str | None = None
    """Names with commas between them."""
    admins: frozenset[str] = frozenset()

    def check_proxy(self, client: str) -> None:
        """Refuse a connection from anywhere but the proxy.

        Raises:
            Refusal: it is from elsewhere.
        """
        address = None
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(client)
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if address is None or not any(address in network for network in self.proxies):
            raise Refusal(
                403,
                "this portal answers its reverse proxy only (howdah portal --trusted-proxy), and "
                f"{client or 'this connection'} is not it",
            )

    def reader(self, headers: Mapping[str, str]) -> Reader:
        """Who the proxy says it is.

        Args:
            headers: by lower-case name.

        Raises:
            Refusal: it does not say, or not clearly.
        """
        # Not `strip()`: it takes bytes such as A0 for blanks, and another name for this one.
        name = headers.get(self.user_header.lower(), "").strip(" \t")
        if not name:
            raise Refusal(
                401,
                f"the reverse proxy did not say who reads: the header {self.user_header} is missing",
            )
        if "," in name or name == ALL or len(name) > NAME_MAX or not name.isprintable():
            raise Refusal(400, f"the header {self.user_header} does not name one user")
        given = "" if self.group_header is None else headers.get(self.group_header.lower(), "")
        groups = tuple(filter(None, (each.strip(" \t") for each in given.split(","))))
        if len(groups) > GROUPS_MAX:
            raise Refusal(
                400, f"the header {self.group_header} names more than {GROUPS_MAX} groups"
            )
        return Reader(name, groups, name in self.admins)


class TeamGate(Gate):
    """Lets in whom the proxy names.

    ``is_of_pages``: whether a ``Host`` is one for pages of jobs' tasks, at which the portal does not answer.
    """

    def __init__(
        self,
        identity: Any,
        clock: Callable[[], float],
        team: Team,
        is_of_pages: Callable[[str], bool] | None = None,
    ) -> None:
        # Names cannot be bound anew to reach it (rebinding): the proxy's address alone gets in.
        super().__init__(identity, (ALL,), clock)
        self._team = team
        self.once = frozenset(
            name.lower() for name in (team.user_header, team.group_header) if name is not None
        )
        self._is_of_pages = is_of_pages

    async def admit(
        self, headers: Mapping[str, str], method: str, *, stream: bool, client: str = ""
    ) -> Proof:
        """As `Gate.admit`; the proof is a reader's."""
        self._team.check_proxy(client)
        host = headers.get("host", "")
        if self._is_of_pages is not None and self._is_of_pages(host):
            raise Refusal(421, f"{host[:100]!r} has pages of jobs' tasks, and no portal")
        self._team.reader(headers)
        if method not in SAFE_METHODS and not is_same_origin(headers, strict=True):
            raise Refusal(
                403,
                f"this {method} does not come from the portal's own pages: its Origin is "
                f"{headers.get('origin', 'missing')[:100]!r}, and it was sent to "
                f"{headers.get('host', '')[:100]!r}",
            )
        return Proof.READER
