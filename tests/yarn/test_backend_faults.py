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

from howdah.backends.base import BackendAway
from howdah.core.messages import ContainerEndKind, ContainerGranted
from tests.conformance.harness import Coordinator
from tests.conformance.yarn import YarnHarness
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.fixture(scope="module")
def nodes(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        node_managers=2,
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


@pytest.mark.parametrize("released", [False, True])
def test_processes_of_a_container_on_a_silent_node_may_live(
    cluster: Cluster, tmp_path: Path, released: bool
) -> None:
    async def test() -> None:
        async with running(cluster, tmp_path) as (coordinator, container, node, pids):
            cluster.pause(node)
            if released:
                await coordinator.backend.release(container)
            ended = await coordinator.ended(container)
            kind = ContainerEndKind.RELEASED if released else ContainerEndKind.NODE_LOST
            assert (ended.kind, ended.proven) == (kind, False)
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
