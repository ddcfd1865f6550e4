"""Servers that stop, pause, restart and hand over, with calls under way."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from howdah.hadoop import errors
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ContainerId
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.retry import RetryPolicy
from tests.cli.howdah import until as said
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hadoop_client.masters import ask, master, until

pytestmark = [pytest.mark.timeout(240), pytest.mark.nightly]
PATIENT = RetryPolicy(max_wait_s=90.0, try_timeout_s=3.0, first_delay_s=0.05, max_delay_s=0.5)


@pytest.fixture(scope="module")
def pair(hadoop_module_cluster: MakeCluster) -> Cluster:
    """Two ResourceManagers."""
    return hadoop_module_cluster(
        resource_managers=2, node_managers=2, gpus="none", labels=False, master_expiry_ms=600_000
    )


@pytest.fixture
def configuration(pair: Cluster) -> Configuration:
    """Of the cluster as it is when all its daemons serve, one ResourceManager as the active one."""
    found = Configuration.load(pair.conf_dir, env={})
    for number in (1, 2):
        said(partial(pair.resource_manager_state, number), f"ResourceManager {number} answers")
    if pair.active() is None:
        pair.make_active(1)
    pair.wait_ready()
    return found


@pytest.fixture
def user(pair: Cluster) -> str:
    return pair.site.user


async def in_thread(work: object, *args: object) -> object:
    """Orders to the cluster wait for processes: not on the event loop."""
    return await asyncio.to_thread(work, *args)  # pyright: ignore


async def test_calls_go_on_through_a_hand_over(
    pair: Cluster, configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user, retry=PATIENT) as rm:
        assert (await rm.cluster_metrics()).num_node_managers >= 0
        before = rm.rpc.address
        done = asyncio.Event()
        answered = 0

        async def ask_on() -> None:
            nonlocal answered
            while not done.is_set():
                await rm.new_application()
                answered += 1

        asking = asyncio.create_task(ask_on())
        await in_thread(pair.fail_over)
        sofar = answered
        while answered < sofar + 5:
            assert not asking.done() or asking.exception() is None
            await asyncio.sleep(0.02)
        done.set()
        await asking
        assert rm.rpc.address != before


async def test_a_paused_server_is_left_for_the_other(
    pair: Cluster, configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user, retry=PATIENT) as rm:
        await rm.cluster_metrics()
        before = pair.active()
        assert before is not None
        other = 3 - before
        pair.pause(f"resourcemanager{before}")
        try:
            # The signal takes a moment to stop all of its threads.
            pending = asyncio.create_task(rm.cluster_metrics())
            while (await asyncio.wait([pending], timeout=0.5))[0]:
                pending = asyncio.create_task(rm.cluster_metrics())
            await in_thread(pair.make_active, other)
            assert (await pending).num_node_managers >= 0
            assert rm.rpc.address == configuration.rm_addresses()[other - 1]
        finally:
            # Paused while the other took over: it would still take itself for the active one.
            await in_thread(pair.restart, f"resourcemanager{before}")


async def test_a_master_registers_again_and_keeps_its_containers(
    pair: Cluster, configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:
        mine.scheduler.rpc.retry = PATIENT
        (kept,) = await mine.obtain(1)
        await mine.run(kept, "sleep 600")
        await in_thread(pair.fail_over)
        with pytest.raises(errors.ApplicationMasterNotRegistered):
            for _ in range(200):
                await mine.beat()
                await asyncio.sleep(0.05)
        await mine.scheduler.register_again()
        await mine.beat(ask=[ask(1, request_id=9, priority=9)])
        await mine.beat_until("a new container", lambda: len(mine.containers) == 2)
        assert not mine.completed
        async with mine.node_manager(mine.node_of(kept)) as nm:
            status = (await nm.statuses([kept])).found[kept]
            assert status.state == yarn.ContainerStateProto.C_RUNNING


async def test_the_resource_manager_may_die_while_a_master_waits_for_it(
    pair: Cluster, configuration: Configuration, user: str
) -> None:
    async with master(configuration, user) as mine:
        mine.scheduler.rpc.retry = PATIENT
        await mine.obtain(1)
        before = pair.active()
        assert before is not None
        await in_thread(pair.kill, f"resourcemanager{before}")
        # Asked while there is none: it is taken by the one that comes.
        waiting = asyncio.create_task(mine.beat(ask=[ask(1, request_id=5, priority=5)]))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await in_thread(pair.make_active, 3 - before)
        with pytest.raises(errors.ApplicationMasterNotRegistered):
            await waiting
        await mine.scheduler.register_again()
        await mine.beat(ask=[ask(1, request_id=5, priority=5)])
        await mine.beat_until("a new container", lambda: len(mine.containers) == 2)
        await in_thread(pair.start, f"resourcemanager{before}")


async def test_a_node_manager_that_restarts_still_knows_its_containers(
    pair: Cluster, configuration: Configuration, user: str, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    async with master(configuration, user) as mine:
        mine.scheduler.rpc.retry = PATIENT
        (container,) = await mine.obtain(1)
        await mine.run(container, f"touch {begun}; sleep 600")

        async def runs() -> bool:
            return begun.exists()

        # It is told as running before it has left its process's id to be found again by.
        await until("the command", runs)
        node = mine.node_of(container)
        ports = {pair.site.node_manager_ports(n).rpc: n for n in (1, 2)}
        name = f"nodemanager{ports[node.port]}"
        nm = mine.node_manager(node)
        nm.rpc.retry = PATIENT
        async with nm:
            await nm.statuses([container])
            await in_thread(pair.kill, name)
            asking = asyncio.create_task(nm.statuses([container]))
            await in_thread(pair.start, name)
            found = (await asking).found
            assert found[container].state == yarn.ContainerStateProto.C_RUNNING
            assert set((await nm.stop_containers([container])).done) == {container}


async def test_the_name_node_may_restart_between_and_during_calls(
    pair: Cluster, configuration: Configuration, user: str
) -> None:
    async with NameNode(configuration, user, retry=PATIENT) as nn:
        assert (await nn.fs_stats()).capacity > 0
        await in_thread(pair.kill, "namenode")
        asking = asyncio.create_task(nn.fs_stats())
        await in_thread(pair.start, "namenode")
        assert (await asking).capacity >= 0  # its nodes come back later


async def test_without_any_server_the_error_names_both_addresses(
    pair: Cluster, configuration: Configuration, user: str
) -> None:
    async with ResourceManager(configuration, user) as rm:
        for number in (1, 2):
            await in_thread(pair.kill, f"resourcemanager{number}")
        try:
            one, two = configuration.rm_addresses()
            with pytest.raises(errors.ConnectFailed, match=f"{one}, {two}"):
                await rm.rpc.call(
                    "getClusterMetrics",
                    yarn.GetClusterMetricsRequestProto(),
                    yarn.GetClusterMetricsResponseProto,
                    timeout_s=0.5,
                )
        finally:
            for number in (1, 2):
                await in_thread(pair.start, f"resourcemanager{number}")


def test_ids_of_a_restarted_resource_manager_have_an_epoch() -> None:
    """As the containers of the tests above have: e.g. container_e04_…"""
    text = "container_e04_1795275671293_0007_02_000003"
    assert ContainerId.parse(text).epoch == 4
