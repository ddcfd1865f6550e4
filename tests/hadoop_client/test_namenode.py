"""The NameNode's calls, on the real one."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from howdah.hadoop import errors
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.security.credentials import HDFS_TOKEN


async def test_strangers_are_refused(configuration: Configuration) -> None:
    async with NameNode(configuration, "mallory") as nn:
        with pytest.raises(errors.AccessControl):
            await nn.safe_mode("enter")


async def test_the_file_system_describes_itself(configuration: Configuration, user: str) -> None:
    async with NameNode(configuration, user) as nn:
        assert (await nn.fs_stats()).capacity > 0
        assert await nn.safe_mode() is False


async def test_a_delegation_token_speaks_for_its_user_until_it_is_cancelled(
    configuration: Configuration, user: str
) -> None:
    address = configuration.name_nodes()[0]
    async with NameNode(configuration, user) as nn:
        token = await nn.delegation_token(user)
        assert (token.kind, token.service) == (HDFS_TOKEN, str(address))
        assert await nn.renew_token(token) > datetime.now(UTC)
        # The token says who it is, not the name that is given.
        async with NameNode(configuration, "somebody", token=token) as other:
            assert await other.renew_token(token) > datetime.now(UTC)
        async with NameNode(configuration, "somebody") as other:
            with pytest.raises(errors.AccessControl, match="somebody"):
                await other.renew_token(token)
        await nn.cancel_token(token)
        with pytest.raises(errors.InvalidToken):
            await nn.renew_token(token)
        async with NameNode(configuration, user, token=token) as other:
            with pytest.raises(errors.InvalidToken):
                await other.fs_stats()
