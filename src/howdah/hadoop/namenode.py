"""The NameNode's calls that a file client such as hdfs-native does not make (``ClientProtocol``)."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
from datetime import datetime
from typing import Literal
from urllib.parse import urlsplit

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import Limits
from howdah.hadoop.credentials import HDFS_TOKEN, Token
from howdah.hadoop.identity import Identity
from howdah.hadoop.login import Login
from howdah.hadoop.protos import common, hdfs
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.service import Service, expiry, token_service

QUOTA_DONT_SET = 0x7FFFFFFFFFFFFFFF
QUOTA_RESET = 0xFFFFFFFFFFFFFFFF  # -1 in a field without sign


class _OfNameNode(Service):
    PRINCIPAL = "dfs.namenode.kerberos.principal"

    def __init__(
        self,
        configuration: Configuration,
        login: Login | str,
        *,
        url: str | None = None,
        token: Token | None = None,
        retry: RetryPolicy | None = None,
        limits: Limits | None = None,
    ) -> None:
        """``url`` is an ``hdfs://`` one; the default file system without it. ``token`` is one of the
        NameNode's; else the login's, if it has one."""
        if token is None and isinstance(login, Login):
            token = token_of(configuration, login, url)
        identity = Identity.from_configuration(configuration, login, token, self.PRINCIPAL)
        super().__init__(configuration.name_nodes(url), identity, retry=retry, limits=limits)
        self.configuration = configuration
        self._authority = urlsplit(url or configuration.default_fs).netloc


class UserMappings(_OfNameNode):
    """What users are on the cluster: ``hdfs groups`` asks the same."""

    PROTOCOL = "org.apache.hadoop.tools.GetUserMappingsProtocol"

    async def groups(self, user: str) -> tuple[str, ...]:
        """The user's groups, as the NameNode's group mapping has them; none of a stranger."""
        answer = await self.rpc.call(
            "getGroupsForUser",
            common.GetGroupsForUserRequestProto(user=user),
            common.GetGroupsForUserResponseProto,
        )
        return tuple(answer.groups)


class NameNode(_OfNameNode):
    """Delegation tokens, and what else is asked of the NameNode itself."""

    PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"

    # Delegation tokens

    async def delegation_token(self, renewer: str) -> Token:
        """A token for the file system, its service set as Hadoop's clients look for it.

        Raises:
            RemoteError: the cluster gives none (no security, unless
                ``dfs.namenode.delegation.token.always-use``), or on a secure one the caller did
                not come with Kerberos itself.
        """
        answer = await self.rpc.call(
            "getDelegationToken",
            common.GetDelegationTokenRequestProto(renewer=renewer),
            common.GetDelegationTokenResponseProto,
            idempotent=False,
        )
        token = Token.from_proto(answer.token)
        return dataclasses.replace(
            token, kind=token.kind or HDFS_TOKEN, service=await self.token_service()
        )

    async def token_service(self) -> str:
        """What a token's service says: ``ha-hdfs:<name service>``, or the address."""
        if self._authority in self.configuration.list("dfs.nameservices"):
            return f"ha-hdfs:{self._authority}"
        return await token_service(self.rpc.addresses[:1], self.configuration)

    async def renew_token(self, token: Token) -> datetime:
        """Prolong a token; until when. `InvalidToken` if it is expired or cancelled."""
        answer = await self.rpc.call(
            "renewDelegationToken",
            common.RenewDelegationTokenRequestProto(token=token.to_proto()),
            common.RenewDelegationTokenResponseProto,
        )
        return expiry(answer)

    async def cancel_token(self, token: Token) -> None:
        """Make a token worthless."""
        await self.rpc.call(
            "cancelDelegationToken",
            common.CancelDelegationTokenRequestProto(token=token.to_proto()),
            common.CancelDelegationTokenResponseProto,
        )

    # Files and folders

    async def file_info(self, path: str) -> hdfs.HdfsFileStatusProto | None:
        """Kind, length, owner, permission, times; None if there is no such path."""
        answer = await self.rpc.call(
            "getFileInfo",
            hdfs.GetFileInfoRequestProto(src=path),
            hdfs.GetFileInfoResponseProto,
        )
        return answer.fs if answer.HasField("fs") else None

    async def mkdirs(self, path: str, permission: int = 0o755, *, parents: bool = True) -> bool:
        """Make a folder; its permission is exactly that, whatever the cluster's umask."""
        mode = hdfs.FsPermissionProto(perm=permission)
        answer = await self.rpc.call(
            "mkdirs",
            hdfs.MkdirsRequestProto(src=path, masked=mode, unmasked=mode, createParent=parents),
            hdfs.MkdirsResponseProto,
        )
        return answer.result

    async def delete(self, path: str, *, recursive: bool = False) -> bool:
        """Delete a path, not by way of the trash; false if there is none."""
        answer = await self.rpc.call(
            "delete",
            hdfs.DeleteRequestProto(src=path, recursive=recursive),
            hdfs.DeleteResponseProto,
        )
        return answer.result

    async def rename(self, source: str, target: str, *, overwrite: bool = False) -> None:
        """Rename; `RemoteFileExists` if the target is there and may not be overwritten."""
        await self.rpc.call(
            "rename2",
            hdfs.Rename2RequestProto(src=source, dst=target, overwriteDest=overwrite),
            hdfs.Rename2ResponseProto,
        )

    async def set_owner(self, path: str, owner: str = "", group: str = "") -> None:
        """Change owner, group or both; the superuser may."""
        await self.rpc.call(
            "setOwner",
            hdfs.SetOwnerRequestProto(src=path, username=owner or None, groupname=group or None),
            hdfs.SetOwnerResponseProto,
        )

    async def set_permission(self, path: str, permission: int) -> None:
        """Change the permission."""
        await self.rpc.call(
            "setPermission",
            hdfs.SetPermissionRequestProto(
                src=path, permission=hdfs.FsPermissionProto(perm=permission)
            ),
            hdfs.SetPermissionResponseProto,
        )

    async def set_times(self, path: str, modified: datetime, accessed: datetime) -> None:
        """Change the times of a file."""
        await self.rpc.call(
            "setTimes",
            hdfs.SetTimesRequestProto(
                src=path,
                mtime=int(modified.timestamp() * 1000),
                atime=int(accessed.timestamp() * 1000),
            ),
            hdfs.SetTimesResponseProto,
        )

    async def set_replication(self, path: str, replication: int) -> bool:
        """Change how often a file's blocks are stored; false if it is no file."""
        answer = await self.rpc.call(
            "setReplication",
            hdfs.SetReplicationRequestProto(src=path, replication=replication),
            hdfs.SetReplicationResponseProto,
        )
        return answer.result

    async def recover_lease(self, path: str, client_name: str) -> bool:
        """Take a file from a writer that is gone; true once it is closed (ask again until then)."""
        answer = await self.rpc.call(
            "recoverLease",
            hdfs.RecoverLeaseRequestProto(src=path, clientName=client_name),
            hdfs.RecoverLeaseResponseProto,
        )
        return answer.result

    # Space

    async def content_summary(self, path: str) -> hdfs.ContentSummaryProto:
        """Numbers of files and bytes below a path, and its quotas."""
        answer = await self.rpc.call(
            "getContentSummary",
            hdfs.GetContentSummaryRequestProto(path=path),
            hdfs.GetContentSummaryResponseProto,
        )
        return answer.summary

    async def set_quota(
        self, path: str, *, names: int | None = None, space_bytes: int | None = None
    ) -> None:
        """Set a folder's quotas; None leaves one, -1 takes it away. The superuser may."""

        def number(value: int | None) -> int:
            if value is None:
                return QUOTA_DONT_SET
            return QUOTA_RESET if value < 0 else value

        await self.rpc.call(
            "setQuota",
            hdfs.SetQuotaRequestProto(
                path=path, namespaceQuota=number(names), storagespaceQuota=number(space_bytes)
            ),
            hdfs.SetQuotaResponseProto,
        )

    async def fs_stats(self) -> hdfs.GetFsStatsResponseProto:
        """Capacity, used and remaining bytes of the file system."""
        return await self.rpc.call(
            "getFsStats", hdfs.GetFsStatusRequestProto(), hdfs.GetFsStatsResponseProto
        )

    async def server_defaults(self) -> hdfs.FsServerDefaultsProto:
        """Block size, replication and the like, as the NameNode has them."""
        answer = await self.rpc.call(
            "getServerDefaults",
            hdfs.GetServerDefaultsRequestProto(),
            hdfs.GetServerDefaultsResponseProto,
        )
        return answer.serverDefaults

    async def safe_mode(self, action: Literal["get", "enter", "leave"] = "get") -> bool:
        """Ask for, enter or leave safe mode; whether it is on afterwards."""
        answer = await self.rpc.call(
            "setSafeMode",
            hdfs.SetSafeModeRequestProto(
                action=hdfs.SafeModeActionProto.Value(f"SAFEMODE_{action.upper()}")
            ),
            hdfs.SetSafeModeResponseProto,
        )
        return answer.result


def token_of(configuration: Configuration, login: Login, url: str | None) -> Token | None:
    """The login's token for that file system."""
    if login.token(HDFS_TOKEN) is None:
        return None
    name = urlsplit(url or configuration.default_fs).netloc
    if name in configuration.list("dfs.nameservices"):
        return login.token(HDFS_TOKEN, f"ha-hdfs:{name}")
    address = configuration.name_nodes(url)[0]
    host = address.host
    if configuration.boolean("hadoop.security.token.service.use_ip", True):
        with contextlib.suppress(OSError):
            host = socket.gethostbyname(host)
    return login.token(HDFS_TOKEN, f"{host.lower()}:{address.port}")
