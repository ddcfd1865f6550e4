"""The NameNode's calls, on the real one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from howdah.hadoop import errors
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.credentials import HDFS_TOKEN
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.protos import hdfs
from tests.hadoop.cluster import Cluster


@pytest.fixture
def folder(hadoop: Cluster) -> Iterator[str]:
    """A folder of the test's own on HDFS."""
    path = f"/tmp/hadoop-client-{secrets.token_hex(6)}"
    hadoop.hdfs(path, "MKDIRS", permission="777")
    yield path
    hadoop.hdfs(path, "DELETE", "DELETE", recursive="true")


async def test_folders_are_made_described_changed_and_deleted(
    configuration: Configuration, user: str, folder: str
) -> None:
    async with NameNode(configuration, user) as nn:
        path = f"{folder}/a/b"
        assert await nn.mkdirs(path, 0o770)
        info = await nn.file_info(path)
        assert info is not None
        assert info.fileType == hdfs.HdfsFileStatusProto.FileType.IS_DIR
        assert (info.permission.perm, info.owner) == (0o770, user)
        await nn.set_permission(path, 0o700)
        await nn.set_owner(path, "alice", "people")
        modified = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
        info = await nn.file_info(path)
        assert info is not None
        assert (info.permission.perm, info.owner, info.group) == (0o700, "alice", "people")
        await nn.rename(path, f"{folder}/c")
        assert await nn.file_info(path) is None
        await nn.mkdirs(path)
        with pytest.raises(errors.RemoteFileExists):
            await nn.rename(f"{folder}/c", path)
        await nn.rename(f"{folder}/c", path, overwrite=True)
        with pytest.raises(errors.RemoteError, match="non empty"):
            await nn.delete(f"{folder}/a")
        assert await nn.delete(f"{folder}/a", recursive=True)
        assert not await nn.delete(f"{folder}/a", recursive=True)
        with pytest.raises(errors.RemoteFileNotFound):
            await nn.set_permission(f"{folder}/none", 0o700)
        with pytest.raises(errors.RemoteFileNotFound):
            await nn.set_times(f"{folder}/none", modified, modified)
        assert not await nn.set_replication(folder, 1)


async def test_a_folders_quota_is_set_told_and_kept(
    hadoop: Cluster, configuration: Configuration, user: str, folder: str
) -> None:
    async with NameNode(configuration, user) as nn:
        await nn.set_quota(folder, names=2)
        summary = await nn.content_summary(folder)
        assert (summary.quota, summary.directoryCount) == (2, 1)
        await nn.mkdirs(f"{folder}/one")
        with pytest.raises(errors.NameQuotaExceeded, match=folder):
            await nn.mkdirs(f"{folder}/two")
        await nn.set_quota(folder, names=-1, space_bytes=1 << 30)
        assert (await nn.content_summary(folder)).spaceQuota == 1 << 30
        await nn.set_quota(folder, space_bytes=-1)


async def test_strangers_are_refused(configuration: Configuration, user: str, folder: str) -> None:
    async with NameNode(configuration, user) as nn:
        await nn.mkdirs(f"{folder}/private", 0o700)
    async with NameNode(configuration, "mallory") as nn:
        with pytest.raises(errors.AccessControl, match="mallory"):
            await nn.mkdirs(f"{folder}/private/mine")
        with pytest.raises(errors.AccessControl):
            await nn.safe_mode("enter")


async def test_the_file_system_describes_itself(configuration: Configuration, user: str) -> None:
    async with NameNode(configuration, user) as nn:
        assert (await nn.fs_stats()).capacity > 0
        assert (await nn.server_defaults()).blockSize == 16 << 20
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
            path = f"/tmp/by-token-{secrets.token_hex(4)}"
            await other.mkdirs(path)
            info = await nn.file_info(path)
            assert info is not None and info.owner == user
            await nn.delete(path)
        await nn.cancel_token(token)
        with pytest.raises(errors.InvalidToken):
            await nn.renew_token(token)
        async with NameNode(configuration, user, token=token) as other:
            with pytest.raises(errors.InvalidToken):
                await other.file_info("/")


async def test_a_file_of_a_writer_that_is_gone_can_be_taken(
    hadoop: Cluster, configuration: Configuration, user: str, folder: str
) -> None:
    async with NameNode(configuration, user) as nn:
        with pytest.raises(errors.RemoteFileNotFound):
            await nn.recover_lease(f"{folder}/none", "taker")
