"""Clusters unlike the shared one."""

from __future__ import annotations

import urllib.request

import pytest

from tests.hadoop import applications
from tests.hadoop.cluster import Cluster
from tests.hadoop.configuration import GPU
from tests.hadoop.options import Gpus, LogFormat
from tests.hadoop.plugin import MakeCluster
from tests.hadoop.polling import wait

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        web_proxy=True,
        log_format=LogFormat.INDEXED,
        gpus=Gpus.CUSTOM,
        gpus_per_node=3,
        node_managers=2,
        preemption_wait_ms=500,
        node_expiry_ms=5000,
        master_expiry_ms=600_000,
        properties={"yarn.resourcemanager.max-completed-applications": "77"},
    )


def test_pages_of_applications_are_behind_the_proxy_on_its_own_address(cluster: Cluster) -> None:
    application = applications.submit(cluster, "true")
    applications.wait_final(cluster, application)
    proxy = f"http://127.0.0.2:{cluster.site.proxy_port}/proxy/{application}/"
    assert cluster.proxy_web == f"http://127.0.0.2:{cluster.site.proxy_port}"
    with urllib.request.urlopen(proxy, timeout=20) as answer:
        assert application in answer.read().decode()


def test_aggregated_logs_can_be_indexed_files(cluster: Cluster) -> None:
    application = applications.submit(cluster, "echo hello")
    applications.wait_final(cluster, application)
    applications.wait_logs(cluster, application)
    folders = cluster.hdfs(f"/app-logs/{cluster.site.user}", "LISTSTATUS", "GET")
    names = [each["pathSuffix"] for each in folders["FileStatuses"]["FileStatus"]]
    assert names == ["bucket-logs-ifile"]


def test_gpus_can_be_a_plain_countable_resource(cluster: Cluster) -> None:
    node = next(each for each in cluster.nodes() if each.get("nodeLabels") == ["gpu"])
    told = node["totalResource"]["resourceInformations"]["resourceInformation"]
    assert {each["name"]: each["value"] for each in told}[GPU] == 3


def test_a_property_of_ones_own_reaches_every_configuration(cluster: Cluster) -> None:
    for folder in (cluster.conf_dir, cluster.folder / "daemons" / "resourcemanager1"):
        text = (folder / "yarn-site.xml").read_text()
        assert "<name>yarn.resourcemanager.max-completed-applications</name><value>77<" in text


def test_an_application_lives_through_a_restart_of_the_only_resource_manager(
    cluster: Cluster,
) -> None:
    application = applications.submit(cluster, "sleep 600")
    container = applications.wait_running(cluster, application)
    cluster.restart("resourcemanager")
    cluster.wait_ready()
    assert applications.state(cluster, application) == "ACCEPTED"
    assert applications.wait_running(cluster, application)["id"] == container["id"]
    applications.kill(cluster, application)


def test_a_silent_node_is_lost_and_comes_back(cluster: Cluster) -> None:
    def states() -> list[str]:
        return sorted(each["state"] for each in cluster.nodes())

    cluster.pause("nodemanager1")
    wait("the node to be lost", lambda: states() == ["LOST", "RUNNING"])
    cluster.resume("nodemanager1")
    wait("the node to come back", lambda: states() == ["RUNNING"] * 2)


def test_a_queue_takes_back_from_its_neighbour_what_it_is_guaranteed(cluster: Cluster) -> None:
    taking = [
        applications.submit(cluster, "sleep 600", queue="a", memory_mib=512, attempts=10)
        for _ in range(4)
    ]
    for application in taking:
        applications.wait_running(cluster, application)
    # 40 % of a 6 GiB node is 2.4 GiB: what b is guaranteed is taken from a.
    claimed = applications.submit(cluster, "sleep 600", queue="b", memory_mib=1024)
    applications.wait_running(cluster, claimed)

    def taken_back() -> int:
        told = [cluster.rm(f"apps/{application}")["app"] for application in taking]
        return sum(each["preemptedResourceMB"] for each in told)

    wait("preemption", taken_back)
    for application in [*taking, claimed]:
        applications.kill(cluster, application)
