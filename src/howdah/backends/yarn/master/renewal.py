"""Delegation tokens, kept good while the job runs.

A token is good for a day and can be prolonged for a week. Who does that:

- without Kerberos, where a NameNode may demand tokens all the same, the master prolongs them;
- with Kerberos the ResourceManager, who is named in the tokens as their renewer;
- with Kerberos and a keytab the master gets new ones instead, so that there is no week's end.

Tokens are not cancelled at the end: NodeManagers still collect logs with them, and they expire by
themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Iterable
from typing import NoReturn

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import HadoopError, InvalidToken
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.security import kms
from howdah.hadoop.security.credentials import HDFS_TOKEN, Credentials, Token
from howdah.hadoop.security.login import Login
from howdah.hadoop.security.providers import TokenRequest
from howdah.hadoop.service import TokenService

log: logging.Logger = logging.getLogger(__name__)

RETRY_S = 60.0
SHARE = 0.75
"""Of a token's time that is used before it is prolonged (as the ResourceManager does)."""
_LEAST_S = 1.0
_HA = "ha-hdfs:"


async def keep(configuration: Configuration, user: str, tokens: Iterable[Token]) -> None:
    """Prolong these tokens until cancelled; returns when there is nothing (more) to be done."""
    if configuration.security_enabled:
        return
    await asyncio.gather(*(_keep_one(configuration, user, token) for token in tokens))


async def replace(
    configuration: Configuration,
    login: Login,
    tokens: Iterable[Token],
    replaced: Callable[[Credentials], None],
) -> None:
    """Get new tokens in the place of these until cancelled, now and whenever most of their time is over.
    ``login`` has the keytab.

    Each service is asked on its own, and again soon while it gives no token; ``replaced`` is called with
    what each gives.
    """
    services = dict.fromkeys(token.service for token in tokens if token.kind == HDFS_TOKEN)
    await asyncio.gather(
        _replace_of_yarn(configuration, login, replaced),
        *(_replace_of_hdfs(configuration, login, service, replaced) for service in services),
    )


def url(service: str) -> str:
    """The file system a token is for."""
    return f"hdfs://{service.removeprefix(_HA)}"


async def _replace_of_yarn(
    configuration: Configuration, login: Login, replaced: Callable[[Credentials], None]
) -> NoReturn:
    while True:
        try:
            async with ResourceManager(configuration, login) as manager:
                token, until = await _fresh(manager, login)
        except HadoopError as error:
            log.warning("there is no new token of the ResourceManager yet: %s", error)
            await asyncio.sleep(RETRY_S)
            continue
        _hand_over(token.service, token, replaced)
        await asyncio.sleep(_pause_s(until))


async def _replace_of_hdfs(
    configuration: Configuration,
    login: Login,
    service: str,
    replaced: Callable[[Credentials], None],
) -> NoReturn:
    """A file system's tokens, and those of the KMS that its NameNode names: how long these are good the KMS
    does not say, so they are replaced together."""
    while True:
        try:
            async with NameNode(configuration, login, url=url(service)) as name_node:
                provider = kms.provider(configuration, await name_node.key_provider())
                token, until = await _fresh(name_node, login)
        except HadoopError as error:
            log.warning("there is no new token for %s yet: %s", url(service), error)
            await asyncio.sleep(RETRY_S)
            continue
        for each in {token.service, service}:  # by its address, and by its host's name
            _hand_over(each, dataclasses.replace(token, service=each), replaced)
        due = asyncio.get_running_loop().time() + _pause_s(until)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await _replace_of_kms(configuration, login, provider, replaced)
                await asyncio.Event().wait()


async def _replace_of_kms(
    configuration: Configuration,
    login: Login,
    provider: str,
    replaced: Callable[[Credentials], None],
) -> None:
    request = TokenRequest(login, configuration, login.user, {})
    while True:
        try:
            found = await asyncio.to_thread(kms.tokens, request, [provider])
        except HadoopError as error:
            log.warning("there is no new token of the KMS yet: %s", error)
            await asyncio.sleep(RETRY_S)
            continue
        for alias, token in found.items():
            _hand_over(alias, token, replaced)
        return


async def _fresh(source: TokenService, login: Login) -> tuple[Token, float]:
    """A new token, and until when it is good. It is renewed once, which tells that time: only its renewer
    may ask."""
    token = await source.delegation_token(login.user)
    return token, (await source.renew_token(token)).timestamp()


def _hand_over(alias: str, token: Token, replaced: Callable[[Credentials], None]) -> None:
    log.info("a new token of %s", alias)
    replaced(Credentials({alias: token}))


async def _keep_one(configuration: Configuration, user: str, token: Token) -> None:
    place = url(token.service)
    while True:
        try:
            async with NameNode(configuration, user, url=place) as name_node:
                until = (await name_node.renew_token(token)).timestamp()
        except InvalidToken as error:
            log.error("the token for %s can't be prolonged any more: %s", place, error)
            return
        except HadoopError as error:
            log.warning("the token for %s is not prolonged yet: %s", place, error)
            await asyncio.sleep(RETRY_S)
            continue
        await asyncio.sleep(_pause_s(until))


def _pause_s(until: float) -> float:
    return max(_LEAST_S, SHARE * (until - time.time()))
