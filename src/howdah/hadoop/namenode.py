"""The NameNode's calls that a file client such as hdfs-native does not make (``ClientProtocol``)."""

from __future__ import annotations

import contextlib
import dataclasses
import posixpath
import socket
from typing import Literal
from urllib.parse import urlsplit

from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import ConnectionLimits
from howdah.hadoop.errors import RemoteFileNotFound
from howdah.hadoop.protos import common, hdfs
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.security.credentials import HDFS_TOKEN, Token
from howdah.hadoop.security.identity import Identity
from howdah.hadoop.security.login import Login
from howdah.hadoop.service import Service, TokenService, token_service


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
        limits: ConnectionLimits | None = None,
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


class NameNode(_OfNameNode, TokenService):
    """Delegation tokens, and what else is asked of the NameNode itself."""

    PROTOCOL = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
    TOKEN_KIND = HDFS_TOKEN

    async def token_service(self) -> str:
        """What a token's service says: ``ha-hdfs:<name service>``, or the address."""
        if self._authority in self.configuration.list("dfs.nameservices"):
            return f"ha-hdfs:{self._authority}"
        return await token_service(self.rpc.addresses[:1], self.configuration)

    # The file system

    async def fs_stats(self) -> hdfs.GetFsStatsResponseProto:
        """Capacity, used and remaining bytes of the file system."""
        return await self.rpc.call(
            "getFsStats", hdfs.GetFsStatusRequestProto(), hdfs.GetFsStatsResponseProto
        )

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

    async def key_provider(self) -> str | None:
        """The key provider of its encryption zones (``kms://…``), as its own configuration names it; empty if it
        has none, None if it is too old to say."""
        answer = await self.rpc.call(
            "getServerDefaults",
            hdfs.GetServerDefaultsRequestProto(),
            hdfs.GetServerDefaultsResponseProto,
        )
        defaults = answer.serverDefaults
        return defaults.keyProviderUri if defaults.HasField("keyProviderUri") else None

    async def encryption_zone(self, path: str) -> str | None:
        """The folder of the encryption zone in which that absolute path is, or would be if it were made;
        None outside of one.

        Raises:
            AccessControl: the caller may not read the path.
        """
        while True:
            try:
                answer = await self.rpc.call(
                    "getEZForPath",
                    hdfs.GetEZForPathRequestProto(src=path),
                    hdfs.GetEZForPathResponseProto,
                )
            except RemoteFileNotFound:
                if path == "/":
                    raise
                path = posixpath.dirname(path)
                continue
            return answer.zone.path if answer.HasField("zone") else None


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


def by_authority(configuration: Configuration, token: Token, url: str | None) -> Token:
    """The same token under the name that ``url`` gives the NameNode, ``HOST:PORT``.

    Hadoop's own clients look a token up by the IP address and port, which is the service that a NameNode's token
    has (`token_service`); others, such as hdfs-native, by what the URL says. Credentials need it under both. That of
    a name service has one name only.
    """
    name = urlsplit(url or configuration.default_fs).netloc
    if name in configuration.list("dfs.nameservices"):
        return token
    return dataclasses.replace(token, service=str(configuration.name_nodes(url)[0]))
