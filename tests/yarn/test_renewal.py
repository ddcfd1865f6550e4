"""Tokens of file systems are prolonged while a job runs."""

from __future__ import annotations

import asyncio
import contextlib

from howdah.backends.yarn.master import renewal
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.errors import InvalidToken
from howdah.hadoop.namenode import NameNode
from tests.hadoop.cluster import Cluster


def test_a_token_names_its_file_system() -> None:
    assert renewal.url("10.0.0.1:8020") == "hdfs://10.0.0.1:8020"
    assert renewal.url("ha-hdfs:Main") == "hdfs://Main"


def test_a_token_is_prolonged_and_a_cancelled_one_given_up(hadoop: Cluster) -> None:
    configuration = Configuration.load(hadoop.conf_dir)
    user = hadoop.site.user

    async def test() -> None:
        async with NameNode(configuration, user) as name_node:
            token = await name_node.delegation_token(user)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await renewal.keep(configuration, user, [token])
                    raise AssertionError("it goes on as long as the job")
            await name_node.cancel_token(token)
            async with asyncio.timeout(10.0):
                await renewal.keep(configuration, user, [token])
            try:
                await name_node.renew_token(token)
            except InvalidToken:
                return
            raise AssertionError("it was cancelled")

    asyncio.run(test())
