"""Gangs on clusters whose nodes report once a second, as Hadoop's do by default, with either scheduler."""

from __future__ import annotations

from collections import Counter

import pytest

from howdah.backends.base import BackendError
from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, until, with_defaults

pytestmark = pytest.mark.nightly

CAPACITY = {"properties": {"yarn.scheduler.capacity.node-locality-delay": "40"}}
FAIR = {"fair": True}
WORKERS = '[roles.worker]\ninstances = {n}\nmemory = "{memory}m"\ncommand = "{command}"\n'


@pytest.fixture(
    scope="module", params=[pytest.param(CAPACITY, id="capacity"), pytest.param(FAIR, id="fair")]
)
def yarn_cluster(request: pytest.FixtureRequest, hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        heartbeat_ms=1000,
        node_managers=3,
        node_memory_mib=2048,
        placement_constraints=False,
        **request.param,
    )


def test_a_gang_is_spread_over_the_nodes_that_have_room(yarn: Yarn) -> None:
    job = yarn.submit(WORKERS.format(n=9, memory=256, command="sleep 600"))
    nodes = Counter(task.node for task in job.running())
    assert len(nodes) == 3
    assert max(nodes.values()) <= 6, "two thirds of nine at most"
    job.end()


def test_a_gang_that_needs_every_node_gets_them(yarn: Yarn) -> None:
    job = yarn.submit(WORKERS.format(n=5, memory=896, command="sleep 600"))
    nodes = Counter(task.node for task in job.running())
    assert sorted(nodes.values()) == [1, 2, 2]
    job.end()


def test_gangs_come_from_wherever_room_is_by_then(yarn: Yarn) -> None:
    """The second one is told of room that the first one takes, and gets other room in the end."""
    first = yarn.submit(WORKERS.format(n=3, memory=1280, command="sleep 600"))
    second = yarn.submit(WORKERS.format(n=3, memory=1280, command="true"))
    both = (first, second)
    until(lambda: any(all(t.state == "running" for t in j.view().tasks) for j in both), "one runs")
    first.handle.stop(firm=True)
    assert first.wait().outcome == "stopped"
    assert second.wait().outcome == "succeeded"


def test_tasks_of_mode_each_take_turns_with_the_room_there_is(yarn: Yarn) -> None:
    roles = WORKERS.format(n=8, memory=896, command="echo done")
    job = yarn.submit(f'mode = "each"\n{roles}')
    final = job.wait()
    assert final.outcome == "succeeded", final.reason
    assert [job.log(f"worker:{index}") for index in range(8)] == ["done"] * 8


def test_a_gang_waits_for_a_node_that_a_growing_cluster_adds(yarn: Yarn) -> None:
    cluster = yarn.cluster
    added = "nodemanager3"
    cluster.kill(added)
    cluster.restart("resourcemanager")  # which never saw the third node
    try:
        until(lambda: _nodes(cluster) == 2, "two nodes")
        file = yarn.folder / "job.toml"
        file.write_text(with_defaults(WORKERS.format(n=3, memory=1344, command="true")))
        with pytest.raises(BackendError, match="need .* with the master, but the cluster has"):
            yarn.submit_file(file)
        job = yarn.submit_file(file, ("hadoop.autoscaling=true",))
        job.until_application("RUNNING")
    finally:
        cluster.start(added)
    assert job.wait().outcome == "succeeded"


def _nodes(cluster: Cluster) -> int:
    try:
        return sum(node["state"] == "RUNNING" for node in cluster.nodes())
    except OSError:
        return 0  # the ResourceManager is not back yet
