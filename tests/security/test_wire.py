"""Strangers and misbehaving peers on the coordinator's port: only the sender ever suffers.

Each test keeps a well-behaved agent connected and checks at the end that it noticed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from howdah.wire import authority
from howdah.wire.channel import Channel, connect, serve
from howdah.wire.frames import encode
from howdah.wire.messages import (
    AskStop,
    ClientHello,
    FromAgent,
    Heartbeat,
    ToAgent,
    ToClient,
    Welcome,
)
from howdah.wire.tls import (
    client_context,
    former_certificate_name,
    server_context,
)
from tests.security.strangers import bare_context
from tests.unit.wire.rig import (
    JOB,
    OTHER_JOB,
    RECEIVES,
    agent,
    greet,
    hello,
    lives,
    run,
    secrets_of,
    serving,
)

Handler = Callable[[Channel[Any]], Any]


class Watched:
    """A handler that notes who got as far as it, and what they said."""

    def __init__(self) -> None:
        self.channels: list[Channel[Any]] = []

    async def __call__(self, channel: Channel[Any]) -> None:
        self.channels.append(channel)
        await greet(channel)


@contextlib.asynccontextmanager
async def bystander(**options: Any) -> AsyncIterator[tuple[int, Watched]]:
    """Port and handler of a coordinator with one good agent, which must live on."""
    handler = Watched()
    async with serving(handler, **options) as port:
        good = await agent(port)
        good.send(hello())
        assert await good.receive() is not None
        yield port, handler
        assert await lives(good, 3)
        assert handler.channels[0].problem == ""


async def nothing_comes(port: int, context: ssl.SSLContext | None, *send: bytes) -> None:
    """Connect so, send that, and be cut off without a byte of an answer."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return  # refused in the handshake already
    try:
        for data in send:
            writer.write(data)
        assert await reader.read() == b""
    except OSError:
        pass
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def test_a_stranger_without_a_certificate_of_the_job_gets_no_answer() -> None:
    """A stranger connects without a certificate, with one of another job, with one that another
    authority made for this job, or offers TLS 1.2 only. They get no answer."""

    async def body() -> None:
        async with bystander() as (port, handler):
            await nothing_comes(port, bare_context(), encode(hello()))
            for secrets in (secrets_of(OTHER_JOB), secrets_of(JOB, "another authority")):
                await nothing_comes(port, bare_context(secrets), encode(hello()))
            context = bare_context(secrets_of(JOB))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            await nothing_comes(port, context, encode(hello()))
            assert len(handler.channels) == 1

    run(body())


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        encode(hello()),
        b"\x00" * 100_000,
        b"\x16\x03\x01\xff\xff" + b"\xff" * 70_000,
    ],
    ids=["http", "plaintext frame", "zeros", "broken client hello"],
)
def test_what_is_no_tls_gets_no_answer(data: bytes) -> None:
    """A peer speaks without TLS. It gets no answer."""

    async def body() -> None:
        async with bystander() as (port, handler):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(data)
            with contextlib.suppress(OSError):
                # At most a TLS alert, which says nothing of us.
                assert len(await reader.read()) < 16
            writer.close()
            assert len(handler.channels) == 1

    run(body())


def test_a_certificate_lets_one_speak_in_its_own_role_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An agent greets as a client, or a client as an agent. Their certificates do not allow
    that."""

    async def body() -> None:
        async with bystander() as (port, handler):
            for claim in (ClientHello(job_id=JOB, user="root"), AskStop(firm=True)):
                channel = await agent(port, receives=ToClient)
                channel.send(claim)
                assert await channel.receive() is None
                assert "not a message expected here" in handler.channels[-1].problem
            context = client_context(secrets_of(JOB), "client")
            channel = await connect("127.0.0.1", port, context, job_id=JOB, receives=ToAgent)
            channel.send(hello())
            assert await channel.receive() is None
            assert "not a message expected here" in handler.channels[-1].problem
            assert len(handler.channels) == 4

    with caplog.at_level(logging.WARNING):
        run(body())
    assert "ClientHello" in caplog.text


def test_a_role_that_has_no_business_on_a_port_is_refused() -> None:
    """A peer calls a port that is not for its role. It is refused."""

    async def body() -> None:
        async with bystander(receives={"agent": FromAgent}) as (port, handler):
            context = client_context(secrets_of(JOB), "client")
            channel = await connect("127.0.0.1", port, context, job_id=JOB, receives=ToClient)
            channel.send(ClientHello(job_id=JOB))
            assert await channel.receive() is None
            assert len(handler.channels) == 1

    run(body())


@pytest.mark.parametrize("role", ["agent", "client"])
def test_nobody_but_the_coordinator_passes_for_it(role: str) -> None:
    """A peer with another certificate of the job answers in the coordinator's place. It is not
    believed."""

    async def body() -> None:
        server = await serve(
            greet, "127.0.0.1", 0, server_context(secrets_of(JOB), role), receives=RECEIVES
        )
        try:
            with pytest.raises(ssl.SSLCertVerificationError):
                await agent(server.sockets[0].getsockname()[1])
        finally:
            server.close()

    run(body())


def test_a_coordinator_of_another_job_is_not_believed() -> None:
    """The coordinator of another job answers. It is not believed."""

    async def body() -> None:
        async with serving() as port:
            for job_id, secrets in (
                (OTHER_JOB, secrets_of(OTHER_JOB)),  # another authority
                (OTHER_JOB, secrets_of(JOB)),  # another name
                (JOB[:-1], secrets_of(JOB)),  # nearly the name
            ):
                with pytest.raises(ssl.SSLCertVerificationError):
                    await connect(
                        "127.0.0.1",
                        port,
                        client_context(secrets, "agent"),
                        job_id=job_id,
                        receives=ToAgent,
                    )

    run(body())


def test_a_peer_that_says_nothing_or_a_byte_at_a_time_is_cut_off() -> None:
    """A peer sends nothing, or one byte at a time. It is cut off."""

    async def body() -> None:
        async with bystander(first_frame_s=0.5) as (port, handler):
            silent, slow = await agent(port), await agent(port)
            frame = encode(hello())

            async def drip() -> None:
                for byte in frame[:-1]:
                    slow.send_frame(bytes([byte]))
                    await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            assert await silent.receive() is None
            assert await slow.receive() is None
            await dripping
            assert {c.problem for c in handler.channels[1:]} == {
                "The peer sent no message within 0.5 s"
            }

    run(body())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (struct.pack(">I", 4 * 1024 * 1024 + 1), "announces 4194305 bytes"),
        (b"\xff" * 20, "announces 4294967295 bytes"),
        (struct.pack(">I", 5) + b"\xdd\xff\xff\xff\xff", "not a message expected here"),
        (struct.pack(">I", 100_000) + b"\x91" * 100_000, "not a message expected here"),
        (b"GET / HTTP/1.1\r\n\r\n", "announces 1195725856 bytes"),
        (encode(Welcome()), "not a message expected here"),
    ],
    ids=["oversized", "garbage", "huge array", "deep nesting", "http", "a coordinator's message"],
)
def test_a_malformed_frame_costs_its_sender_the_connection(
    data: bytes, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A peer sends a malformed frame. It loses its connection."""

    async def body() -> None:
        async with bystander() as (port, handler):
            for first in (b"", encode(hello()) + encode(Heartbeat(attempt=9))):
                channel = await agent(port)
                channel.send_frame(first + data)
                while await channel.receive() is not None:
                    pass
                assert words in handler.channels[-1].problem

    with caplog.at_level(logging.WARNING):
        run(body())
    assert words in caplog.text


def test_a_frame_announced_and_never_sent_holds_no_memory_for_it() -> None:
    """A peer announces a large frame and never sends it. No memory is held for it."""

    async def body() -> None:
        async with bystander() as (port, handler):
            channel = await agent(port)
            channel.send(hello())
            await channel.receive()
            channel.send_frame(struct.pack(">I", 4 * 1024 * 1024) + b"x")
            assert await lives_not(channel)
            assert handler.channels[-1]._decoder.pending == 5

    async def lives_not(channel: Channel[Any]) -> bool:
        try:
            await channel.receive(timeout_s=0.1)
        except TimeoutError:
            return True
        return False

    run(body())


def test_a_connection_reset_in_the_middle_of_anything_harms_nobody() -> None:
    """A peer resets its connection in the middle of a message. Nobody else notices."""

    async def body() -> None:
        async with bystander() as (port, _):
            for data in (b"", b"\x16\x03\x01\x02\x00", b"x"):
                raw = socket.create_connection(("127.0.0.1", port))
                raw.sendall(data)
                # Closing so sends a reset.
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raw.close()
            channel = await agent(port)
            channel.send(hello())
            channel.abort()

    run(body())


def test_a_certificate_tells_a_stranger_nothing_of_the_job() -> None:
    """Finding 14: Every handshake showed the job's name. Now certificates hold a digest of it."""
    parts = JOB.encode(), JOB.split("-")[0].encode(), JOB.split("-")[-1].encode()
    for path in secrets_of(JOB).glob("*.pem"):
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        shown = certificate.public_bytes(serialization.Encoding.DER)
        assert not any(part in shown for part in parts), path


def former_secrets(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Secrets as the release before wrote them: their names have the job's id."""
    with monkeypatch.context() as patch:
        patch.setattr(authority, "certificate_name", former_certificate_name)
        authority.create(JOB, folder / "secrets")
    return folder / "secrets"


def test_a_job_of_the_release_before_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificates of a job of the release before name the job. Peers of this release still
    connect to it."""
    secrets = former_secrets(monkeypatch, tmp_path)

    async def body() -> None:
        handler = Watched()
        server = await serve(handler, "127.0.0.1", 0, server_context(secrets), receives=RECEIVES)
        port = server.sockets[0].getsockname()[1]
        try:
            context = client_context(secrets, "agent")
            channel = await connect("127.0.0.1", port, context, job_id=JOB, receives=ToAgent)
            channel.send(hello())
            assert await channel.receive() is not None
            assert await lives(channel)
            assert handler.channels[-1].peer.is_of(JOB)
            with pytest.raises(ssl.SSLCertVerificationError):
                await connect("127.0.0.1", port, context, job_id=OTHER_JOB, receives=ToAgent)
        finally:
            server.close()

    run(body())
