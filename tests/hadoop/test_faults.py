"""Daemons that die, pause and come back: what a cluster of one's own is for."""

from __future__ import annotations

import contextlib
import urllib.error
from collections.abc import Iterator

import psutil
import pytest

from tests.hadoop import applications, rpc
from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError
from tests.hadoop.leftovers import leftovers, processes
from tests.hadoop.plugin import MakeCluster
from tests.hadoop.polling import wait
from tests.yarn.runner import make_whole

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def whole(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        resource_managers=2, node_expiry_ms=60_000, master_expiry_ms=600_000
    )


@pytest.fixture
def cluster(whole: Cluster) -> Iterator[Cluster]:
    """A test that failed half-way is not to fail those that come after it."""
    yield whole
    make_whole(whole)


def _running(cluster: Cluster) -> tuple[str, int]:
    """An application that runs, and its process on the node."""
    application = applications.submit(cluster, "sleep 600")
    applications.wait_running(cluster, application)
    number = application.removeprefix("application_")
    wait("the process", lambda: _sleepers(cluster, number))
    return application, _sleepers(cluster, number)[0]


def _sleepers(cluster: Cluster, number: str) -> list[int]:
    def is_one(process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.NoSuchProcess):
            return process.name() == "sleep" and number in process.environ().get("CONTAINER_ID", "")
        return False  # it has ended meanwhile

    return [each.pid for each in processes(cluster) if is_one(each)]


@pytest.fixture
def running(cluster: Cluster):
    """An application that runs throughout the test, with the same process in the end."""
    application, pid = _running(cluster)
    yield application
    number = application.removeprefix("application_")
    assert _sleepers(cluster, number) == [pid]
    applications.kill(cluster, application)
    wait("the end of everything", lambda: not leftovers(cluster, application))


def test_an_application_lives_through_a_fail_over(cluster: Cluster, running: str) -> None:
    before = cluster.active()
    assert cluster.fail_over() == (2 if before == 1 else 1)
    cluster.wait_ready()
    assert applications.state(cluster, running) == "ACCEPTED"
    assert running[12:] in str(cluster.containers())


def test_an_application_lives_through_the_death_of_the_active_resource_manager(
    cluster: Cluster, running: str
) -> None:
    before = cluster.active()
    cluster.kill(f"resourcemanager{before}")
    assert cluster.active() is None
    other = 3 - (before or 1)
    cluster.make_active(other)
    cluster.start(f"resourcemanager{before}")
    cluster.wait_ready()
    assert cluster.active() == other
    assert applications.state(cluster, running) == "ACCEPTED"


def test_an_application_lives_through_a_restart_of_its_node_manager(
    cluster: Cluster, running: str
) -> None:
    container = next(each for each in cluster.containers() if running[12:] in each["id"])
    name = f"nodemanager{container['nodeId'].split(':')[0][-1]}"
    cluster.restart(name)
    cluster.wait_ready()
    wait("the container", lambda: running[12:] in str(cluster.containers()))
    assert applications.state(cluster, running) == "ACCEPTED"


def test_files_are_there_after_a_restart_of_the_namenode(cluster: Cluster) -> None:
    cluster.hdfs("/tmp/kept", "MKDIRS")
    cluster.restart("namenode")
    cluster.wait_ready()
    assert cluster.hdfs("/tmp/kept", "GETFILESTATUS", "GET")["FileStatus"]["type"] == "DIRECTORY"


def test_hdfs_can_be_made_read_only(cluster: Cluster) -> None:
    cluster.set_read_only(True)
    try:
        with pytest.raises(urllib.error.HTTPError, match="safe mode"):
            cluster.hdfs("/tmp/refused", "MKDIRS")
    finally:
        cluster.set_read_only(False)
    cluster.hdfs("/tmp/taken", "MKDIRS")


def test_a_folder_can_be_made_full(cluster: Cluster) -> None:
    cluster.hdfs("/tmp/full", "MKDIRS")
    cluster.set_quota("/tmp/full", 1024)
    told = cluster.hdfs("/tmp/full", "GETCONTENTSUMMARY", "GET")["ContentSummary"]
    assert told["spaceQuota"] == 1024
    cluster.set_quota("/tmp/full", None)


def test_queues_can_be_changed_while_they_work(cluster: Cluster) -> None:
    cluster.configure_queues({"root.small": {"maximum-capacity": "20"}})
    queues = cluster.rm("scheduler")["scheduler"]["schedulerInfo"]["queues"]["queue"]
    assert {each["queueName"]: each["maxCapacity"] for each in queues}["small"] == 20.0


def test_a_daemon_that_does_not_exist_is_named(cluster: Cluster) -> None:
    with pytest.raises(ValueError, match="no daemon 'nodemanager9'; it has namenode,"):
        cluster.kill("nodemanager9")


def test_an_order_that_hadoop_refuses_says_why(cluster: Cluster) -> None:
    with pytest.raises(ClusterError, match="Unknown protocol: org.apache.hadoop.ha"):
        rpc.become_active(cluster.site.datanode_ports[1], cluster.site.user)
