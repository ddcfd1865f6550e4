"""Spark on YARN: the executors are containers of a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from howdah.spark import Cluster
from tests.hadoop.cluster import Cluster as HadoopCluster
from tests.spark.faulty import count, double, ended

pytestmark = pytest.mark.nightly


def test_a_cluster_in_yarn_containers_is_fed_trained_and_asked_for_answers(
    yarn_spark: Any, hadoop: HadoopCluster
) -> None:
    with Cluster.start(yarn_spark, count, workers=2, on_log=None) as cluster:
        report = cluster.train(yarn_spark.range(0, 4000, 1, 4), epochs=2, cache=True, align="none")
        assert report.rows == 8000
        assert cluster.places[0].folder != cluster.places[1].folder, "one in each container"
        found = cluster.results(timeout_s=60)
    for epoch in (0, 1):
        passes = [one for each in found.values() for one in each if one[0] == epoch]
        assert sum(rows for _, rows, _ in passes) == 4000
        assert sum(total for _, _, total in passes) == sum(range(4000))
    ended(cluster.job_id)

    def where_files_are(args: Any, ctx: Any) -> tuple[str, str]:
        double(args, ctx)
        return ctx.default_fs, ctx.absolute_path("models/m")

    with Cluster.start(yarn_spark, where_files_are, workers=2, on_log=None) as cluster:
        scored = cluster.inference(yarn_spark.range(0, 500, 1, 3), schema="twice long")
        assert [(row.id, row.twice) for row in scored.collect()] == [(i, 2 * i) for i in range(500)]
        told = cluster.results(timeout_s=60)[0]
    assert told[0] == hadoop.default_fs
    assert told[1].startswith(f"{hadoop.default_fs}/user/")
    ended(cluster.job_id)
