"""The same cluster of the oldest and the newest Hadoop that is supported."""

from __future__ import annotations

import pytest

from tests.hadoop import applications
from tests.hadoop.leftovers import wait_same
from tests.hadoop.plugin import MakeCluster

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize("version", ["3.3.6", "3.5.0"])
def test_an_application_runs_on_hadoop(hadoop_cluster: MakeCluster, version: str) -> None:
    cluster = hadoop_cluster(version=version, node_managers=2)
    assert cluster.rm("info")["clusterInfo"]["hadoopVersion"] == version
    application = applications.submit(cluster, "exit 7", queue="gpu", label="gpu")
    told = applications.wait_final(cluster, application)
    assert "exitCode: 7" in told["diagnostics"]
    assert wait_same(cluster, frozenset(), application) == frozenset()
