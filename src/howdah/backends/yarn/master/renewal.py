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
) -> NoReturn:
    """Get new tokens in the place of these, now and whenever most of their time is over; ``replaced`` is
    called with each set. ``login`` has the keytab. Never returns."""
    services = [token.service for token in tokens if token.kind == HDFS_TOKEN]
    while True:
        try:
            fresh, until = await _fresh(configuration, login, services)
        except HadoopError as error:
            log.warning("there are no new tokens yet: %s", error)
            await asyncio.sleep(RETRY_S)
            continue
        replaced(fresh)
        log.info("new tokens, good for %.0f s", until - time.time())
        await asyncio.sleep(_pause_s(until))


def url(service: str) -> str:
    """The file system a token is for."""
    return f"hdfs://{service.removeprefix(_HA)}"


async def _fresh(
    configuration: Configuration, login: Login, services: Iterable[str]
) -> tuple[Credentials, float]:
    """New tokens, and until when all of them are good.

    They are renewed once, which tells that time: only their renewer may ask.
    """
    found: dict[str, Token] = {}
    providers: list[str] = []
    until = float("inf")
    for service in services:
        async with NameNode(configuration, login, url=url(service)) as name_node:
            token = await name_node.delegation_token(login.user)
            until = min(until, (await name_node.renew_token(token)).timestamp())
            providers.append(kms.provider(configuration, await name_node.key_provider()))
        found[token.service] = token
    async with ResourceManager(configuration, login) as manager:
        token = await manager.delegation_token(login.user)
        until = min(until, (await manager.renew_token(token)).timestamp())
    found[token.service] = token
    try:
        request = TokenRequest(login, configuration, login.user, {})
        found |= await asyncio.to_thread(kms.tokens, request, providers)
    except HadoopError as error:
        log.warning("there is no new token of the KMS: %s", error)
    return Credentials(found), until


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
