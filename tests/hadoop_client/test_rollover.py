"""Keys of tokens that are replaced while a master works, as happens once a day on a real site."""

from __future__ import annotations

import asyncio
import time

import pytest

from howdah.hadoop.configuration import Configuration
from tests.hadoop.plugin import MakeCluster
from tests.hadoop_client.masters import master

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(400)
async def test_a_master_goes_on_with_new_tokens_after_a_roll_over(
    hadoop_cluster: MakeCluster,
) -> None:
    cluster = hadoop_cluster(
        node_managers=1,
        # Keys may not be replaced sooner than three times these.
        node_expiry_ms=10_000,
        master_expiry_ms=10_000,
        properties={
            "yarn.resourcemanager.am-rm-tokens.master-key-rolling-interval-secs": "31",
            "yarn.resourcemanager.nm-tokens.master-key-rolling-interval-secs": "31",
        },
    )
    configuration = Configuration.load(cluster.conf_dir, env={})
    async with master(configuration, "alice") as mine:
        rpc = mine.scheduler.rpc
        (container,) = await mine.obtain(1)
        await mine.run(container, "sleep 600")
        node = mine.node_of(container)
        old_amrm, old_nm = rpc.identity.token, mine.tokens[node]
        await mine.beat_until("a new token", lambda: rpc.identity.token != old_amrm, 150)
        # The new one is good for a connection of its own.
        for connection in list(rpc._connections.values()):  # pyright: ignore[reportPrivateUsage]
            connection.close()
        await mine.beat()
        # A node's token comes with a container on it, if the key has changed since the last one.
        deadline = time.monotonic() + 150
        second = container
        while mine.tokens[node] == old_nm:
            assert time.monotonic() < deadline, "no new NodeManager token came"
            if second != container:
                await mine.beat(release=[second.to_proto()])
            await asyncio.sleep(0.5)
            (second,) = await mine.obtain(1)
        await mine.run(second, "sleep 600")
        async with mine.node_manager(node) as nm:
            assert set((await nm.statuses([container, second])).found) == {container, second}
