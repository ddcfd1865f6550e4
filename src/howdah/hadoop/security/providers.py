"""What providers of other services' tokens are told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.security.login import Login


@dataclasses.dataclass(frozen=True)
class TokenRequest:
    """What a provider of another service's tokens is told (entry points ``howdah.token_providers``).

    Attributes:
        login: who submits.
        configuration: the cluster's.
        renewer: the principal that may prolong the token: the ResourceManager's, without Kerberos the user.
        settings: what the job file says to this provider, ``[hadoop.tokens.NAME]``.
    """

    login: Login
    configuration: Configuration
    renewer: str
    settings: Mapping[str, str]
