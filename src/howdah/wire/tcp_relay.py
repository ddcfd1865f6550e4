"""A TCP connection carried over a channel: bytes both ways in `TunnelData`, an empty one is the end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from howdah.wire.channel import Channel
from howdah.wire.messages import TunnelData

CHUNK = 64 * 1024


async def relay(
    channel: Channel[Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Bytes of a TCP connection to a channel and back, until both ends or either breaks."""
    both = [
        asyncio.create_task(_to_channel(reader, channel)),
        asyncio.create_task(_from_channel(channel, writer)),
    ]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        writer.close()


async def _to_channel(reader: asyncio.StreamReader, channel: Channel[Any]) -> None:
    while True:
        data = await reader.read(CHUNK)
        channel.send(TunnelData(data=data))
        await channel.drain()
        if not data:
            return


async def _from_channel(channel: Channel[Any], writer: asyncio.StreamWriter) -> None:
    while True:
        message = await channel.receive()
        if not isinstance(message, TunnelData):
            raise ConnectionError(channel.problem or "the tunnel's other side is gone")
        if not message.data:
            with contextlib.suppress(OSError):
                writer.write_eof()
            return
        writer.write(message.data)
        await writer.drain()
