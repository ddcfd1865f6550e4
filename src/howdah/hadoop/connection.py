"""One connection to a Hadoop server: set up, authenticated, many calls at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

from google.protobuf.message import DecodeError

from howdah.hadoop import frames
from howdah.hadoop.address import Address
from howdah.hadoop.errors import (
    AuthenticationError,
    AuthenticationRefused,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    HadoopError,
    ProtocolError,
)
from howdah.hadoop.protos import common
from howdah.hadoop.security import sasl
from howdah.hadoop.security.digest import Layer
from howdah.hadoop.security.identity import Identity

_READ_BYTES = 65536
_GSS = "GSS initiate failed"


class ConnectionLimits(NamedTuple):
    """What a connection may take.

    Attributes:
        connect_timeout_s: to connect and to authenticate, each.
        max_response_bytes: one answer.
        max_request_bytes: one request; a server closes the connection above its own limit
            (``ipc.maximum.data.length``).
        idle_s: an unused connection is closed after this time; None keeps it.
        ping_s: a ping goes out when calls wait and nothing was sent for so long, so that a peer
            that is gone is noticed.
    """

    connect_timeout_s: float = 20.0
    max_response_bytes: int = 128 << 20
    max_request_bytes: int = 64 << 20
    idle_s: float | None = 10.0
    ping_s: float = 30.0


class Connection:
    """An open connection. `open` makes one; after `closed` it is of no use any more."""

    def __init__(
        self,
        address: Address,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: bytes,
        limits: ConnectionLimits,
    ) -> None:
        self.address = address
        self.received_at: float = time.monotonic()
        self._reader = reader
        self._writer = writer
        self._client_id = client_id
        self._limits = limits
        self._frames = frames.FrameReader(limits.max_response_bytes)
        self._arrived: list[bytes] = []
        self._inner: frames.FrameReader | None = None
        self._layer: Layer | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._ended: HadoopError | None = None
        self._reading: asyncio.Task[None] | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._used_at = self._sent_at = self.received_at

    @classmethod
    async def open(
        cls,
        address: Address,
        protocol: str,
        identity: Identity,
        client_id: bytes,
        limits: ConnectionLimits,
    ) -> Connection:
        """Connect, authenticate, say which protocol follows.

        Raises:
            ConnectFailed: there is nobody, or no answer in time.
            AuthenticationError: no way to authenticate that both accept.
            RemoteError: the server refused.
            TransportError: the server ended the connection, or is none of Hadoop's.
        """
        try:
            async with asyncio.timeout(limits.connect_timeout_s):
                reader, writer = await asyncio.open_connection(address.host, address.port)
        except TimeoutError:
            raise ConnectFailed(
                f"{address} did not accept a connection within {limits.connect_timeout_s:g} s"
            ) from None
        except (OSError, UnicodeError) as error:
            raise ConnectFailed(f"{address} can't be reached: {_reason(error)}") from error
        connection = cls(address, reader, writer, client_id, limits)
        try:
            with contextlib.suppress(OSError):
                raw: socket.socket = writer.get_extra_info("socket")
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            async with asyncio.timeout(limits.connect_timeout_s):
                await connection._begin(protocol, identity)
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError) and not isinstance(error, HadoopError):
                raise ConnectFailed(
                    f"{address} did not answer within {limits.connect_timeout_s:g} s of connecting"
                ) from None
            if isinstance(error, OSError):
                raise ConnectFailed(
                    f"{address} ended the connection at its beginning: {_reason(error)}"
                ) from error
            raise
        return connection

    @property
    def closed(self) -> bool:
        """No calls can be made any more."""
        return self._ended is not None

    async def call(self, call: frames.Call, timeout_s: float) -> bytes:
        """The bytes of a call's answer.

        Raises:
            CallTimeout: there was none in time.
            ConnectionLost: the connection ended before.
            RemoteError: the server answered with an exception.
            ProtocolError: the request is too large, or what came is no answer.
        """
        if self._ended is not None:
            raise self._ended
        data = call.frame(self._client_id)
        if len(data) > self._limits.max_request_bytes:
            raise ProtocolError(
                f"{call.method} has {len(data)} bytes, more than the"
                f" {self._limits.max_request_bytes} allowed (ipc.maximum.data.length)"
            )
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[call.call_id] = answer
        self._write(data)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            raise CallTimeout(
                f"{self.address} did not answer {call.method} within {timeout_s:g} s"
            ) from None
        finally:
            self._waiting.pop(call.call_id, None)
            self._used_at = time.monotonic()

    def close(self, reason: HadoopError | None = None) -> None:
        """End the connection and all calls that wait."""
        if self._ended is None:
            self._ended = reason or ConnectionLost(f"the connection to {self.address} was closed")
        if self._pulse is not None:
            self._pulse.cancel()
        if self._reading is not None and self._reading is not asyncio.current_task():
            self._reading.cancel()
        if self._waiting:
            self._writer.transport.abort()  # nobody is there to take what is still to be sent
        else:
            self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._ended)
        self._waiting.clear()

    async def wait_closed(self) -> None:
        """Until everything of a closed connection is gone."""
        if self._reading is not None:
            await asyncio.gather(self._reading, return_exceptions=True)
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # Beginning

    async def _begin(self, protocol: str, identity: Identity) -> None:
        if not identity.negotiates and not identity.allow_simple:
            raise AuthenticationError(
                f"{self.address}: the configuration demands authentication, but there is neither"
                " a token nor Kerberos"
            )
        context = common.IpcConnectionContextProto(protocol=protocol)
        auth = frames.AUTH_SASL if identity.negotiates else frames.AUTH_NONE
        self._writer.write(frames.connection_header(auth))
        try:
            method = await self._authenticate(identity) if identity.negotiates else "SIMPLE"
        except AuthenticationRefused as error:
            if _GSS not in str(error):
                raise
            raise AuthenticationError(
                f"{self.address} does not accept the Kerberos ticket ({error.message}), and says no more:"
                " compare its clock with the KDC's, its keytab with the KDC's keys (klist -kte), and"
                " read its log"
            ) from error
        # A token names its user itself; so does a ticket, unless another is acted for.
        if method == "SIMPLE" or (method == "KERBEROS" and identity.real_user):
            context.userInfo.effectiveUser = identity.user
        if method == "SIMPLE" and identity.real_user:
            context.userInfo.realUser = identity.real_user
        self._write(frames.special_frame(frames.CALL_CONNECTION_CONTEXT, self._client_id, context))
        self._reading = asyncio.create_task(self._read(), name=f"hadoop rpc {self.address}")
        self._beat()

    async def _authenticate(self, identity: Identity) -> str:
        """Negotiate as ``SaslRpcClient.saslConnect`` does; the method that was agreed on."""
        states = common.RpcSaslProto.SaslState
        self._send_sasl(common.RpcSaslProto(state=states.NEGOTIATE))
        mechanism: sasl.Mechanism | None = None
        method = "SIMPLE"
        while True:
            said = await self._receive_sasl()
            if said.state == states.NEGOTIATE and mechanism is None:
                chosen = sasl.choose(identity, said.auths)
                method = chosen.method
                if method == "SIMPLE":
                    return method
                # A name service and the KDC may be asked.
                mechanism = await asyncio.to_thread(sasl.mechanism, identity, chosen, self._hosts)
                if chosen.HasField("challenge"):
                    token = mechanism.evaluate(chosen.challenge)
                    chosen.ClearField("challenge")
                else:
                    token = await asyncio.to_thread(mechanism.initial)
                self._send_sasl(
                    common.RpcSaslProto(state=states.INITIATE, token=token, auths=[chosen])
                )
            elif said.state == states.CHALLENGE and mechanism is not None:
                token = await asyncio.to_thread(mechanism.evaluate, said.token)
                self._send_sasl(common.RpcSaslProto(state=states.RESPONSE, token=token))
            elif said.state == states.SUCCESS:
                if mechanism is None:
                    # A server without security answers so at once, whatever is offered to it.
                    sasl.check_simple(identity)
                    return "SIMPLE"
                mechanism.finish(said.token)
                self._layer = mechanism.layer
                if self._layer is not None:
                    self._inner = frames.FrameReader(self._limits.max_response_bytes)
                return method
            else:
                name = common.RpcSaslProto.SaslState.Name(said.state)
                raise AuthenticationError(f"{self.address} sent {name} out of order")

    def _hosts(self) -> Iterator[str]:
        """The server's name as it is configured, then as the name service has it."""
        yield self.address.host
        with contextlib.suppress(OSError):
            peer = self._writer.get_extra_info("peername")[0]
            yield socket.gethostbyaddr(peer)[0]

    def _send_sasl(self, message: common.RpcSaslProto) -> None:
        self._writer.write(frames.special_frame(frames.CALL_SASL, b"", message))

    async def _receive_sasl(self) -> common.RpcSaslProto:
        while not self._arrived:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise ConnectFailed(f"{self.address} closed the connection while authenticating")
            self._arrived += self._frames.feed(data)
        response = frames.parse_response(self._arrived.pop(0))
        if response.error is not None:
            raise response.error
        if response.call_id != frames.CALL_SASL:
            raise ProtocolError(f"{self.address} answered a call while authenticating")
        try:
            return common.RpcSaslProto.FromString(response.body)
        except DecodeError as error:
            raise ProtocolError(f"{self.address} sent a malformed SASL message: {error}") from None

    # Running

    def _write(self, data: bytes) -> None:
        self._sent_at = self._used_at = time.monotonic()
        if self._layer is None:
            self._writer.write(data)
            return
        step = self._layer.max_plain_bytes
        for at in range(0, len(data), step):
            piece = common.RpcSaslProto(
                state=common.RpcSaslProto.SaslState.WRAP,
                token=self._layer.wrap(data[at : at + step]),
            )
            self._writer.write(frames.special_frame(frames.CALL_SASL, b"", piece))

    async def _read(self) -> None:
        try:
            while True:
                for frame in self._arrived:
                    self._take(frame)
                self._arrived.clear()
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    self.close(ConnectionLost(f"{self.address} closed the connection"))
                    return
                self.received_at = time.monotonic()
                self._arrived += self._frames.feed(data)
        except HadoopError as error:
            if isinstance(error, ProtocolError):
                error = ProtocolError(f"{self.address}: {error}")
            self.close(error)
        except OSError as error:
            lost = ConnectionLost(f"the connection to {self.address} ended: {error}")
            self.close(lost)
        except Exception as error:
            # Whatever a peer's bytes make a decoder raise is the peer's fault.
            self.close(ProtocolError(f"{self.address} sent what can't be read: {error!r}"))

    def _take(self, frame: bytes) -> None:
        response = frames.parse_response(frame)
        if self._layer is None or self._inner is None:
            self._answer(response)
            return
        if response.call_id == frames.CALL_SASL and response.error is not None:
            raise response.error
        if response.call_id != frames.CALL_SASL:
            raise ProtocolError("an unprotected answer came on a protected connection")
        piece = common.RpcSaslProto.FromString(response.body)
        if piece.state != common.RpcSaslProto.SaslState.WRAP:
            raise ProtocolError("a SASL message came that is no protected piece")
        for inner in self._inner.feed(self._layer.unwrap(piece.token)):
            self._answer(frames.parse_response(inner))

    def _answer(self, response: frames.Response) -> None:
        waiting = self._waiting.get(response.call_id)
        if waiting is not None and not waiting.done():
            if response.error is not None:
                waiting.set_exception(response.error)
            else:
                waiting.set_result(response.body)
        elif response.error is not None and response.call_id < 0:
            self.close(response.error)  # the server refused the connection itself
            return
        if response.fatal:
            self.close(response.error)

    def _beat(self) -> None:
        """Ping while calls wait, close when nothing is done for long."""
        if self._ended is not None:
            return
        now = time.monotonic()
        idle_s = self._limits.idle_s
        due = now + self._limits.ping_s
        if self._waiting:
            if now >= self._sent_at + self._limits.ping_s:
                self._write(frames.special_frame(frames.CALL_PING, self._client_id))
            due = self._sent_at + self._limits.ping_s
        elif idle_s is not None:
            if now >= self._used_at + idle_s:
                self.close()
                return
            due = min(due, self._used_at + idle_s)
        loop = asyncio.get_running_loop()
        self._pulse = loop.call_later(max(0.01, due - now), self._beat)


def _reason(error: OSError | UnicodeError) -> str:
    """An error in the system's words; asyncio puts its own in their place."""
    if isinstance(error, OSError) and error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error)
