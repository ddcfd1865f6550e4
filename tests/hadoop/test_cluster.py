"""The cluster itself: what every test that uses it relies on."""

from __future__ import annotations

from tests.hadoop.cluster import Cluster
from tests.hadoop.configuration import GPU, LICENCE


def _resources(node: dict) -> dict[str, int]:
    told = node["totalResource"]["resourceInformations"]["resourceInformation"]
    return {each["name"]: each["value"] for each in told}


def test_all_nodes_are_there_and_the_last_one_has_the_label_and_the_gpus(hadoop: Cluster) -> None:
    nodes = sorted(hadoop.nodes(), key=lambda node: node["id"])
    assert [node["state"] for node in nodes] == ["RUNNING"] * 3
    assert [node.get("nodeLabels") for node in nodes] == [None, None, ["gpu"]]
    assert [_resources(node)[GPU] for node in nodes] == [0, 0, 2]
    assert [_resources(node)[LICENCE] for node in nodes] == [4, 4, 4]


def test_hdfs_has_the_folders_a_site_has(hadoop: Cluster) -> None:
    told = hadoop.hdfs("/", "LISTSTATUS", "GET")["FileStatuses"]["FileStatus"]
    modes = {each["pathSuffix"]: each["permission"] for each in told}
    assert modes.items() >= {"tmp": "1777", "user": "755", "app-logs": "1777"}.items()


def _may(cluster: Cluster, user: str, queue: str, what: str) -> bool:
    query = f"user={user}&queue-acl-type={what}"
    return cluster.rm(f"queues/{queue}/access?{query}")["allowed"] in (True, "true")


def test_a_queue_is_closed_to_all_but_the_administrator(hadoop: Cluster) -> None:
    submit = "SUBMIT_APPLICATIONS"
    assert _may(hadoop, "eve", "default", submit)
    assert _may(hadoop, "eve", "a", submit)
    assert not _may(hadoop, "eve", "closed", submit)
    assert _may(hadoop, hadoop.site.user, "closed", submit)
    assert not _may(hadoop, "eve", "default", "ADMINISTER_QUEUE")
