"""Choosing among the ways to authenticate that a server offers."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Callable, Iterable
from typing import Protocol

from howdah.hadoop.errors import AuthenticationError
from howdah.hadoop.protos import common
from howdah.hadoop.security.digest import DigestMd5, Layer
from howdah.hadoop.security.identity import Identity
from howdah.hadoop.security.names import Principal

_HOST = "_HOST"


class Mechanism(Protocol):
    """One authentication, client side. Its calls may wait for other servers (a KDC)."""

    def initial(self) -> bytes:
        """The first token, where the server did not begin."""
        ...

    def evaluate(self, challenge: bytes) -> bytes:
        """The answer to a challenge; `AuthenticationError` if it can't be given."""
        ...

    def finish(self, token: bytes) -> None:
        """Check what the server sent with its success; `AuthenticationError` if it is wrong."""
        ...

    @property
    def layer(self) -> Layer | None:
        """What protects the connection afterwards; None if nothing does."""
        ...


def choose(
    identity: Identity, offered: Iterable[common.RpcSaslProto.SaslAuth]
) -> common.RpcSaslProto.SaslAuth:
    """The first offer that can be taken, in the server's order as Hadoop's client does.

    Raises:
        AuthenticationError: none can.
    """
    names: list[str] = []
    for auth in offered:
        names.append(f"{auth.method}/{auth.mechanism}" if auth.mechanism else auth.method)
        if auth.method == "TOKEN" and identity.token and auth.mechanism == "DIGEST-MD5":
            return auth
        if auth.method == "KERBEROS" and identity.kerberos and auth.mechanism == "GSSAPI":
            return auth
        if auth.method == "SIMPLE" and identity.allow_simple:
            return auth
    have = [
        name
        for name, usable in (
            ("a token", identity.token is not None),
            ("Kerberos", identity.kerberos),
            ("no proof at all (SIMPLE)", identity.allow_simple),
        )
        if usable
    ]
    raise AuthenticationError(
        f"the server takes {', '.join(names) or 'nothing'}; here there is {' and '.join(have)}"
    )


def mechanism(
    identity: Identity, auth: common.RpcSaslProto.SaslAuth, hosts: Callable[[], Iterable[str]]
) -> Mechanism:
    """The mechanism of an offer that was chosen; ``hosts`` tells the server's names, the one in the
    configuration first. A name service may be asked for the next.

    Raises:
        AuthenticationError: Kerberos was chosen, and is not usable here, or not for this server.
    """
    if auth.method == "TOKEN" and identity.token is not None:
        uri = f"{auth.protocol}/{auth.serverId}"
        return DigestMd5(identity.token.identifier, identity.token.password, uri, identity.qops)
    server = server_principal(identity, f"{auth.protocol}/{auth.serverId}", hosts)
    from howdah.hadoop.security.kerberos import Gssapi

    return Gssapi(server, identity.qops, identity.credential)


def server_principal(
    identity: Identity, claimed: str, hosts: Callable[[], Iterable[str]]
) -> Principal:
    """Who the server must prove to be, if what it says it is suits the configuration.

    Without this any service with a Kerberos key could pass for any other
    (``SaslRpcClient.getServerPrincipal``). The realm is the configured one: the KDC gives no ticket
    for a principal of another.

    Raises:
        AuthenticationError: they differ, or the configuration says nothing.
    """
    configured = Principal.parse(identity.server_principal) if identity.server_principal else None
    realm = configured.realm if configured is not None else ""
    if identity.server_pattern:
        # It is compared with the whole name; of the pattern's realm only a plain one can be asked for.
        name, _, wanted_realm = identity.server_pattern.partition("@")
        plain = wanted_realm if not set("*?[{") & set(wanted_realm) else realm
        if fnmatch.fnmatchcase(claimed, name):
            return dataclasses.replace(Principal.parse(claimed), realm=plain)
        raise AuthenticationError(
            f"the server says it is {claimed!r}, but the configuration wants"
            f" {identity.server_pattern!r} (a property that ends in .principal.pattern)"
        )
    if configured is None:
        raise AuthenticationError(
            "the configuration does not name the server's Kerberos principal (a property such as"
            " yarn.resourcemanager.principal or dfs.namenode.kerberos.principal)"
        )
    wanted: list[str] = []
    for host in hosts() if configured.second == _HOST else (configured.second,):
        wanted.append(f"{configured.first}/{host.lower() if configured.second == _HOST else host}")
        if claimed == wanted[-1]:
            return dataclasses.replace(Principal.parse(claimed), realm=realm)
    raise AuthenticationError(
        f"the server says it is {claimed!r}, but the configuration wants"
        f" {' or '.join(map(repr, dict.fromkeys(wanted)))} ({identity.server_principal})"
    )


def check_simple(identity: Identity) -> None:
    """A server asks for no proof.

    Raises:
        AuthenticationError: that is not accepted.
    """
    if not identity.allow_simple:
        raise AuthenticationError(
            "the server asks for no authentication, but the configuration demands Kerberos; set"
            " ipc.client.fallback-to-simple-auth-allowed if that is meant"
        )
