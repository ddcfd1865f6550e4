"""Who we are on a cluster: principal, ticket or keytab, short name, tokens, whom we act for.

The counterpart of Hadoop's ``UserGroupInformation``. A `Login` does nothing by itself; the clients of
services take one, and from it what each server accepts.
"""

from __future__ import annotations

import dataclasses
import getpass
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import AuthenticationError
from howdah.hadoop.security.credentials import Credentials, Token
from howdah.hadoop.security.names import short_name
from howdah.hadoop.security.tokens import owner

if TYPE_CHECKING:
    from howdah.hadoop.security import gss

USER, PROXY_USER = "HADOOP_USER_NAME", "HADOOP_PROXY_USER"


@dataclasses.dataclass(frozen=True)
class Login:
    """One user of one cluster.

    Attributes:
        user: the short name: owner of the files and applications that are made.
        principal: the Kerberos principal that proves it; empty where none does.
        keytab: file with the principal's key; empty where a ticket cache is used.
        credentials: tokens, which come before Kerberos where a server takes them.
        real_user: who impersonates ``user`` (a proxy user of the cluster's); else empty.
        expires_at: when the ticket ends, as a time since the epoch; infinite with a keytab, and where
            no ticket is used.
    """

    user: str
    principal: str = ""
    keytab: str = ""
    credentials: Credentials = dataclasses.field(default_factory=Credentials, repr=False)
    real_user: str = ""
    expires_at: float = float("inf")
    credential: gss.Credential | None = dataclasses.field(default=None, repr=False, compare=False)

    @property
    def kerberos(self) -> bool:
        """There is a ticket, or what gets one."""
        return bool(self.principal)

    def token(self, kind: str, service: str = "") -> Token | None:
        """The token of that kind, and for that service if it is given."""
        for token in self.credentials.of_kind(kind):
            if service in ("", token.service):
                return token
        return None

    def acting_for(self, user: str) -> Login:
        """The login of another user, as whom the cluster lets us act (``hadoop.proxyuser.*``)."""
        return dataclasses.replace(self, user=user, real_user=self.user)


def login(
    configuration: Configuration,
    env: Mapping[str, str] = os.environ,
    *,
    principal: str = "",
    keytab: str | Path = "",
) -> Login:
    """Who ``env`` says we are, as for Hadoop's own clients.

    With Kerberos: the principal of ``keytab`` if given, else of the ticket cache (``KRB5CCNAME``);
    without a ticket the owner of the tokens in ``HADOOP_TOKEN_FILE_LOCATION``. Without Kerberos:
    ``HADOOP_USER_NAME``, else the account. ``HADOOP_PROXY_USER`` is whom to act for.

    Raises:
        AuthenticationError: the cluster demands Kerberos, and there is neither ticket nor token; says
            what to do.
        ConfigurationError: the principal has no short name there.
        CredentialsError: the token file is none.
        OSError: the token file can't be read.
    """
    credentials = Credentials.from_environment(env)
    if not configuration.security_enabled:
        found = Login(env.get(USER) or account(), credentials=credentials)
    else:
        try:
            found = _with_kerberos(configuration, principal, str(keytab), credentials)
        except AuthenticationError:
            user = owner(credentials)
            if keytab or not user:
                raise
            short = short_name(user, configuration, _realm())
            found = Login(short, credentials=credentials)
    proxy = env.get(PROXY_USER)
    return found.acting_for(proxy) if proxy else found


def account() -> str:
    """The account's name, or ``uid-1000`` where it has none (containers)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid-{os.getuid()}"


def _with_kerberos(
    configuration: Configuration, principal: str, keytab: str, credentials: Credentials
) -> Login:
    """Raises AuthenticationError, ConfigurationError."""
    from howdah.hadoop.security import gss  # on clusters without Kerberos nothing needs it
    from howdah.hadoop.security.kerberos import explain

    if keytab and not os.access(keytab, os.R_OK):
        raise AuthenticationError(
            f"the keytab {keytab} can't be read: is there such a file, and yours?"
        )
    try:
        if keytab:
            # A cache of this process alone: the user's own is left as it is.
            store = {"client_keytab": f"FILE:{keytab}", "ccache": f"MEMORY:howdah-{principal}"}
            credential = gss.Credential(principal, store)
        else:
            credential = gss.Credential(principal)
        found = credential.inquire()
    except gss.GssError as error:
        if keytab:
            raise AuthenticationError(
                f"no ticket for {principal or 'the principal'} of the keytab {keytab}:"
                f" {_of_keytab(error)}"
            ) from error
        raise AuthenticationError(explain(error)) from error
    if found.lifetime_s <= 0:
        raise AuthenticationError(
            "the ticket has expired (klist): run kinit, or give the job a keytab (under [hadoop])"
        )
    return Login(
        short_name(found.principal, configuration, _realm()),
        found.principal,
        keytab,
        credentials,
        expires_at=float("inf") if keytab else time.time() + found.lifetime_s,
        credential=credential if keytab or principal else None,
    )


def _of_keytab(error: gss.GssError) -> str:
    from howdah.hadoop.security.kerberos import explain

    # The library tells of the cache that it would have filled, not of the key that is missing.
    text = explain(error)
    return "it has no key of it (klist -k)" if "there is no ticket" in text else text


def _realm() -> str:
    from howdah.hadoop.security import gss

    try:
        return gss.default_realm()
    except gss.GssError:
        return ""
