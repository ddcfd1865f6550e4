"""A new coordinator calls agents that could not find it."""

from __future__ import annotations

import socket
from pathlib import Path

from howdah.agent import ports
from howdah.wire.messages import Heartbeat, Shutdown
from tests.agent.rig import HOST, Rig, door, listening, python, until

FOREVER = "import time\nprint('up')\nwhile True: time.sleep(60)"


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
        rig.tell_stop(1, grace_s=5)
        assert (await rig.exit()).signal == 15


async def test_a_coordinator_that_was_replaced_is_not_gone_back_to(tmp_path: Path) -> None:
    async with listening(tmp_path) as (rig, agent):
        where = door(rig)
        rig.incarnation = 5
        await rig.call(where)
        await rig.connected(2)
        await rig.call(where, incarnation=4, port=1)
        await rig.call(where, incarnation=5, port=1)
        await rig.hear(Heartbeat, after=len(rig.heard))
        assert len(rig.hellos) == 2, "the connection it has stands"
        rig.incarnation = 4  # the old one answers at the address the agent was given first
        rig.channels[-1].close()
        await until(lambda: len(rig.hellos) >= 4)
        rig.incarnation = 6  # only who says hello from now on hears of it
        await rig.connected(len(rig.hellos) + 1)
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
        lock = ports.folder() / f"{where[1]}.lock"
        assert lock.exists()
        rig.tell(Shutdown())
        assert await agent.code() == 0
        assert not lock.exists()
        with socket.create_server(where):
            pass


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
