"""What the wrappers of Hadoop's services share."""

from __future__ import annotations

import asyncio
import dataclasses
import ipaddress
import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Self, TypeVar

from google.protobuf.message import Message

from howdah.hadoop.address import Address
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.connection import ConnectionLimits
from howdah.hadoop.errors import ProtocolError, RemoteError, remote_error
from howdah.hadoop.protos import common, yarn
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.rpc import RpcClient
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.identity import Identity

R = TypeVar("R", bound=Message)


class Service:
    """Calls of one protocol; `rpc` is the client that makes them. To be closed after use."""

    PROTOCOL = ""
    """Java name of the protocol's interface."""
    PRINCIPAL = ""
    """Configuration property with the server's Kerberos principal."""

    def __init__(
        self,
        addresses: Sequence[Address],
        identity: Identity,
        *,
        retry: RetryPolicy | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        self.rpc: RpcClient = RpcClient(
            addresses, self.PROTOCOL, identity, retry=retry, limits=limits
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection."""
        await self.rpc.close()


class TokenService(Service):
    """A service that gives delegation tokens."""

    TOKEN_KIND = ""
    configuration: Configuration

    async def delegation_token(self, renewer: str) -> Token:
        """A token with which the user's calls are made without Kerberos, its service set as Hadoop's
        clients look for it.

        Raises:
            RemoteError: the cluster gives none (no security; of HDFS, unless
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
            token, kind=token.kind or self.TOKEN_KIND, service=await self.token_service()
        )

    async def token_service(self) -> str:
        """What a token's service says: the addresses."""
        return await token_service(self.rpc.addresses, self.configuration)

    async def renew_token(self, token: Token) -> datetime:
        """Prolong a token; until when. `InvalidToken` if it is expired or cancelled."""
        answer = await self.rpc.call(
            "renewDelegationToken",
            common.RenewDelegationTokenRequestProto(token=token.to_proto()),
            common.RenewDelegationTokenResponseProto,
        )
        return _expiry(answer)

    async def cancel_token(self, token: Token) -> None:
        """Make a token worthless."""
        await self.rpc.call(
            "cancelDelegationToken",
            common.CancelDelegationTokenRequestProto(token=token.to_proto()),
            common.CancelDelegationTokenResponseProto,
        )


def remote_exception(proto: yarn.SerializedExceptionProto) -> RemoteError:
    """An exception that came inside an answer (one container of several failed)."""
    details = proto.message
    cause = proto
    for _ in range(10):
        if not cause.HasField("cause"):
            break
        cause = cause.cause
        if cause.message and cause.message not in details:
            details = f"{details}; {cause.message}" if details else cause.message
    return remote_error(proto.class_name, details)


def _expiry(answer: common.RenewDelegationTokenResponseProto) -> datetime:
    """Until when a renewed token is good.

    Raises:
        ProtocolError: no such moment exists.
    """
    try:
        return datetime.fromtimestamp(answer.newExpiryTime / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        raise ProtocolError(
            f"a token is renewed until {answer.newExpiryTime} ms, which is no time"
        ) from None


async def token_service(addresses: Sequence[Address], configuration: Configuration) -> str:
    """What Hadoop writes into a token as the service it is for: IP addresses and ports.

    Source: ``SecurityUtil.buildTokenService``.
    """
    use_ip = configuration.boolean("hadoop.security.token.service.use_ip", True)
    return ",".join([await _service(address, use_ip) for address in addresses])


async def _service(address: Address, use_ip: bool) -> str:
    host = address.host
    if use_ip:
        try:
            ipaddress.ip_address(host)
        except ValueError:
            loop = asyncio.get_running_loop()
            try:
                found = await loop.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
                host = str(found[0][4][0])
            except OSError:
                pass  # as Hadoop does: an unresolved name stays
    return f"{host.lower()}:{address.port}"
