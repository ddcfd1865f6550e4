"""Delegation tokens of Hadoop's Key Management Server (KMS), whose keys open HDFS's encryption zones."""

from __future__ import annotations

import base64
import json
from urllib.parse import urlencode, urlsplit

from howdah.hadoop import gss
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.credentials import Token
from howdah.hadoop.errors import AuthenticationError, ConnectFailed, HadoopError
from howdah.hadoop.kerberos import explain
from howdah.hadoop.providers import TokenRequest

KIND = "kms-dt"
PROVIDER = "hadoop.security.key.provider.path"
ANSWER_S = 20.0
_SCHEME = "kms://"


def tokens(request: TokenRequest) -> dict[str, Token] | None:
    """A token of the configured KMS; None where there is none, or where the login has one.

    Raises:
        ConfigurationError: it is configured wrongly.
        ConnectFailed: none of its servers answers.
        AuthenticationError: it does not accept who we are.
    """
    provider = request.configuration.get(PROVIDER)
    if not provider.startswith(_SCHEME) or request.login.credentials.of_kind(KIND):
        return None
    failed: HadoopError | None = None
    for url in servers(request.configuration):
        try:
            token = _get(url, request)
        except ConnectFailed as error:
            failed = error
            continue
        # As LoadBalancingKMSClientProvider names it: one token is good at all servers.
        return {provider: Token(token.identifier, token.password, token.kind, provider)}
    assert failed is not None
    raise failed


def servers(configuration: Configuration) -> list[str]:
    """The URLs of ``kms://https@kms1;kms2:9600/kms``.

    Raises:
        ConfigurationError: it is written otherwise.
    """
    text = configuration.get(PROVIDER)
    parts = urlsplit(text)
    scheme, _, where = parts.netloc.partition("@")
    hosts, _, port = where.rpartition(":")
    names = [name for name in hosts.split(";") if name]
    if scheme not in ("http", "https") or not names or not port.isdecimal():
        raise configuration.wrong(PROVIDER, text, "such as kms://https@kms1;kms2:9600/kms")
    return [f"{scheme}://{name}:{port}{parts.path.rstrip('/')}/v1/" for name in names]


def _get(url: str, request: TokenRequest) -> Token:
    # Takes 10 ms to import, which only submissions to a cluster with a KMS need to wait for.
    from urllib import error as failures
    from urllib import request as http

    host = urlsplit(url).hostname or ""
    query = {"op": "GETDELEGATIONTOKEN", "renewer": request.renewer}
    if request.login.real_user:
        query["doAs"] = request.login.user
    try:
        proof = gss.Context("HTTP", host, "", request.login.credential).step(b"")
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
        raise AuthenticationError(f"the KMS {url} answers {error.code}: {said}") from error
    except OSError as error:
        raise ConnectFailed(f"the KMS {url} can't be reached: {error}") from error
    except (ValueError, LookupError, TypeError) as error:
        raise ConnectFailed(f"{url} does not answer as a KMS does: {error}") from error
