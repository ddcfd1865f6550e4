"""A new coordinator calls agents that could not find it; strangers at the same port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from howdah.agent import procfs
from howdah.wire import authority
from howdah.wire.channel import connect
from howdah.wire.frames import encode
from howdah.wire.messages import Beat, Moved, Shutdown, Stop, ToAgent
from howdah.wire.tls import client_context
from tests.agent.rig import HOST, JOB, TASK, Agent, Rig, python, until

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"
OTHER_JOB = JOB[:-1] + ("0" if JOB[-1] != "0" else "1")


@contextlib.asynccontextmanager
async def listening(folder: Path, **changes: object) -> AsyncIterator[tuple[Rig, Agent]]:
    """An agent that listens, and has no file to find coordinators by."""
    async with Rig(folder) as rig:
        there = ((HOST, rig.port),)
        agent = await rig.agent(coordinator_file=None, coordinators=there, listen=True, **changes)
        yield rig, agent


def door(rig: Rig) -> tuple[str, int]:
    """Where the agent that connected last listens."""
    where = rig.hellos[-1].listen
    assert where is not None
    return where


async def move(rig: Rig) -> None:
    """The coordinator is gone, and another one elsewhere."""
    before = rig.port
    await rig.vanish()
    rig.incarnation += 1
    await rig.begin()
    assert rig.port != before


async def test_an_agent_goes_to_the_coordinator_that_calls_it(tmp_path: Path) -> None:
    async with listening(tmp_path) as (rig, agent):
        where = door(rig)
        assert where[0] == HOST
        low, high = agent.launch.ports
        assert low <= where[1] <= high
        await rig.prepare()
        started = await rig.start(python(FOREVER))
        for incarnation in (2, 3):
            await move(rig)
            await rig.call(where)
            hello = await rig.connected(incarnation)
            assert hello.listen == where
            assert hello.held is not None and hello.held.pids == started.pids
        rig.tell(Stop(task=TASK, attempt=1, grace_s=5))
        assert (await rig.exit()).signal == 15


async def test_a_newer_coordinator_is_gone_to_although_the_old_one_lives(tmp_path: Path) -> None:
    async with listening(tmp_path) as (rig, _):
        old = rig.channels[-1]
        rig.incarnation = 2
        async with asyncio.timeout(10):
            await rig.call(door(rig))
            await rig.connected(2)
            await old.wait_closed()


async def test_a_call_is_heard_while_the_agent_waits_for_a_host_that_is_dead(
    tmp_path: Path,
) -> None:
    with socket.create_server((HOST, 0)) as dead:  # accepts, and never says a word
        async with Rig(tmp_path) as rig:
            there = ((HOST, rig.port), dead.getsockname()[:2])
            await rig.agent(coordinator_file=None, coordinators=there, listen=True)
            where = door(rig)
            await move(rig)
            await asyncio.get_running_loop().run_in_executor(None, dead.accept)
            began = time.monotonic()
            await rig.call(where)
            await rig.connected(2)
            assert time.monotonic() - began < 5, "not when the handshake has timed out"


async def test_a_coordinator_that_was_replaced_is_not_gone_back_to(tmp_path: Path) -> None:
    async with listening(tmp_path) as (rig, agent):
        where = door(rig)
        rig.incarnation = 5
        await rig.call(where)
        await rig.connected(2)
        await rig.call(where, incarnation=4, port=1)
        await rig.call(where, incarnation=5, port=1)
        await rig.hear(Beat, after=len(rig.heard))
        assert len(rig.hellos) == 2, "the connection it has stands"
        rig.incarnation = 4  # the old one answers at the address the agent was given first
        rig.channels[-1].close()
        await until(lambda: len(rig.hellos) >= 4)
        rig.incarnation = 6
        await until(lambda: rig.hellos and rig.channels[-1].closed is False)
        rig.tell(Shutdown())
        assert await agent.code() == 0


async def test_an_agent_that_is_not_told_to_listen_does_not(tmp_path: Path) -> None:
    async with Rig(tmp_path) as rig:
        agent = await rig.agent()
        assert rig.hellos[-1].listen is None
        assert listening_ports(agent.pid) == []


async def test_the_port_is_free_again_and_its_lock_gone_after_the_agent(tmp_path: Path) -> None:
    async with listening(tmp_path) as (rig, agent):
        where = door(rig)
        assert listening_ports(agent.pid) == [where]
        lock = Path(f"/tmp/howdah-ports/{where[1]}.lock")
        assert lock.exists()
        rig.tell(Shutdown())
        assert await agent.code() == 0
        assert not lock.exists()
        with socket.create_server(where):
            pass


async def test_an_agent_that_is_killed_leaves_no_lock_of_its_port(tmp_path: Path) -> None:
    async with listening(tmp_path) as (rig, agent):
        lock = Path(f"/tmp/howdah-ports/{door(rig)[1]}.lock")
        assert lock.exists()
        agent.kill()
        await until(lambda: not lock.exists())


async def test_an_advertised_address_this_host_does_not_have_is_no_hindrance(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path, host="192.0.2.1") as (rig, _):
        host, port = door(rig)
        assert host == "192.0.2.1"
        await move(rig)
        await rig.call((HOST, port))
        await rig.connected(2)


def listening_ports(pid: int) -> list[tuple[str, int]]:
    """Where the process accepts connections."""
    import psutil

    found = psutil.Process(pid).net_connections("inet")
    return [(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN]


# -- strangers -------------------------------------------------------------------------------------


def secrets_of_another_job(folder: Path, job_id: str) -> Path:
    authority.create(job_id, folder / "other")
    return folder / "other"


def bare_context(secrets: Path | None = None, role: str = "coordinator") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if secrets is not None:
        context.load_cert_chain(secrets / f"{role}.pem", secrets / f"{role}.key")
    return context


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


@pytest.mark.parametrize("role", [None, "agent", "client"])
async def test_only_a_coordinator_is_heard(tmp_path: Path, role: str | None) -> None:
    async with listening(tmp_path) as (rig, _):
        secrets = rig.folder / "secrets" if role else None
        await nothing_comes(door(rig), bare_context(secrets, role or ""), NEWS)
        await unharmed(rig)


@pytest.mark.parametrize("job_id", [JOB, OTHER_JOB])
async def test_a_coordinator_of_another_authority_is_not_heard(tmp_path: Path, job_id: str) -> None:
    async with listening(tmp_path) as (rig, _):
        secrets = secrets_of_another_job(tmp_path, job_id)
        await nothing_comes(door(rig), bare_context(secrets), NEWS)
        with pytest.raises(OSError):
            await connect(
                *door(rig), client_context(secrets, "coordinator"), job_id=JOB, receives=ToAgent
            )
        await unharmed(rig)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 70_000, NEWS])
async def test_what_is_no_tls_is_cut_off(tmp_path: Path, data: bytes) -> None:
    async with listening(tmp_path) as (rig, _):
        await nothing_comes(door(rig), None, data)
        await unharmed(rig)


@pytest.mark.parametrize(
    "data", [b"\xff" * 4096, encode(Shutdown()), b"\0\0\0\x05\xdd\xff\xff\xff\xff"]
)
async def test_what_is_no_call_costs_even_a_coordinator_its_connection(
    tmp_path: Path, data: bytes
) -> None:
    async with listening(tmp_path) as (rig, _):
        await nothing_comes(door(rig), bare_context(rig.folder / "secrets"), data)
        await unharmed(rig)


async def test_a_crowd_that_never_finishes_its_handshakes_is_bounded_and_ends(
    tmp_path: Path,
) -> None:
    async with listening(tmp_path) as (rig, agent):
        before = rss(agent.pid)
        crowd = [await asyncio.open_connection(*door(rig)) for _ in range(200)]
        ends = [asyncio.ensure_future(reader.read()) for reader, _ in crowd]
        await until(lambda: sum(end.done() for end in ends) >= 184, 3.0)
        assert rss(agent.pid) - before < 3.0
        await until(lambda: all(end.done() for end in ends), 15.0)
        for (_, writer), end in zip(crowd, ends, strict=True):
            end.exception()
            writer.close()
        await unharmed(rig)


def rss(pid: int) -> float:
    """Resident megabytes."""
    status = procfs.stat(pid)
    assert status is not None
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


async def unharmed(rig: Rig) -> None:
    """The agent beats on over the connection it had, and hears its own coordinator."""
    assert len(rig.hellos) == 1
    await rig.hear(Beat, after=len(rig.heard))
    rig.incarnation += 1
    await rig.call(door(rig))
    await rig.connected(2)
