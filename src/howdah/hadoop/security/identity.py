"""Who a client is, and which proofs of it are accepted."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import ConfigurationError
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.digest import PROTECTION, QOPS
from howdah.hadoop.security.login import Login

if TYPE_CHECKING:
    from howdah.hadoop.security import gss


@dataclasses.dataclass(frozen=True)
class Identity:
    """The user of a connection.

    Attributes:
        user: on whose behalf calls are made.
        real_user: who does so, if the user is impersonated (a proxy user of the cluster's).
        token: authenticates by itself, and names the user, where the server takes it.
        kerberos: the user's ticket may be used.
        credential: whose ticket that is; None is the default cache's.
        server_principal: the Kerberos principal that the server must have, as the configuration
            names it: ``service/_HOST@REALM``, where ``_HOST`` is the server's host name.
        server_pattern: what its principal must look like instead (``*`` and ``?``), if not empty.
        qops: protections that are accepted (`digest.QOPS`), the most wanted first.
        allow_simple: a server that asks for no proof at all is accepted. Where it is not, a token
            or Kerberos is needed, and a server without either is taken for a false one.
    """

    user: str
    real_user: str | None = None
    token: Token | None = None
    kerberos: bool = False
    credential: gss.Credential | None = dataclasses.field(default=None, repr=False, compare=False)
    server_principal: str = ""
    server_pattern: str = ""
    qops: tuple[str, ...] = QOPS
    allow_simple: bool = True

    @property
    def negotiates(self) -> bool:
        """The connection begins with SASL."""
        return self.token is not None or self.kerberos

    @classmethod
    def from_configuration(
        cls,
        configuration: Configuration,
        login: Login | str,
        token: Token | None = None,
        principal_key: str = "",
    ) -> Identity:
        """As the cluster's configuration wants it; ``principal_key`` is where the server's is.

        A name alone is somebody without tokens, whom only a cluster without Kerberos believes, and one
        with it if the default cache's ticket is that user's.

        Raises:
            ConfigurationError: ``hadoop.rpc.protection`` names what there is not.
        """
        secure = configuration.security_enabled
        fallback = configuration.boolean("ipc.client.fallback-to-simple-auth-allowed")
        qops: list[str] = []
        for name in configuration.list("hadoop.rpc.protection"):
            if name.lower() not in PROTECTION:
                raise configuration.wrong(
                    "hadoop.rpc.protection", name, "authentication, integrity or privacy"
                )
            qops.append(PROTECTION[name.lower()])
        if not qops:
            raise ConfigurationError(
                f"{configuration.source('hadoop.rpc.protection')}: hadoop.rpc.protection is empty"
            )
        who = login if isinstance(login, Login) else Login(login)
        return cls(
            user=who.user,
            real_user=who.real_user or None,
            token=token,
            kerberos=secure and (who.kerberos or who is not login),
            credential=who.credential,
            server_principal=configuration.get(principal_key),
            server_pattern=configuration.get(f"{principal_key}.pattern") if principal_key else "",
            qops=tuple(qops) if secure else (*qops, *(q for q in QOPS if q not in qops)),
            allow_simple=not secure or fallback,
        )
