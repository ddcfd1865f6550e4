"""The port on which agents hear a new coordinator's call, tried by everybody else."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from howdah.wire import authority
from howdah.wire.channel import connect
from howdah.wire.frames import encode
from howdah.wire.messages import Heartbeat, Moved, Shutdown, ToAgent
from howdah.wire.tls import client_context
from tests.agent.rig import HOST, JOB, Rig, door, listening, rss_mb, until
from tests.security.strangers import bare_context

OTHER_JOB = JOB[:-1] + ("0" if JOB[-1] != "0" else "1")


async def nothing_comes(
    where: tuple[str, int], context: ssl.SSLContext | None, data: bytes
) -> None:
    """Send that, and be cut off without an answer."""
    try:
        reader, writer = await asyncio.open_connection(*where, ssl=context)
    except OSError:
        return
    with contextlib.suppress(OSError):
        writer.write(data)
        answer = await reader.read()
        assert answer == b"" or (context is None and len(answer) < 16), "a TLS alert at most"
    writer.close()


NEWS = encode(Moved(incarnation=9, host=HOST, port=1))


async def test_only_a_coordinator_of_the_job_is_heard(tmp_path: Path) -> None:
    """Someone without a coordinator's certificate calls an agent's port, or a coordinator with a
    certificate of another authority, whatever the name in it. Only the job's coordinator is
    heard."""
    async with listening(tmp_path) as (rig, _):
        await nothing_comes(door(rig), bare_context(), NEWS)
        for role in ("agent", "client"):
            await nothing_comes(door(rig), bare_context(rig.folder / "secrets", role), NEWS)
        for number, job_id in enumerate((JOB, OTHER_JOB)):
            secrets = tmp_path / f"other-{number}"
            authority.create(job_id, secrets)
            await nothing_comes(door(rig), bare_context(secrets, "coordinator"), NEWS)
            context = client_context(secrets, "coordinator")
            with pytest.raises(OSError):
                await connect(*door(rig), context, job_id=JOB, receives=ToAgent)
        await unharmed(rig)


async def test_what_is_no_call_is_cut_off(tmp_path: Path) -> None:
    """Someone speaks to an agent's port without TLS, or a coordinator sends it something that is no
    call. The connection is cut off."""
    async with listening(tmp_path) as (rig, _):
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 70_000, NEWS):
            await nothing_comes(door(rig), None, data)
        huge_array = b"\0\0\0\x05\xdd\xff\xff\xff\xff"
        for data in (b"\xff" * 4096, encode(Shutdown()), huge_array):
            await nothing_comes(
                door(rig), bare_context(rig.folder / "secrets", "coordinator"), data
            )
        await unharmed(rig)


async def test_a_crowd_that_never_finishes_its_handshakes_is_bounded_and_ends(
    tmp_path: Path,
) -> None:
    """A crowd begins handshakes with an agent and never finishes them. Their number is bounded, and
    they are cut off."""
    async with listening(tmp_path) as (rig, agent):
        before = rss_mb(agent.pid)
        crowd = [await asyncio.open_connection(*door(rig)) for _ in range(200)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
        await until(lambda: sum(end.done() for end in ends) >= 184)
        assert rss_mb(agent.pid) - before < 3.0
        await until(lambda: all(end.done() for end in ends))
        for (_, writer), end in zip(crowd, ends, strict=True):
            end.exception()
            writer.close()
        await unharmed(rig)


async def unharmed(rig: Rig) -> None:
    """The agent beats on over the connection it had, and hears its own coordinator."""
    assert len(rig.hellos) == 1
    await rig.hear(Heartbeat, after=len(rig.heard))
    rig.incarnation += 1
    await rig.call(door(rig))
    await rig.connected(2)
