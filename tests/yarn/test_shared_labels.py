"""Tasks without a label on idle nodes whose label is not exclusive."""

from __future__ import annotations

import pytest

from tests.hadoop.cluster import Cluster
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn
from tests.yarn.test_schedulers import run

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]


@pytest.fixture(scope="module")
def yarn_cluster(hadoop_module_cluster: MakeCluster) -> Cluster:
    return hadoop_module_cluster(
        node_managers=2, node_memory_mib=6144, gpu_node=True, exclusive_label=False
    )


def test_a_gang_runs_that_needs_them(yarn: Yarn) -> None:
    """Each of the two nodes has room for one of its tasks, and one of them has a label."""
    assert "worker:1  succeeded" in run(yarn, n=2, memory=3584).text
