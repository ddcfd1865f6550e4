"""The backend while a node or the ResourceManager is silent.

The cluster's nodes forget their containers when they restart, as YARN's do by default.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest

from howdah.backends.base import BackendAway, RoleResources
from howdah.backends.yarn.amounts import Amount
from howdah.backends.yarn.client import cluster_report
from howdah.backends.yarn.client.cluster import Queue, YarnCluster, YarnNode
from howdah.backends.yarn.master import backend as backends
from howdah.core.messages import ContainerEndKind, ContainerGranted
from howdah.hadoop.errors import CallTimeout
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.spec.model import Placement
from tests.conformance.harness import Coordinator, eventually
from tests.conformance.yarn import YarnHarness
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def nodes(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        node_managers=2,
        labels=False,
        gpus="none",
        node_expiry_ms=10_000,
        properties={
            "yarn.nodemanager.recovery.enabled": "false",
            "yarn.resourcemanager.connect.max-wait.ms": "2000",
            "yarn.nodemanager.resourcemanager.connect.max-wait.ms": "900000",
        },
    )


@pytest.fixture
def cluster(nodes: Cluster) -> Iterator[Cluster]:
    yield nodes
    for daemon in nodes.site.daemons:
        if nodes.is_running(daemon.name):
            nodes.resume(daemon.name)
        else:
            nodes.start(daemon.name)
    nodes.wait_ready()


@asynccontextmanager
async def running(
    cluster: Cluster, folder: Path
) -> AsyncIterator[tuple[Coordinator, str, str, list[int]]]:
    """A coordinator, its one container, the name of that one's NodeManager, and its processes."""
    harness = YarnHarness(folder, cluster)
    pids: list[int] = []
    try:
        async with asyncio.timeout(240):
            coordinator = await harness.coordinator()
            (container,) = await coordinator.grant(1)
            await harness.launch(coordinator, container, "wait")
            pids += await harness.pids(container)
            node = coordinator.all(ContainerGranted)[0].node
            number = next(n for n in (1, 2) if cluster.site.node_host(n) == node)
            yield coordinator, container, f"nodemanager{number}", pids
    finally:
        for pid in pids:
            with contextlib.suppress(psutil.Error):
                psutil.Process(pid).kill()
        await harness.close()


def alive(pids: list[int]) -> bool:
    return all(psutil.pid_exists(pid) for pid in pids)


def test_a_released_container_has_ended_when_its_node_says_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def test() -> None:
        async with running(cluster, tmp_path) as (coordinator, container, _, pids):
            await coordinator.backend.release(container)
            ended = await coordinator.ended(container)
            assert (ended.kind, ended.proven) == (ContainerEndKind.RELEASED, True)
            await eventually(lambda: not any(map(psutil.pid_exists, pids)), "nothing is left")

    asyncio.run(test())


def test_the_container_of_a_silent_node_is_lost_and_its_processes_may_live(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def test() -> None:
        async with running(cluster, tmp_path) as (coordinator, container, node, pids):
            cluster.pause(node)
            ended = await coordinator.ended(container)
            assert (ended.kind, ended.proven) == (ContainerEndKind.NODE_LOST, False)
            assert alive(pids)

    asyncio.run(test())


def test_a_container_released_on_a_silent_node_may_live(cluster: Cluster, tmp_path: Path) -> None:
    async def test() -> None:
        async with running(cluster, tmp_path) as (coordinator, container, node, pids):
            cluster.pause(node)
            await coordinator.backend.release(container)
            ended = await coordinator.ended(container)
            assert (ended.kind, ended.proven) == (ContainerEndKind.RELEASED, False)
            assert alive(pids)

    asyncio.run(test())


def test_a_node_that_has_forgotten_a_container_does_not_know_that_its_processes_live(
    cluster: Cluster, tmp_path: Path
) -> None:
    async def test() -> None:
        async with running(cluster, tmp_path) as (coordinator, container, node, pids):
            await asyncio.to_thread(cluster.restart, node)
            ended = await coordinator.ended(container)
            assert (ended.kind, ended.proven) == (ContainerEndKind.NODE_LOST, False)
            assert alive(pids)

    asyncio.run(test())


@pytest.mark.parametrize("told", [None, ()], ids=["late", "before-the-node-joined"])
def test_a_role_together_with_another_comes_though_its_node_is_told_of_late(
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: tuple[YarnNode, ...] | None,
) -> None:
    """The ResourceManager tells at first nothing, or nodes without those that the containers come from."""
    nodes_and_queue, late = cluster_report.nodes_and_queue, asyncio.Event()

    async def first_this(
        manager: ResourceManager, user: str, queue: str
    ) -> tuple[YarnCluster, Queue | None]:
        if late.is_set():
            return await nodes_and_queue(manager, user, queue)
        if told is None:
            raise CallTimeout("no answer yet")
        return YarnCluster(user=user, largest=Amount(), nodes=told), None

    monkeypatch.setattr(cluster_report, "nodes_and_queue", first_this)
    monkeypatch.setattr(backends, "ROOM_S", 0.1)

    async def test() -> None:
        harness = YarnHarness(tmp_path, cluster)
        beside = RoleResources(memory_mb=128, placement=Placement(together=("small",)))
        harness.roles = {**harness.roles, "beside": beside}
        try:
            coordinator = await harness.coordinator()
            await coordinator.ask(2, role="beside")
            await coordinator.grant(1)
            why = "beside: it must be on a node of small, and "
            assert (await coordinator.backend.waiting()).startswith(why) or told is not None
            late.set()
            there, here = [await coordinator.granted(number) for number in (1, 2)]
            assert here.node == there.node
        finally:
            await harness.close()

    asyncio.run(test())


def test_a_master_that_finds_no_resource_manager_leaves_the_job_to_the_next_one(
    cluster: Cluster, tmp_path: Path
) -> None:
    """After as long as the cluster says, here two seconds; and the job has not failed."""

    async def test() -> None:
        harness = YarnHarness(tmp_path, cluster)
        try:
            first = await harness.coordinator()
            (container,) = await first.grant(1)
            await harness.launch(first, container, "wait")
            await harness.pids(container)
            cluster.kill("resourcemanager")
            await harness.crash(first)
            async with asyncio.timeout(40):
                with pytest.raises(BackendAway, match="could be reached"):
                    await harness.coordinator()
            await asyncio.to_thread(cluster.start, "resourcemanager")
            await asyncio.to_thread(cluster.wait_ready)
            third = await harness.coordinator()
            assert third.held == [container]
        finally:
            await harness.close()

    asyncio.run(test())
