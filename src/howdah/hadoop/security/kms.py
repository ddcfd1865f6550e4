"""Delegation tokens of Hadoop's Key Management Server (KMS), whose keys open HDFS's encryption zones."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectFailed,
    HadoopError,
)
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.providers import TokenRequest

KIND = "kms-dt"
PROVIDER = "hadoop.security.key.provider.path"
OWN_PROVIDER = "dfs.client.ignore.namenode.default.kms.uri"
ANSWER_S = 20.0
_SCHEME = "kms://"


def provider(configuration: Configuration, told: str | None) -> str:
    """The key provider of a file system, chosen as Hadoop's clients do: ``told`` is what its NameNode says
    (`howdah.hadoop.namenode.NameNode.key_provider`)."""
    if told is None or configuration.boolean(OWN_PROVIDER):
        return configuration.get(PROVIDER)
    return told


def tokens(request: TokenRequest, providers: Iterable[str]) -> dict[str, Token]:
    """A token of each of these key providers that is a KMS and of which the login has none.

    Raises:
        ConfigurationError: one is written wrongly.
        ConnectFailed: none of its servers answers, or none is well.
        AuthenticationError: it does not accept who we are.
    """
    has = {token.service for token in request.login.credentials.of_kind(KIND)}
    wanted = [each for each in dict.fromkeys(providers) if each.startswith(_SCHEME)]
    return {each: _token(each, request) for each in wanted if each not in has}


def servers(provider: str) -> list[str]:
    """The URLs of ``kms://https@kms1;kms2:9600/kms``.

    Raises:
        ConfigurationError: it is written otherwise.
    """
    parts = urlsplit(provider)
    scheme, _, where = parts.netloc.partition("@")
    hosts, _, port = where.rpartition(":")
    names = [name for name in hosts.split(";") if name]
    if scheme not in ("http", "https") or not names or not port.isdecimal():
        raise ConfigurationError(
            f"the key provider {provider!r} ({PROVIDER}) is not written such as kms://https@kms1;kms2:9600/kms"
        )
    return [f"{scheme}://{name}:{port}{parts.path.rstrip('/')}/v1/" for name in names]


def _token(provider: str, request: TokenRequest) -> Token:
    failed: HadoopError | None = None
    for url in servers(provider):
        try:
            token = _get(url, request)
        except ConnectFailed as error:
            failed = error
            continue
        # As LoadBalancingKMSClientProvider names it: one token is good at all servers.
        return Token(token.identifier, token.password, token.kind, provider)
    assert failed is not None
    raise failed


def _get(url: str, request: TokenRequest) -> Token:
    # Takes 10 ms to import, which only submissions to a cluster with a KMS need to wait for.
    from http.client import HTTPException
    from urllib import error as failures
    from urllib import request as http

    from howdah.hadoop.security import gss
    from howdah.hadoop.security.kerberos import explain

    host = urlsplit(url).hostname or ""
    query = {"op": "GETDELEGATIONTOKEN", "renewer": request.renewer}
    if request.login.real_user:
        query["doAs"] = request.login.user
    try:
        proof = gss.GssContext("HTTP", host, "", request.login.credential).step(b"")
    except gss.GssError as error:
        raise AuthenticationError(f"Kerberos to the KMS {url}: {explain(error)}") from error
    # `servers` knows no other schemes than HTTP's.
    asked = http.Request(f"{url}?{urlencode(query)}")  # noqa: S310
    asked.add_header("Authorization", f"Negotiate {base64.b64encode(proof).decode()}")
    try:
        with http.urlopen(asked, timeout=ANSWER_S) as answer:  # noqa: S310
            told = json.load(answer)
        return Token.from_url_text(told["Token"]["urlString"])
    except failures.HTTPError as error:
        with error:
            said = error.read(1000).decode(errors="replace")
        # What ails one server another one may not have; a refusal is everyone's.
        kind = ConnectFailed if error.code >= 500 else AuthenticationError
        raise kind(f"the KMS {url} answers {error.code}: {said}") from error
    except OSError as error:
        raise ConnectFailed(f"the KMS {url} can't be reached: {error}") from error
    except (HTTPException, ValueError, LookupError, TypeError) as error:
        raise ConnectFailed(f"{url} does not answer as a KMS does: {error}") from error
