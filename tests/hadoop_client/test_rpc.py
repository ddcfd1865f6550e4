"""Calls over connections that behave as in real life: refused, closed, silent, or nonsense."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

import pytest

from howdah.hadoop import errors, frames
from howdah.hadoop.address import Address
from howdah.hadoop.connection import ConnectionLimits
from howdah.hadoop.protos import common
from howdah.hadoop.retry import RetryPolicy
from howdah.hadoop.rpc import RpcClient
from howdah.hadoop.security.identity import Identity
from tests.hadoop_client.standin import NO_ANSWER, Request, StandIn, answer, refusal

PROTOCOL = "org.example.Protocol"
QUICK = RetryPolicy(max_wait_s=5.0, first_delay_s=0.01, max_delay_s=0.05)
IN_ONE_ROUND = RetryPolicy(60.0, first_delay_s=200.0, max_delay_s=200.0)
"""Each address is asked once: the deadline is before the next round."""
STANDBY = "org.apache.hadoop.ipc.StandbyException"


def client(*addresses: Address, retry: RetryPolicy = QUICK, **limits: float | None) -> RpcClient:
    return RpcClient(addresses, PROTOCOL, "alice", retry=retry, limits=ConnectionLimits(**limits))  # pyright: ignore


async def ask(rpc: RpcClient, text: str = "x", **options: object) -> str:
    """A call whose answer is its own text."""
    request = common.GetDelegationTokenRequestProto(renewer=text)
    reply = await rpc.call("echo", request, common.GetDelegationTokenRequestProto, **options)  # pyright: ignore
    return reply.renewer


def echo(request: Request) -> bytes:
    return answer(request, common.GetDelegationTokenRequestProto.FromString(request.body))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


async def test_a_call_carries_user_protocol_and_method() -> None:
    async with StandIn(echo) as server, client(server.address) as rpc:
        assert await ask(rpc, "hello") == "hello"
        (context,) = server.contexts
        assert context.protocol == PROTOCOL
        assert context.userInfo.effectiveUser == "alice"
        assert server.requests[0].method == "echo"


async def test_an_impersonated_user_comes_with_the_real_one() -> None:
    async with StandIn(echo) as server:
        identity = Identity("alice", real_user="service")
        async with RpcClient([server.address], PROTOCOL, identity) as rpc:
            await ask(rpc)
        assert server.contexts[0].userInfo.realUser == "service"


async def test_calls_share_one_connection_and_answers_come_in_any_order() -> None:
    held: list[Request] = []

    def handler(request: Request) -> bytes | object:
        held.append(request)
        if len(held) < 3:
            return NO_ANSWER
        return b"".join(echo(each) for each in reversed(held))

    async with StandIn(handler) as server, client(server.address) as rpc:  # pyright: ignore
        texts = await asyncio.gather(*(ask(rpc, text) for text in "abc"))
        assert texts == ["a", "b", "c"]
        assert server.connections == 1
        assert len({request.call_id for request in server.requests}) == 3


async def test_an_exception_keeps_class_name_and_message() -> None:
    name = "org.apache.hadoop.yarn.exceptions.ApplicationNotFoundException"
    async with StandIn(lambda r: refusal(r.call_id, name, "no such thing")) as server:
        async with client(server.address) as rpc:
            with pytest.raises(errors.ApplicationNotFound) as caught:
                await ask(rpc)
    assert caught.value.class_name == name
    assert caught.value.message == "no such thing"
    assert "Some.java" in caught.value.details
    assert str(caught.value) == "ApplicationNotFoundException: no such thing"


async def test_an_unknown_exception_is_a_plain_remote_error_and_the_connection_stays() -> None:
    def handler(request: Request) -> bytes:
        return refusal(request.call_id, "a.b.C$D", "odd") if not request.call_id else echo(request)

    async with StandIn(handler) as server, client(server.address) as rpc:
        with pytest.raises(errors.RemoteError, match="D: odd"):
            await ask(rpc)
        assert await ask(rpc) == "x"
        assert server.connections == 1


async def test_a_fatal_answer_ends_the_connection_and_all_calls_on_it() -> None:
    def handler(request: Request) -> bytes:
        if len(server.requests) < 2:
            return NO_ANSWER
        return refusal(-1, "org.apache.hadoop.security.AccessControlException", "go", fatal=True)

    async with StandIn(handler) as server, client(server.address) as rpc:
        results = await asyncio.gather(ask(rpc), ask(rpc), return_exceptions=True)
        assert all(isinstance(result, errors.AccessControl) for result in results)


async def test_an_idempotent_call_is_made_again_when_the_server_closes_midway() -> None:
    def handler(request: Request) -> bytes | None:
        return None if request.retry < 2 else echo(request)

    async with StandIn(handler) as server, client(server.address) as rpc:
        assert await ask(rpc) == "x"
        # The server can recognise it: same client, same call, counted.
        assert [r.retry for r in server.requests] == [0, 1, 2]
        assert len({(r.client_id, r.call_id) for r in server.requests}) == 1


async def test_another_call_is_not_made_again_when_the_server_closes_midway() -> None:
    async with StandIn(lambda r: None) as server, client(server.address) as rpc:
        with pytest.raises(errors.ConnectionLost):
            await ask(rpc, idempotent=False)
        assert len(server.requests) == 1


async def test_what_was_not_sent_is_always_sent_to_the_next_server() -> None:
    nobody = Address("127.0.0.1", free_port())
    async with StandIn(echo) as server, client(nobody, server.address) as rpc:
        assert await ask(rpc, idempotent=False) == "x"
        assert rpc.address == server.address


async def test_a_standby_server_is_left_at_once_and_remembered() -> None:
    async with (
        StandIn(lambda r: refusal(r.call_id, STANDBY, "not me")) as standby,
        StandIn(echo) as active,
        client(standby.address, active.address, retry=IN_ONE_ROUND) as rpc,
    ):
        assert await ask(rpc, idempotent=False) == "x"
        assert await ask(rpc) == "x"
        assert len(standby.requests) == 1


async def test_two_standby_servers_are_asked_until_one_is_active() -> None:
    def handler(request: Request) -> bytes:
        return refusal(request.call_id, STANDBY) if len(first.requests) < 4 else echo(request)

    async with (
        StandIn(handler) as first,
        StandIn(handler) as second,
        client(first.address, second.address) as rpc,
    ):
        assert await ask(rpc) == "x"
        assert len(second.requests) >= 3


async def test_concurrent_calls_fail_over_once_together() -> None:
    async with (
        StandIn(lambda r: refusal(r.call_id, STANDBY)) as standby,
        StandIn(echo) as active,
        client(standby.address, active.address) as rpc,
    ):
        texts = [str(i) for i in range(20)]
        assert await asyncio.gather(*(ask(rpc, text) for text in texts)) == texts
        assert rpc.address == active.address


async def test_a_server_that_asks_for_patience_is_asked_again() -> None:
    def handler(request: Request) -> bytes:
        name = "org.apache.hadoop.ipc.RetriableException"
        return refusal(request.call_id, name) if request.retry < 2 else echo(request)

    async with StandIn(handler) as server, client(server.address) as rpc:
        assert await ask(rpc, idempotent=False) == "x"
        assert server.connections == 1


async def test_nobody_there_is_an_error_that_names_the_addresses() -> None:
    nobody = Address("127.0.0.1", free_port())
    async with client(nobody, retry=IN_ONE_ROUND) as rpc:
        with pytest.raises(errors.ConnectFailed, match=f"{nobody}.*refused"):
            await ask(rpc)


async def test_an_unknown_host_is_an_error_that_names_it() -> None:
    async with client(Address("no-such-host.invalid", 1), retry=IN_ONE_ROUND) as rpc:
        with pytest.raises(errors.ConnectFailed, match="no-such-host.invalid:1"):
            await ask(rpc)


async def test_the_deadline_holds_for_all_tries_together() -> None:
    async with StandIn(lambda r: NO_ANSWER) as server:
        policy = RetryPolicy(try_timeout_s=0.1, first_delay_s=0.01)
        async with client(server.address, retry=policy) as rpc:
            begun = time.monotonic()
            with pytest.raises(errors.CallTimeout, match="echo"):
                await ask(rpc, timeout_s=0.5)
            assert 0.4 < time.monotonic() - begun < 10.0
            assert len(server.requests) > 1


async def test_a_silent_connection_is_given_up_and_the_next_server_asked() -> None:
    async with StandIn(lambda r: NO_ANSWER) as silent, StandIn(echo) as good:
        policy = RetryPolicy(5.0, try_timeout_s=0.2, first_delay_s=0.01)
        async with client(silent.address, good.address, retry=policy) as rpc:
            assert await ask(rpc) == "x"


async def test_a_silent_server_leaves_time_for_the_next_where_one_try_may_take_all_of_it() -> None:
    async def takes_its_time(request: Request) -> bytes:
        await asyncio.sleep(0.1)
        return echo(request)

    async with StandIn(lambda r: NO_ANSWER) as silent, StandIn(takes_its_time) as good:
        policy = RetryPolicy(3.0, try_timeout_s=3.0, first_delay_s=0.01)
        async with client(silent.address, good.address, retry=policy) as rpc:
            assert await ask(rpc) == "x"
            assert silent.requests


async def test_a_server_that_never_lets_in_leaves_time_for_the_next() -> None:
    from howdah.hadoop.security.credentials import Token

    def simple(request: Request) -> bytes:
        return echo(request)

    async with StandIn(echo, greeting=b"") as silent, StandIn(simple) as good:
        identity = Identity("alice", token=Token(b"i", b"p", "kind"))
        policy = RetryPolicy(max_wait_s=2.0, first_delay_s=0.01)
        async with RpcClient(
            [silent.address, good.address], PROTOCOL, identity, retry=policy
        ) as rpc:
            begun = time.monotonic()
            # The second one is no real server either: it is enough that it was asked.
            with pytest.raises(errors.HadoopError):
                await ask(rpc)
            assert good.connections
            assert time.monotonic() - begun < 10.0


async def test_a_late_answer_to_a_call_given_up_disturbs_nobody() -> None:
    async def handler(request: Request) -> bytes:
        if request.call_id == 0:
            await asyncio.sleep(0.3)
        return echo(request)

    async with StandIn(handler) as server, client(server.address) as rpc:
        slow = asyncio.create_task(ask(rpc, "slow"))
        while not server.requests:
            await asyncio.sleep(0.01)
        slow.cancel()
        assert await ask(rpc, "quick") == "quick"


async def test_a_server_that_restarts_is_found_again() -> None:
    port = free_port()
    async with client(Address("127.0.0.1", port)) as rpc:
        pending = asyncio.create_task(ask(rpc))
        await asyncio.sleep(0.05)
        async with StandIn(echo) as server:
            rpc.addresses = (server.address,)
            assert await pending == "x"


async def test_an_idle_connection_is_closed_and_opened_again() -> None:
    async with StandIn(echo) as server, client(server.address, idle_s=0.05) as rpc:
        await ask(rpc)
        while server._open:  # pyright: ignore[reportPrivateUsage]
            await asyncio.sleep(0.01)
        await ask(rpc)
        assert server.connections == 2


async def test_a_waiting_call_pings_the_server() -> None:
    async def handler(request: Request) -> bytes:
        while server.pings < 3:
            await asyncio.sleep(0.01)
        return echo(request)

    # A server reads on while it works.
    async def reading(request: Request) -> bytes:
        background.append(asyncio.create_task(handler(request)))
        return NO_ANSWER

    background: list[asyncio.Task[bytes]] = []
    async with StandIn(reading) as server, client(server.address, ping_s=0.03) as rpc:
        pending = asyncio.create_task(ask(rpc))
        while server.pings < 3:
            await asyncio.sleep(0.01)
        pending.cancel()
        await asyncio.gather(pending, *background, return_exceptions=True)


async def test_closing_ends_waiting_calls() -> None:
    async with StandIn(lambda r: NO_ANSWER) as server:
        rpc = client(server.address)
        pending = asyncio.create_task(ask(rpc))
        while not server.requests:
            await asyncio.sleep(0.01)
        await rpc.close()
        with pytest.raises(errors.ConnectionLost):
            await pending
        with pytest.raises(errors.ConnectionLost):
            await ask(rpc)


async def test_an_answer_beyond_the_limit_is_refused_before_it_is_read() -> None:
    huge = struct.pack(">I", 500_000_000)
    async with StandIn(lambda r: huge) as server:
        async with client(server.address, max_response_bytes=1 << 20) as rpc:
            with pytest.raises(errors.ProtocolError, match="500000000 bytes"):
                await ask(rpc)


async def test_a_large_answer_within_the_limit_arrives() -> None:
    text = "0123456789abcdef" * (1 << 20)
    policy = RetryPolicy(max_wait_s=50.0)
    async with StandIn(echo) as server, client(server.address, retry=policy) as rpc:
        assert await ask(rpc, text) == text


async def test_a_request_beyond_the_limit_is_not_sent() -> None:
    async with StandIn(echo) as server, client(server.address, max_request_bytes=1000) as rpc:
        with pytest.raises(errors.ProtocolError, match="ipc.maximum.data.length"):
            await ask(rpc, "x" * 2000)
        assert await ask(rpc) == "x"


@pytest.mark.parametrize(
    ("greeting", "said"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "web"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "bytes"),
        (b"\0\0\0\x03\xff\xff\xff", "message"),
    ],
)
async def test_another_kind_of_server_is_told_in_words(greeting: bytes, said: str) -> None:
    async with StandIn(echo, greeting=greeting) as server, client(server.address) as rpc:
        with pytest.raises(errors.ProtocolError, match=said):
            await ask(rpc)


async def test_a_server_that_accepts_and_says_nothing_does_not_hang_sasl() -> None:
    from howdah.hadoop.security.credentials import Token

    async with StandIn(echo, greeting=b"") as server:
        limits = ConnectionLimits(connect_timeout_s=0.2)
        token = Token(b"i", b"p", "kind")
        rpc = RpcClient([server.address], PROTOCOL, "alice", token, retry=QUICK, limits=limits)
        async with rpc:
            with pytest.raises(errors.ConnectFailed, match="did not answer"):
                await ask(rpc, timeout_s=0.1)


@pytest.mark.parametrize("reset", [True, False])
async def test_a_server_that_goes_away_while_authenticating_is_tried_again(reset: bool) -> None:
    from howdah.hadoop.security.credentials import Token

    came = 0

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        came += 1
        await reader.readexactly(7)
        if reset:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    server = await asyncio.start_server(leave, "127.0.0.1", 0)
    async with server:
        address = Address(*server.sockets[0].getsockname())
        token = Token(b"i", b"p", "kind")
        async with RpcClient([address], PROTOCOL, "alice", token, retry=QUICK) as rpc:
            with pytest.raises(errors.ConnectFailed, match=str(address)):
                await ask(rpc, timeout_s=2.0, idempotent=False)
    assert came > 1


async def test_an_incomplete_request_is_an_error_of_ours() -> None:
    async with StandIn(echo) as server, client(server.address) as rpc:
        with pytest.raises(errors.ProtocolError, match="incomplete"):
            await rpc.call("echo", common.GetDelegationTokenRequestProto(), common.TokenProto)


async def test_an_answer_that_is_no_message_is_an_error_that_names_the_method() -> None:
    def handler(request: Request) -> bytes:
        header = common.RpcResponseHeaderProto(callId=request.call_id, status=0)
        data = header.SerializeToString()
        body = frames.varint(len(data)) + data + b"\x02\xff\xff"
        return struct.pack(">I", len(body)) + body

    async with StandIn(handler) as server, client(server.address) as rpc:
        with pytest.raises(errors.ProtocolError, match="answer to echo"):
            await ask(rpc)


async def test_a_server_without_proof_is_refused_where_proof_is_demanded() -> None:
    async with StandIn(echo) as server:
        identity = Identity("alice", allow_simple=False)
        async with RpcClient([server.address], PROTOCOL, identity, retry=QUICK) as rpc:
            with pytest.raises(errors.AuthenticationError, match="demands authentication"):
                await ask(rpc)
        assert not server.requests
