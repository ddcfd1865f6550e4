"""All calls of a job, protected connections and formats of logs, on three versions of Hadoop.

What ``hadoop.rpc.protection`` demands is demanded of connections with tokens also where there is
no Kerberos.
"""

from __future__ import annotations

import random

import pytest

from howdah.hadoop import connection, errors
from howdah.hadoop.aggregated import AggregatedLogs
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.namenode import NameNode
from howdah.hadoop.protos import yarn
from howdah.hadoop.resourcemanager import ResourceManager
from howdah.hadoop.rpc import RpcClient
from howdah.hadoop.scheduler import SUCCEEDED
from howdah.hadoop.security.credentials import Token
from howdah.hadoop.security.digest import DigestLayer
from howdah.hadoop.security.identity import Identity
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.hadoop_client.logfiles import aggregated, check, read_damaged, sample
from tests.hadoop_client.masters import master
from tests.hadoop_client.webhdfs import WebHdfs

pytestmark = pytest.mark.nightly

USER = "alice"


@pytest.fixture(
    scope="module",
    params=[
        ("3.3.6", "integrity", True, "none"),
        ("3.5.0", "privacy", False, "gz"),
        ("3.4.3", "authentication,privacy", True, "gz"),
    ],
    ids=lambda each: "-".join(map(str, each)),
)
def protected(request: pytest.FixtureRequest, hadoop_module_cluster: MakeCluster) -> Cluster:
    version, protection, indexed, compression = request.param
    return hadoop_module_cluster(
        version=version,
        node_managers=1,
        indexed_logs=indexed,
        properties={
            "hadoop.rpc.protection": protection,
            "yarn.nodemanager.log-aggregation.compression-type": compression,
        },
    )


@pytest.fixture
def configuration(protected: Cluster) -> Configuration:
    return Configuration.load(protected.conf_dir, env={})


def expected(protected: Cluster) -> tuple[bool, bool]:
    """Whether connections are signed, and whether they are encrypted."""
    # Of several kinds the client's configuration, which is the same, prefers the first.
    wanted = protected.site.options.properties["hadoop.rpc.protection"].split(",")[0]
    return wanted != "authentication", wanted == "privacy"


def layer_of(rpc: RpcClient) -> object:
    (open,) = rpc._connections.values()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(open, connection.Connection)
    return open._layer  # pyright: ignore[reportPrivateUsage]


async def test_a_job_runs_from_registration_to_its_end(
    protected: Cluster, configuration: Configuration
) -> None:
    signed, encrypted = expected(protected)
    async with master(configuration, USER) as mine:
        layer = layer_of(mine.scheduler.rpc)
        assert isinstance(layer, DigestLayer) == signed
        assert bool(getattr(layer, "_encrypt", None)) == encrypted
        first, second = await mine.obtain(2)
        await mine.run(first, "exit 3")
        async with mine.node_manager(mine.node_of(second)) as nm:
            request = mine.start_request(second, "exit 0")
            # More than one protected piece of 64 KiB.
            request.container_launch_context.environment.add(key="LARGE", value="x" * 200_000)
            outcome = await nm.start_containers({second: request})
            assert outcome.done == (second,), outcome.failed
            assert isinstance(layer_of(nm.rpc), DigestLayer) == signed
        await mine.beat_until("both ends", lambda: len(mine.completed) == 2)
        assert mine.completed[first].exit_status == 3
        for _ in range(20):
            await mine.beat()
        assert await mine.scheduler.finish(SUCCEEDED)


async def test_large_answers_arrive_on_a_connection_with_a_token(
    protected: Cluster, configuration: Configuration
) -> None:
    async with ResourceManager(configuration, USER) as rm:
        token = await rm.delegation_token(USER)
        new = await rm.new_application()
        context = yarn.ApplicationSubmissionContextProto(
            application_id=new.id.to_proto(),
            application_name="n" * 300_000,
            unmanaged_am=True,
            am_container_spec=yarn.ContainerLaunchContextProto(),
            resource=yarn.ResourceProto(memory=64, virtual_cores=1),
        )
        await rm.submit_and_wait(context)
        try:
            async with ResourceManager(configuration, "x", token=token) as other:
                report = await other.application_report(new.id)
                assert report.name == "n" * 300_000
                assert isinstance(layer_of(other.rpc), DigestLayer) == expected(protected)[0]
        finally:
            await rm.kill_application(new.id)


async def test_the_name_node_is_reached_with_a_token(configuration: Configuration) -> None:
    async with NameNode(configuration, USER) as nn:
        token = await nn.delegation_token(USER)
        async with NameNode(configuration, "x", token=token) as other:
            assert (await other.fs_stats()).capacity > 0
        forged = Token(token.identifier, b"wrong" * 4, token.kind, token.service)
        async with NameNode(configuration, "x", token=forged) as other:
            with pytest.raises(errors.HadoopError):
                await other.fs_stats()


async def test_less_protection_than_demanded_is_refused_in_words(
    protected: Cluster, configuration: Configuration
) -> None:
    async with NameNode(configuration, USER) as nn:
        token = await nn.delegation_token(USER)
    offered = protected.site.options.properties["hadoop.rpc.protection"]
    qop = "auth-int" if "privacy" in offered else "auth"
    identity = Identity(USER, token=token, qops=(qop,))
    addresses = configuration.name_nodes()
    async with RpcClient(addresses, NameNode.PROTOCOL, identity) as rpc:
        with pytest.raises(errors.AuthenticationError, match="hadoop.rpc.protection"):
            await rpc.call("getFsStats", yarn.ResourceProto(), yarn.ResourceProto)


async def test_aggregated_logs_are_read_in_both_formats_compressed_or_not(
    protected: Cluster, configuration: Configuration, chance: random.Random
) -> None:
    user = protected.site.user
    files = WebHdfs(protected)
    app = await aggregated(configuration, user, attempts=1)
    found = check(AggregatedLogs(configuration, files), app, user, attempts=1)
    modified = [log.modified for log in found]
    assert all(modified) == (protected.site.options.indexed_logs)
    assert any(modified) == all(modified)
    ((path, data),) = sample(configuration, files, app, user).items()
    for _ in range(50):
        read_damaged(path, data, chance)
