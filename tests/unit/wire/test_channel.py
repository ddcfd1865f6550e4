from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from howdah.core.messages import Task
from howdah.wire import sockets
from howdah.wire.channel import Channel, ChannelClosed
from howdah.wire.frames import FrameError, encode
from howdah.wire.messages import MAX_FRAME, Heartbeat, LogChunk, Refuse, Welcome
from howdah.wire.tls import PeerRole
from tests.unit.wire.rig import JOB, agent, greet, hello, lives, run, serving


def chunk(size: int, offset: int = 0) -> LogChunk:
    return LogChunk(task=Task("worker", 0), attempt=1, offset=offset, data=bytes(size))


async def test_each_side_knows_who_the_other_is() -> None:
    peers: list[Any] = []

    async def handler(channel: Channel[Any]) -> None:
        peers.append(channel.peer)
        await greet(channel)

    async with serving(handler) as port:
        channel = await agent(port)
        channel.send(hello())
        await channel.receive()
        assert channel.peer.role is PeerRole.COORDINATOR
        assert channel.peer.is_of(JOB)
        assert peers[0].role is PeerRole.AGENT
        assert peers[0].is_of(JOB)
        assert peers[0].host == "127.0.0.1"


async def test_messages_of_all_sizes_arrive_in_order_both_ways() -> None:
    sizes = [0, 1, 1000, 16_384, 16_385, 300_000, MAX_FRAME - 1000, 5]

    async def echo(channel: Channel[Any]) -> None:
        while (message := await channel.receive()) is not None:
            channel.send(message)
            await channel.drain()

    async with serving(echo) as port:
        channel = await agent(port, receives=LogChunk)
        for size in sizes:
            channel.send(chunk(size))
            await channel.drain()
        echoed = [await channel.receive() for _ in sizes]
        assert [len(message.data) for message in echoed if message] == sizes


async def test_what_was_sent_before_closing_still_arrives_and_then_nothing() -> None:
    received: list[Any] = []
    done = asyncio.Event()

    async def handler(channel: Channel[Any]) -> None:
        while (message := await channel.receive()) is not None:
            received.append(message)
        assert await channel.receive() is None
        assert channel.problem == ""
        done.set()

    async with serving(handler) as port:
        channel = await agent(port)
        for attempt in range(100):
            channel.send(Heartbeat(attempt=attempt))
        channel.close()
        await channel.wait_closed()
        await done.wait()
        assert [beat.attempt for beat in received] == list(range(100))
        assert channel.closed


async def test_a_receive_that_timed_out_loses_no_message() -> None:
    async with serving() as port:
        channel = await agent(port)
        with pytest.raises(TimeoutError):
            await channel.receive(timeout_s=0.02)
        channel.send(hello(5))
        assert await channel.receive() == Welcome(incarnation=5)


async def test_a_cancelled_receive_leaves_the_channel_usable() -> None:
    async with serving() as port:
        channel = await agent(port)
        waiting = asyncio.create_task(channel.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        channel.send(hello(5))
        assert await channel.receive() == Welcome(incarnation=5)


async def test_the_peers_end_wakes_whoever_waits() -> None:
    async def leave(channel: Channel[Any]) -> None:
        await channel.receive()

    async with serving(leave) as port:
        channel = await agent(port)
        channel.send(hello())
        assert await channel.receive() is None
        await channel.wait_closed()


async def test_a_failing_handler_ends_its_own_connection_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fragile(channel: Channel[Any]) -> None:
        first = await channel.receive()
        if first is not None and first.pid == 13:
            raise RuntimeError("unlucky")
        channel.send(Welcome(incarnation=0))
        await greet(channel)

    async with serving(fragile) as port:
        good, bad = await agent(port), await agent(port)
        good.send(hello(1))
        assert await good.receive()
        bad.send(hello(13))
        assert await bad.receive() is None
        assert await lives(good, 0)
    assert "unlucky" in caplog.text


async def test_dispatch_hands_over_what_waits_and_what_comes_in_order() -> None:
    received: list[int] = []

    async def handler(channel: Channel[Any]) -> None:
        await channel.receive()
        await asyncio.sleep(0.05)  # some beats are waiting by now
        await channel.dispatch(lambda beat: received.append(beat.attempt))
        received.append(-1)

    async with serving(handler) as port:
        channel = await agent(port)
        channel.send(hello())
        for attempt in range(200):
            channel.send(Heartbeat(attempt=attempt))
            if attempt % 20 == 0:
                await asyncio.sleep(0.005)
        channel.close()
        while -1 not in received:
            await asyncio.sleep(0.005)
        assert received == [*range(200), -1]


async def test_dispatch_raises_what_its_function_raises_and_the_channel_ends() -> None:
    raised = asyncio.get_running_loop().create_future()

    def refuse(beat: Heartbeat) -> None:
        raise RuntimeError("no more")

    async def handler(channel: Channel[Any]) -> None:
        await channel.receive()
        try:
            await channel.dispatch(refuse)
        except RuntimeError as error:
            raised.set_result(str(error))

    async with serving(handler) as port:
        channel = await agent(port)
        channel.send(hello())
        channel.send(Heartbeat())
        await asyncio.sleep(0.02)
        channel.send(Heartbeat())
        assert await raised == "no more"
        assert await channel.receive() is None


async def test_a_message_too_large_is_refused_and_the_channel_unharmed() -> None:
    async with serving() as port:
        channel = await agent(port)
        channel.send(hello())
        await channel.receive()
        with pytest.raises(FrameError, match="exceeds the limit"):
            channel.send(chunk(MAX_FRAME))
        assert await lives(channel)


async def test_one_encoding_can_go_to_many_channels() -> None:
    async with serving() as port:
        channel = await agent(port)
        channel.send(hello())
        await channel.receive()
        channel.send_frame(encode(Heartbeat(attempt=3)))
        assert await channel.receive() == Welcome(incarnation=3)


async def test_on_a_closed_channel_send_does_nothing_and_drain_tells() -> None:
    async with serving() as port:
        channel = await agent(port)
        channel.abort("enough")
        channel.send(hello())
        with pytest.raises(ChannelClosed, match="enough"):
            await channel.drain()
        await channel.wait_closed()


async def test_drain_waits_for_a_slow_reader_and_goes_on_with_it() -> None:
    start = asyncio.Event()
    received = 0

    async def slow(channel: Channel[Any]) -> None:
        nonlocal received
        await channel.receive()
        await start.wait()
        while await channel.receive() is not None:
            received += 1

    async with serving(slow) as port:
        channel = await agent(port)
        channel.send(hello())

        async def flood() -> None:
            for number in range(64):
                channel.send(chunk(1_000_000, number))
                await channel.drain()

        flooding = asyncio.create_task(flood())
        await asyncio.sleep(0.3)
        # Neither side holds 64 MB: the sender waits, for the receiver stopped reading.
        assert not flooding.done()
        start.set()
        await flooding
        channel.close()
        while received < 64:
            await asyncio.sleep(0.01)


def test_a_peer_that_does_not_read_is_cut_off_above_the_backlog(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def body() -> None:
        problems: list[str] = []

        async def pour(channel: Channel[Any]) -> None:
            first = await channel.receive()
            if first is None or first.pid == 1:
                channel.send(Welcome())
                await greet(channel)
                return
            while not channel.closed:
                channel.send(Refuse(reason="x" * 500_000))
                await asyncio.sleep(0)
            problems.append(channel.problem)

        async with serving(pour, backlog_bytes=2_000_000) as port:
            good, deaf = await agent(port), await agent(port)
            good.send(hello(1))
            assert await good.receive()
            deaf.send(hello(2))
            while not problems:
                await asyncio.sleep(0.01)
            assert "does not read" in problems[0]
            assert await lives(good, 0)
            deaf.abort()

    with caplog.at_level(logging.WARNING):
        run(body())
    assert "more than the limit of 2000000" in caplog.text


async def test_a_message_of_any_size_may_be_sent_to_a_peer_that_reads() -> None:
    # The limit is for what stays waiting, not for a single message.
    async def handler(channel: Channel[Any]) -> None:
        await channel.receive()
        channel.send(Refuse(reason="x" * 3_000_000))
        await channel.receive()

    async with serving(handler, backlog_bytes=1_000_000) as port:
        channel = await agent(port)
        channel.send(hello())
        message = await channel.receive()
        assert message is not None
        assert len(message.reason) == 3_000_000


async def test_connecting_to_nobody_fails_at_once_and_to_somebody_silent_within_the_deadline() -> (
    None
):
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(OSError):
        await agent(port, timeout_s=0.2)
    server.close()
    await server.wait_closed()
    with pytest.raises(ConnectionRefusedError):
        await agent(port)


async def test_without_asyncios_private_parts_it_is_still_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changed(*arguments: Any) -> Any:
        raise TypeError("SSLProtocol takes other arguments now")

    monkeypatch.setattr(sockets, "_SharedBufferTls", changed)

    async with serving() as port:
        channel = await agent(port)
        channel.send(hello())
        assert await channel.receive()
        assert channel.peer.role is PeerRole.COORDINATOR


async def test_many_connections_share_a_buffer_and_mix_nothing_up() -> None:
    async with serving() as port:
        channels = await asyncio.gather(*(agent(port) for _ in range(40)))
        for number, channel in enumerate(channels):
            channel.send(hello(number))
        for number, channel in enumerate(channels):
            assert await channel.receive() == Welcome(incarnation=number)
        for _ in range(5):
            answers = await asyncio.gather(
                *(lives(channel, number) for number, channel in enumerate(channels))
            )
            assert all(answers)


async def test_a_thousand_can_knock_at_once_and_those_who_say_nothing_hold_nobody_up() -> None:
    async with serving() as port:
        # While this loop does nothing else: the kernel must keep them all.
        silent = [socket.create_connection(("127.0.0.1", port), 2.0) for _ in range(300)]
        channel = await agent(port)
        channel.send(hello(5))
        assert await channel.receive() == Welcome(incarnation=5)
        for each in silent:
            each.close()
