"""A server of our own that answers as a test wants it, also with nonsense."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from google.protobuf.message import Message

from howdah.hadoop import frames
from howdah.hadoop.address import Address
from howdah.hadoop.protos import common

NO_ANSWER = b""


@dataclasses.dataclass(frozen=True)
class Request:
    """A call as it arrived."""

    call_id: int
    retry: int
    client_id: bytes
    method: str
    body: bytes


Handler = Callable[[Request], Awaitable[bytes | None] | bytes | None]
"""The bytes to send; `NO_ANSWER` for none; None to close the connection."""


def answer(request: Request, message: Message) -> bytes:
    """A good answer."""
    return frames.frame(common.RpcResponseHeaderProto(callId=request.call_id, status=0), message)


def refusal(call_id: int, class_name: str, text: str = "", *, fatal: bool = False) -> bytes:
    """An exception as answer."""
    statuses = common.RpcResponseHeaderProto.RpcStatusProto
    return frames.frame(
        common.RpcResponseHeaderProto(
            callId=call_id & 0xFFFFFFFF,
            status=statuses.FATAL if fatal else statuses.ERROR,
            exceptionClassName=class_name,
            errorMsg=f"{class_name}: {text}\n\tat org.apache.hadoop.Some.method(Some.java:1)",
        )
    )


class StandIn:
    """A listening server. Counts connections and keeps the requests it got."""

    def __init__(self, handler: Handler, *, greeting: bytes | None = None) -> None:
        """``greeting`` is sent to whoever connects, instead of listening to them."""
        self._handler = handler
        self._greeting = greeting
        self.requests: list[Request] = []
        self.contexts: list[common.IpcConnectionContextProto] = []
        self.pings = 0
        self.connections = 0
        self._open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Stop listening, end all connections."""
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        self.connections += 1
        try:
            if self._greeting is not None:
                writer.write(self._greeting)
                await reader.read()
                return
            assert (await reader.readexactly(7))[:5] == b"hrpc\x09"
            while True:
                (length,) = struct.unpack(">I", await reader.readexactly(4))
                if not await self._take(await reader.readexactly(length), writer):
                    return
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _take(self, data: bytes, writer: asyncio.StreamWriter) -> bool:
        parts: list[bytes] = []
        at = 0
        while at < len(data):
            size, at = frames.read_varint(data, at)
            parts.append(data[at : at + size])
            at += size
        header = common.RpcRequestHeaderProto.FromString(parts[0])
        if header.callId == frames.CALL_CONNECTION_CONTEXT:
            self.contexts.append(common.IpcConnectionContextProto.FromString(parts[1]))
            return True
        if header.callId == frames.CALL_PING:
            self.pings += 1
            return True
        what = common.RequestHeaderProto.FromString(parts[1])
        request = Request(
            header.callId, header.retryCount, header.clientId, what.methodName, parts[2]
        )
        self.requests.append(request)
        reply = self._handler(request)
        if not isinstance(reply, bytes) and reply is not None:
            reply = await reply
        if reply is None:
            return False
        writer.write(reply)
        return True
