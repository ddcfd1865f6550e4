"""Delegation tokens of file systems, prolonged while the job runs.

A token is good for a day and can be prolonged for a week. With security the ResourceManager does
that, who is named in the tokens as their renewer; elsewhere, where a NameNode may demand tokens all
the same, it is the master's. Tokens are not cancelled at the end: NodeManagers still collect logs
with them, and they expire by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.credentials import Token
from howdah.hadoop.errors import HadoopError, InvalidToken
from howdah.hadoop.namenode import NameNode

log = logging.getLogger(__name__)

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


def url(token: Token) -> str:
    """The file system a token is for."""
    return f"hdfs://{token.service.removeprefix(_HA)}"


async def _keep_one(configuration: Configuration, user: str, token: Token) -> None:
    while True:
        try:
            async with NameNode(configuration, user, url=url(token)) as name_node:
                until = (await name_node.renew_token(token)).timestamp()
        except InvalidToken as error:
            log.error("the token for %s can't be prolonged any more: %s", url(token), error)
            return
        except HadoopError as error:
            log.warning("the token for %s is not prolonged yet: %s", url(token), error)
            await asyncio.sleep(RETRY_S)
            continue
        await asyncio.sleep(max(_LEAST_S, SHARE * (until - time.time())))
