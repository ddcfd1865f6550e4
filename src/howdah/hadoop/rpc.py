"""Calls to a Hadoop service: one server, or several of which one is active.

`RpcClient` keeps one connection, over which any number of calls may wait at a time; opens it when
needed, again when it ended, to the next address when a server is gone or says that it is not the
active one. Which failures lead to another try is `retry.after`'s decision.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
import uuid
from collections.abc import Sequence
from typing import Self, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from howdah.hadoop import retry as retrying
from howdah.hadoop.address import Address
from howdah.hadoop.connection import Connection, ConnectionLimits
from howdah.hadoop.errors import (
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    HadoopError,
    ProtocolError,
)
from howdah.hadoop.frames import Call
from howdah.hadoop.retry import Next, RetryPolicy
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.identity import Identity

R = TypeVar("R", bound=Message)

_MAX_CALL_ID = 0x7FFFFFFF


class RpcClient:
    """Calls of one protocol, by one user, to the servers at some addresses.

    Not thread-safe: it belongs to the event loop that makes the calls.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        protocol: str,
        user: str | Identity,
        token: Token | None = None,
        *,
        retry: RetryPolicy | None = None,
        limits: ConnectionLimits | None = None,
    ) -> None:
        """``protocol`` is the Java name of the protocol's interface, ``user`` a name or more."""
        if not addresses:
            raise ValueError("an RpcClient needs at least one address")
        self.addresses: tuple[Address, ...] = tuple(addresses)
        self.protocol = protocol
        self.identity: Identity = user if isinstance(user, Identity) else Identity(user)
        if token is not None:
            self.use_token(token)
        self.retry: RetryPolicy = retry or RetryPolicy()
        self._limits = limits or ConnectionLimits()
        self._client_id = uuid.uuid4().bytes
        self._last_call_id = -1
        self._active = 0
        self._connections: dict[Address, Connection] = {}
        self._opening = asyncio.Lock()
        self._closed = False

    @property
    def address(self) -> Address:
        """The server that is asked now."""
        return self.addresses[self._active]

    def use_token(self, token: Token) -> None:
        """Authenticate with another token from the next connection on (tokens are rolled over)."""
        self.identity = dataclasses.replace(self.identity, token=token)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; calls that wait fail. No calls can be made any more."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    async def call(
        self,
        method: str,
        request: Message,
        response_type: type[R],
        *,
        timeout_s: float | None = None,
        try_timeout_s: float | None = None,
        idempotent: bool = True,
    ) -> R:
        """Make a call, as often as needed and allowed.

        ``timeout_s`` is the deadline of it all (else the policy's); ``idempotent`` says that
        the call may be made again when it is not known whether the server has executed it.
        ``try_timeout_s`` is for one try: by default the policy's, and none for what may not be
        made again.

        Raises:
            ConnectFailed: no server could be reached until the deadline.
            ConnectionLost: the connection ended and the call may not be made again.
            CallTimeout: no answer came in time.
            RemoteError: the server answered with an exception.
            AuthenticationError: client and server don't accept each other.
            ProtocolError: the request is incomplete or too large, or what came is no answer.
        """
        started = time.monotonic()
        deadline = started + (self.retry.max_wait_s if timeout_s is None else timeout_s)
        self._last_call_id = (self._last_call_id + 1) & _MAX_CALL_ID
        call = Call(self._last_call_id, self.protocol, method, request)
        if try_timeout_s is None and idempotent:
            try_timeout_s = self.retry.try_timeout_s
        tried: set[int] = set()
        rounds = 0
        while True:
            if self._closed:
                raise ConnectionLost(f"the client was closed before {method} was done")
            asked = self._active
            try:
                parts = len(self.addresses) - len(tried) if idempotent else 1
                data = await self._try(call, deadline, try_timeout_s, parts)
            except EncodeError as error:
                raise ProtocolError(f"{method}: the request is incomplete: {error}") from None
            except HadoopError as error:
                step = retrying.after(error, idempotent)
                if step is Next.GIVE_UP or self._closed:
                    raise
                tried.add(asked)
                if step is Next.OTHER and self._active == asked:
                    self._active = (asked + 1) % len(self.addresses)
                delay_s = 0.0
                if step is Next.SAME or len(tried) == len(self.addresses):
                    delay_s = self.retry.delay_s(rounds)
                    rounds += 1
                    tried.clear()
                    if time.monotonic() + delay_s >= deadline:
                        if not isinstance(error, ConnectFailed):
                            raise
                        waited_s = time.monotonic() - started
                        raise self._unreachable(error, method, waited_s) from error
                await asyncio.sleep(delay_s)
                call = dataclasses.replace(call, retry=call.retry + 1)
                continue
            try:
                answer = response_type.FromString(data)
                _check_texts(answer)
            except (DecodeError, UnicodeDecodeError) as error:
                raise ProtocolError(
                    f"{self.address}: the answer to {method} is no {response_type.__name__}: {error}"
                ) from None
            return answer

    async def _try(
        self, call: Call, deadline: float, try_timeout_s: float | None, parts: int
    ) -> bytes:
        """``parts``: how many tries of this round are to have the time that is left."""
        connection = await self._reach(deadline)
        sent_at = time.monotonic()
        left_s = max(0.001, deadline - sent_at)
        timeout_s = max(min(1.0, left_s), left_s / parts)
        if try_timeout_s is not None:
            timeout_s = min(timeout_s, try_timeout_s)
        try:
            return await connection.call(call, timeout_s)
        except CallTimeout:
            if connection.received_at < sent_at:
                # Not a word since: it is the server or the way to it that hangs, not the call.
                silent = f"{connection.address} was silent for {timeout_s:g} s"
                connection.close(ConnectionLost(silent))
            raise

    async def _reach(self, deadline: float) -> Connection:
        """A connection, in time for the other addresses to be tried as well."""
        address = self.address
        left_s = max(0.1, deadline - time.monotonic())
        share_s = max(min(1.0, left_s), left_s / len(self.addresses))
        try:
            async with asyncio.timeout(share_s):
                return await self._connected()
        except HadoopError:
            raise
        except TimeoutError:
            raise ConnectFailed(f"{address} did not answer within {share_s:.1f} s") from None

    async def _connected(self) -> Connection:
        # After a fail-over, calls that still wait at the former server may yet be answered there:
        # its connection stays until it is idle.
        connection = self._connections.get(self.address)
        if connection is not None and not connection.closed:
            return connection
        async with self._opening:
            address = self.address
            connection = self._connections.get(address)
            if connection is None or connection.closed:
                connection = await Connection.open(
                    address, self.protocol, self.identity, self._client_id, self._limits
                )
                if self._closed:
                    connection.close()
                    raise ConnectionLost("the client was closed")
                self._connections[address] = connection
            return connection

    def _unreachable(self, error: HadoopError, method: str, waited_s: float) -> ConnectFailed:
        places = ", ".join(map(str, self.addresses))
        return ConnectFailed(
            f"{method}: no server at {places} could be reached for {waited_s:.1f} s; the last"
            f" answer was: {error}"
        )


def _check_texts(message: Message) -> None:
    """Raises `UnicodeDecodeError` for a text that is not UTF-8: protobuf hands such out as bytes."""
    for name, is_text, is_list in _fields(type(message)):
        if is_list:
            for each in getattr(message, name):
                _check(each)
        elif is_text or message.HasField(name):
            _check(getattr(message, name))


def _check(value: Message | str | bytes) -> None:
    if isinstance(value, bytes):
        value.decode()
    elif not isinstance(value, str):
        _check_texts(value)


@functools.cache
def _fields(kind: type[Message]) -> list[tuple[str, bool, bool]]:
    """A message's texts and messages by name, as reports of thousands of nodes have them: whether
    they are texts, whether there are many."""
    empty = kind()
    return [
        (
            field.name,
            field.type == FieldDescriptor.TYPE_STRING,
            not isinstance(getattr(empty, field.name), (str, Message)),
        )
        for field in kind.DESCRIPTOR.fields
        if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE)
    ]
