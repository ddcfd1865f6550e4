"""Kerberos (GSSAPI) as SASL has it (RFC 4752), client side, through the system's library (`gss`)."""

from __future__ import annotations

from howdah.hadoop.errors import AuthenticationError
from howdah.hadoop.security import gss
from howdah.hadoop.security.digest import QOPS, Layer
from howdah.hadoop.security.names import Principal

_BITS = {"auth": 1, "auth-int": 2, "auth-conf": 4}
_OVERHEAD = 1024  # more than a wrap token adds

_TABLE = -1765328384  # ERROR_TABLE_BASE_krb5 of krb5_err.et; what follows are its numbers
_NO_CACHE = {_TABLE + 141, _TABLE + 195, 39756044}
"""No such cache, no such file, a cache with nothing in it (the mechanism's own number)."""
_ADVICE = {
    6: "the KDC does not know this principal: is its name right?",
    7: "the KDC does not know the server's principal: compare the principals in the cluster's"
    " configuration (yarn.resourcemanager.principal, dfs.namenode.kerberos.principal) with the KDC's",
    18: "the principal is locked, or its password has expired: ask who runs the KDC",
    24: "the keytab's key is not the principal's (any more): get a new keytab",
    32: "the ticket has expired: run kinit, or give the job a keytab",
    33: "the ticket is not yet valid: compare this machine's clock with the KDC's",
    37: "the clocks of this machine and the KDC are more than five minutes apart: set this machine's"
    " clock (timedatectl, chrony)",
    60: "the KDC could not do it; its log says why",
    154: "krb5.conf (KRB5_CONFIG, else /etc/krb5.conf) names no KDC for the realm",
    156: "no KDC of the realm answers: compare krb5.conf (KRB5_CONFIG, else /etc/krb5.conf) with the"
    " network",
    181: "the keytab has no key of the principal: compare `klist -k` of it",
}
_KINIT = "run kinit, or give the job a keytab (principal and keytab under [hadoop])"


class Gssapi:
    """One authentication with the user's Kerberos ticket."""

    name = "GSSAPI"

    def __init__(
        self,
        server: Principal,
        qops: tuple[str, ...] = QOPS,
        credential: gss.Credential | None = None,
    ) -> None:
        """Without a ``credential`` it is the default cache's ticket.

        Raises:
            AuthenticationError: the system's library is missing.
        """
        self._server = server
        self._qops = qops
        self._qop = ""
        self._max_bytes = 65536
        try:
            self._context = gss.GssContext(server.first, server.second, server.realm, credential)
        except gss.GssError as error:
            raise self._failed(error) from error

    def initial(self) -> bytes:
        """The first token to the server."""
        return self._step(b"")

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

    def _step(self, token: bytes) -> bytes:
        try:
            return self._context.step(token)
        except gss.GssError as error:
            raise self._failed(error) from error

    def _security_layer(self, challenge: bytes) -> bytes:
        """Choose among the protections offered: a byte of bits and three of the largest size."""
        try:
            offered, _ = self._context.unwrap(challenge)
        except gss.GssError as error:
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
        return self._context.wrap(bytes([_BITS[qop]]) + mine, False)

    def _failed(self, error: gss.GssError) -> AuthenticationError:
        return AuthenticationError(f"Kerberos to {self._server}: {explain(error)}")


class _GssapiLayer:
    """Signs, and encrypts if told, with the context's keys."""

    def __init__(self, context: gss.GssContext, encrypt: bool, max_bytes: int) -> None:
        self._context = context
        self._encrypt = encrypt
        self.max_plain_bytes = max(1024, max_bytes - _OVERHEAD)

    def wrap(self, data: bytes) -> bytes:
        return self._context.wrap(data, self._encrypt)

    def unwrap(self, data: bytes) -> bytes:
        try:
            plain, encrypted = self._context.unwrap(data)
        except gss.GssError as error:
            raise AuthenticationError(f"a protected piece can't be read: {error}") from error
        if self._encrypt and not encrypted:
            raise AuthenticationError("a piece that should be encrypted is not")
        return plain


def explain(error: gss.GssError) -> str:
    """What Kerberos says, and what to do about it."""
    if error.code in _NO_CACHE:
        return f"there is no ticket ({error}); {_KINIT}"
    advice = _ADVICE.get(error.code - _TABLE)
    return f"{error}; {advice}" if advice else str(error)
