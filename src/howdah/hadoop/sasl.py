"""Choosing among the ways to authenticate that a server offers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from howdah.hadoop.digest import DigestMd5, Layer
from howdah.hadoop.errors import AuthenticationError
from howdah.hadoop.identity import Identity
from howdah.hadoop.protos import common


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


def mechanism(identity: Identity, auth: common.RpcSaslProto.SaslAuth, host: str) -> Mechanism:
    """The mechanism of an offer that was chosen; ``host`` is the server's name.

    Raises:
        AuthenticationError: Kerberos was chosen, and is not usable here, or not for this server.
    """
    if auth.method == "TOKEN" and identity.token is not None:
        uri = f"{auth.protocol}/{auth.serverId}"
        return DigestMd5(identity.token.identifier, identity.token.password, uri, identity.qops)
    check_principal(identity.server_principal, f"{auth.protocol}/{auth.serverId}", host)
    from howdah.hadoop.kerberos import Gssapi

    return Gssapi(auth.protocol, auth.serverId, identity.qops)


def check_principal(configured: str, claimed: str, host: str) -> None:
    """Compare what a server says it is with what the configuration says it must be.

    Without this any service with a Kerberos key could pass for any other
    (``SaslRpcClient.getServerPrincipal``).

    Raises:
        AuthenticationError: they differ, or the configuration says nothing.
    """
    wanted = configured.partition("@")[0].replace("_HOST", host.lower())
    if not wanted:
        raise AuthenticationError(
            "the configuration does not name the server's Kerberos principal (a property such as"
            " yarn.resourcemanager.principal or dfs.namenode.kerberos.principal)"
        )
    if claimed != wanted:
        raise AuthenticationError(
            f"the server says it is {claimed!r}, but the configuration wants {wanted!r}"
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
