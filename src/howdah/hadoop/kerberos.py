"""Kerberos (GSSAPI) as SASL has it (RFC 4752), client side, through the `gssapi` package.

The package and a ticket (``kinit``, or ``KRB5_CLIENT_KTNAME`` with a keytab) are needed only on
clusters that ask for Kerberos; nothing is imported before.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

from howdah.hadoop.digest import QOPS, Layer
from howdah.hadoop.errors import AuthenticationError

_BITS = {"auth": 1, "auth-int": 2, "auth-conf": 4}
_OVERHEAD = 1024  # more than a wrap token adds


class Gssapi:
    """One authentication with the user's Kerberos ticket."""

    name = "GSSAPI"

    def __init__(self, service: str, host: str, qops: tuple[str, ...] = QOPS) -> None:
        """``service`` and ``host`` are the parts of the server's principal.

        Raises:
            AuthenticationError: the package is missing, or there is no ticket.
        """
        try:
            import gssapi
        except ImportError as error:
            raise AuthenticationError(
                "the server asks for Kerberos, and the package gssapi is not installed:"
                " pip install 'howdah[kerberos]'"
            ) from error
        self._errors: Any = gssapi.exceptions.GSSError
        self._qops = qops
        self._qop = ""
        self._max_bytes = 65536
        name = gssapi.Name(f"{service}@{host}", gssapi.NameType.hostbased_service)
        flags = (
            gssapi.RequirementFlag.mutual_authentication
            | gssapi.RequirementFlag.integrity
            | gssapi.RequirementFlag.confidentiality
        )
        try:
            self._context: Any = gssapi.SecurityContext(
                name=name, flags=flags, usage="initiate", mech=gssapi.MechType.kerberos
            )
        except self._errors as error:
            raise self._failed(error) from error

    def initial(self) -> bytes:
        """The first token to the server."""
        return self._step(None)

    def evaluate(self, challenge: bytes) -> bytes:
        """The answer to the server's next token."""
        if not self._context.complete:
            return self._step(challenge)
        return self._security_layer(challenge)

    def finish(self, token: bytes) -> None:
        """Nothing is left to check: the exchange was mutual.

        Raises:
            AuthenticationError: the server says it is done before it was.
        """
        if not self._context.complete or not self._qop:
            raise AuthenticationError("the server ended the Kerberos exchange too early")

    @property
    def layer(self) -> Layer | None:
        """What protects the connection from now on."""
        if self._qop in ("", "auth"):
            return None
        return _GssapiLayer(self._context, self._qop == "auth-conf", self._max_bytes)

    def _step(self, token: bytes | None) -> bytes:
        try:
            return self._context.step(token) or b""
        except self._errors as error:
            raise self._failed(error) from error

    def _security_layer(self, challenge: bytes) -> bytes:
        """Choose among the protections offered: a byte of bits and three of the largest size."""
        try:
            offered = self._context.unwrap(challenge).message
        except self._errors as error:
            raise self._failed(error) from error
        if len(offered) != 4:
            raise AuthenticationError("the server's offer of security layers is malformed")
        for qop in self._qops:
            if offered[0] & _BITS[qop]:
                break
        else:
            raise AuthenticationError(
                f"the server offers none of the protections {', '.join(self._qops)};"
                " compare hadoop.rpc.protection of both"
            )
        self._qop = qop
        self._max_bytes = int.from_bytes(offered[1:], "big")
        mine = b"\0\0\0" if qop == "auth" else (65536).to_bytes(3, "big")
        return self._context.wrap(bytes([_BITS[qop]]) + mine, False).message

    def _failed(self, error: Exception) -> AuthenticationError:
        return AuthenticationError(
            f"Kerberos authentication failed: {error}; is there a valid ticket (klist, kinit)?"
        )


class _GssapiLayer:
    """Signs, and encrypts if told, with the context's keys."""

    def __init__(self, context: Any, encrypt: bool, max_bytes: int) -> None:
        self._context = context
        self._encrypt = encrypt
        self.max_plain_bytes = max(1024, max_bytes - _OVERHEAD)

    def wrap(self, data: bytes) -> bytes:
        return self._context.wrap(data, self._encrypt).message

    def unwrap(self, data: bytes) -> bytes:
        try:
            result = self._context.unwrap(data)
        except Exception as error:
            raise AuthenticationError(f"a protected piece can't be read: {error}") from error
        if self._encrypt and not result.encrypted:
            raise AuthenticationError("a piece that should be encrypted is not")
        return result.message
