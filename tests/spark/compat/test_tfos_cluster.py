"""TFCluster on a Standalone master with four slots, as TensorFlowOnSpark's own tests."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from howdah.backends.base import BackendError
from howdah.client.errors import JobFailed
from howdah.compat.tensorflowonspark import TFCluster, TFNode
from howdah.compat.tensorflowonspark.TFCluster import InputMode
from howdah.spark.errors import FeedError


@pytest.fixture(scope="module")
def sc(standalone_spark: Any) -> Any:
    return standalone_spark.sparkContext


def _run(sc: Any, function: Any, args: Any = None, nodes: int = 2, **options: Any) -> Any:
    options.setdefault("input_mode", InputMode.SPARK)
    return TFCluster.run(sc, function, args, nodes, options.pop("num_ps", 0), **options)


# -- TensorFlowOnSpark's own ------------------------------------------------------------------------


def _write_square(args: Any, ctx: Any) -> None:
    Path(args.folder, str(ctx.worker_num)).write_text(str((args.base + ctx.worker_num) ** 2))


@pytest.mark.nightly
@pytest.mark.tfos("TFCluster: arguments reach the functions")
def test_arguments_reach_the_functions(sc: Any, tmp_path: Path) -> None:
    args = argparse.Namespace(folder=str(tmp_path), base=2)
    cluster = _run(sc, _write_square, args, input_mode=InputMode.TENSORFLOW)
    cluster.shutdown()
    assert sorted(file.read_text() for file in tmp_path.iterdir()) == ["4", "9"]


def _squares(args: Any, ctx: Any) -> None:
    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        batch = feed.next_batch(10)
        if batch:
            feed.batch_results([value * value for value in batch])


@pytest.mark.tfos(
    "TFCluster: sum of squares of 1,000 rows in 10 partitions",
    "TFCluster.inference: a lazy RDD, one answer a row",
)
def test_the_sum_of_squares_of_1000_rows_in_10_partitions(sc: Any) -> None:
    cluster = _run(sc, _squares)
    rdd = cluster.inference(sc.parallelize(range(1000), 10))
    assert rdd.sum() == sum(n * n for n in range(1000))
    assert rdd.getNumPartitions() == 10
    # Again, other rows: lazy, in order, one answer a row; partitions may be empty.
    assert cluster.inference(sc.parallelize([3, 1, 2], 5)).collect() == [9, 1, 4]
    cluster.shutdown()


def _fail(args: Any, ctx: Any) -> None:
    feed = TFNode.DataFeed(ctx.mgr, False)
    while not feed.should_stop():
        if feed.next_batch(10):
            raise RuntimeError("FAKE exception during training")


@pytest.mark.nightly
@pytest.mark.tfos(
    "TFCluster: an exception while feeding", "TFCluster: a second cluster after a failed one"
)
def test_an_exception_while_feeding_is_known_at_once_and_harms_no_later_cluster(sc: Any) -> None:
    cluster = _run(sc, _fail)
    with pytest.raises(Exception, match="FAKE exception during training"):
        cluster.inference(sc.parallelize(range(1000), 10), feed_timeout=1).count()
    with pytest.raises(JobFailed, match="FAKE exception during training"):
        cluster.shutdown()
    again = _run(sc, _squares)
    assert again.inference(sc.parallelize([4], 1)).collect() == [16]
    again.shutdown()


def _fail_late(args: Any, ctx: Any) -> None:
    _squares(args, ctx)
    raise RuntimeError("FAKE exception after feeding")


@pytest.mark.nightly
@pytest.mark.tfos("TFCluster: a late exception, with grace")
def test_an_exception_after_feeding_fails_the_shutdown(sc: Any) -> None:
    cluster = _run(sc, _fail_late)
    assert cluster.inference(sc.parallelize(range(100), 2)).count() == 100
    with pytest.raises(JobFailed, match="FAKE exception after feeding"):
        cluster.shutdown(grace_secs=5)


def _ports(args: Any, ctx: Any) -> list[bool]:
    port = int(ctx.cluster_spec[ctx.job_name][ctx.task_index].rpartition(":")[2])

    def free() -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                return False
        return True

    told = [ctx.tmp_socket is None, free()]
    ctx.release_port()
    return [*told, ctx.tmp_socket is None, free()]


@pytest.mark.nightly
@pytest.mark.tfos(
    "TFCluster: the port is released", "TFCluster: the port is the program's to release"
)
def test_ports_are_released_by_whom_it_was_said(sc: Any) -> None:
    for release, expected in (
        (True, [True, True, True, True]),
        (False, [False, False, True, True]),
    ):
        cluster = _run(sc, _ports, nodes=1, release_port=release, input_mode=InputMode.TENSORFLOW)
        cluster.shutdown()
        assert cluster.howdah.results() == {0: expected}
    # Of several nodes the agent holds each port too, for a server of TensorFlow's to share.
    options = {"release_port": False, "master_node": "chief"}
    cluster = _run(sc, _ports, input_mode=InputMode.TENSORFLOW, **options)
    cluster.shutdown()
    assert {rank: told[:3] for rank, told in cluster.howdah.results().items()} == {
        rank: [False, False, True] for rank in range(2)
    }


# -- run --------------------------------------------------------------------------------------------


def _describe(args: Any, ctx: Any) -> None:
    import json
    import sys

    names = "executor_id worker_num job_name task_index num_workers defaultFS working_dir"
    told = {name: getattr(ctx, name) for name in names.split()}
    told["roles"] = {name: len(nodes) for name, nodes in ctx.cluster_spec.items()}
    told["path"] = ctx.absolute_path("x")
    told["state"] = ctx.mgr.get("state")
    told["argv"] = sys.argv
    told["tf_config"] = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task")
    told["legacy"] = os.environ.get("TF_USE_LEGACY_KERAS")
    told["gpus"] = os.environ["CUDA_VISIBLE_DEVICES"]
    said = Path(args[1], ctx.job_name)
    said.with_suffix(".part").write_text(json.dumps(told))
    said.with_suffix(".part").rename(said)
    # The others are ended with the chief: they may not have come to their first lines.
    while ctx.job_name == "ps" or not all(
        Path(args[1], name).exists() for name in ctx.cluster_spec
    ):
        time.sleep(0.05)


@pytest.mark.nightly
@pytest.mark.tfos(
    "TFCluster.run: nodes, template, cluster_info and attributes",
    "TFNodeContext: attributes",
    "TFCluster.run: arguments as a list become sys.argv",
    "TFCluster.run: parameter servers on the driver",
    "TFCluster.run: TF_CONFIG and tf_keras are set",
)
def test_every_node_knows_who_it_is(sc: Any, tmp_path: Path) -> None:
    import json

    cluster = _run(
        sc,
        _describe,
        ["--folder", str(tmp_path)],
        nodes=3,
        num_ps=1,
        driver_ps_nodes=True,
        master_node="chief",
        input_mode=InputMode.TENSORFLOW,
    )
    nodes = [
        (each["executor_id"], each["job_name"], each["task_index"]) for each in cluster.cluster_info
    ]
    assert nodes == [(0, "ps", 0), (1, "chief", 0), (2, "worker", 0)]
    assert all(each["host"] and each["port"] for each in cluster.cluster_info)
    template = {"ps": [0], "chief": [1], "worker": [2]}
    assert cluster.meta is cluster.cluster_meta
    assert cluster.meta["cluster_template"] == template
    assert (cluster.sc, cluster.num_executors, cluster.defaultFS) == (sc, 3, "file://")
    assert (cluster.input_mode, cluster.working_dir) == (InputMode.TENSORFLOW, str(Path.cwd()))
    assert cluster.nodeRDD.collect() == [1, 2] and not cluster.server.done
    assert cluster.tensorboard_url() is None
    cluster.shutdown()
    for number, name in enumerate(("ps", "chief", "worker")):
        each = json.loads((tmp_path / name).read_text())
        assert (each["executor_id"], each["worker_num"], each["job_name"]) == (number, number, name)
        assert each["num_workers"] == 2 and each["task_index"] == 0
        assert each["roles"] == {"ps": 1, "chief": 1, "worker": 1}
        assert each["tf_config"] == {"type": name, "index": 0}
        assert each["path"] == f"file://{Path.cwd()}/x"
        assert (each["state"], each["legacy"], each["gpus"]) == ("running", "1", "")
        assert each["argv"] == ["--folder", str(tmp_path)]


@pytest.mark.tfos(
    "TFCluster.run: what is for TENSORFLOW mode only is refused",
    "TFCluster.run: more nodes than the cluster has",
)
def test_what_cannot_be_is_refused_before_anything_starts(sc: Any) -> None:
    with pytest.raises(ValueError, match="PS nodes on driver locally is only supported in"):
        _run(sc, _squares, num_ps=1, driver_ps_nodes=True)
    with pytest.raises(ValueError, match="evaluator nodes is only supported in"):
        _run(sc, _squares, eval_node=True)
    with pytest.raises(ValueError, match="requires 2 nodes, but only 1 executors available"):
        _run(sc, _squares, nodes=1, num_ps=1, master_node="chief")
    with pytest.raises(BackendError, match="needs 9 slots at the same time, the application has 4"):
        _run(sc, _squares, nodes=9)


# -- train ------------------------------------------------------------------------------------------


def _collect(args: Any, ctx: Any) -> list[Any]:
    rows: list[Any] = []
    for queue in ("input", "frames"):
        feed = ctx.get_data_feed(qname_in=queue)
        while not feed.should_stop():
            rows += feed.next_batch(3)
    return rows


@pytest.mark.nightly
@pytest.mark.tfos(
    "TFCluster.train: rows of any type arrive as they were",
    "TFCluster.train: DataFrames arrive as Row objects",
    "TFCluster.train: epochs, queues and modes are checked",
)
def test_rows_arrive_as_they_were(sc: Any, standalone_spark: Any) -> None:
    from pyspark.sql import Row

    cluster = _run(sc, _collect, nodes=1, queues=["input", "frames", "output", "error"])
    given = [(1, [0.5, None]), {"a": b"\0"}, "text", None, SimpleNamespace(x=1), [1, "two"]]
    cluster.train(sc.parallelize(given, 1), 1)
    cluster.train(sc.parallelize(["default"], 1))  # ten times
    with pytest.raises(AssertionError, match="Unknown queue: other"):
        cluster.train(sc.parallelize(["x"]), 1, qname="other")
    with pytest.raises(AssertionError, match="num_epochs cannot be negative"):
        cluster.train(sc.parallelize(["x"]), -1)
    cluster.howdah.end_feed("input")
    columns = "image array<double>, n int, s string, b binary"
    frame = standalone_spark.createDataFrame([([1.0, 2.0], 7, "é", b"ab")], columns)
    cluster.train(frame, 2, qname="frames")
    cluster.shutdown()
    rows = cluster.howdah.results()[0]
    assert rows[:6] == given
    assert rows[6:16] == ["default"] * 10
    row = Row(image=[1.0, 2.0], n=7, s="é", b=b"ab")
    assert rows[16:] == [row, row] and rows[16].image == [1.0, 2.0]
    reader = _run(sc, lambda args, ctx: None, nodes=1, input_mode=InputMode.TENSORFLOW)
    for feeding in (reader.train, reader.inference):
        with pytest.raises(AssertionError, match=r"requires InputMode\.SPARK"):
            feeding(sc.parallelize([1]))
    reader.shutdown()


def _enough(args: Any, ctx: Any) -> int:
    feed = ctx.get_data_feed()
    rows = len(feed.next_batch(5))
    feed.terminate()
    return rows


@pytest.mark.nightly
@pytest.mark.tfos("DataFeed.terminate ends the feeding")
def test_a_terminated_feed_ends_without_the_rest_of_the_rows(sc: Any) -> None:
    cluster = _run(sc, _enough)
    rows = sc.parallelize(range(8), 8).flatMap(lambda n: (b"x" * 1000 for _ in range(20_000)))
    cluster.train(rows, 100)
    assert cluster.server.done
    cluster.shutdown()
    assert cluster.howdah.results() == {0: 5, 1: 5}


def _idle(args: Any, ctx: Any) -> None:
    feed = ctx.get_data_feed()
    feed.next_batch(1)
    while True:
        time.sleep(0.1)


@pytest.mark.nightly
@pytest.mark.tfos(
    "TFCluster.train: the feed times out", "TFCluster.shutdown: functions that do not end"
)
def test_a_program_that_stands_still_fails_feeding_and_shutdown_in_time(sc: Any) -> None:
    cluster = _run(sc, _idle, nodes=1)
    with pytest.raises(FeedError, match=r"for \d+ s \(timeout_s=20\)"):
        cluster.train(sc.parallelize(range(10_000), 2), 1, feed_timeout=20)
    with pytest.raises(TimeoutError):
        cluster.shutdown(timeout=1)
    assert cluster.howdah.status().outcome == "stopped"


def _imports(args: Any, ctx: Any) -> list[str | None]:
    import tensorflowonspark.compat as compat  # pyright: ignore
    from tensorflowonspark import TFNode as Found  # pyright: ignore

    keras = os.environ.get("TF_USE_LEGACY_KERAS")
    return [Found.__name__, compat.__name__, type(args).__module__, keras]


@pytest.mark.nightly
@pytest.mark.tfos("install(): import tensorflowonspark, in functions and modules")
def test_functions_and_modules_may_import_tensorflowonspark(sc: Any, tmp_path: Path) -> None:
    from howdah.compat import tensorflowonspark

    (tmp_path / "their_module.py").write_text(
        "from tensorflowonspark import TFNode, TFCluster\n"
        "def main_fun(args, ctx):\n"
        "    return TFNode.DataFeed.__module__\n"
    )
    home = "howdah.compat.tensorflowonspark"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        patch.delitem(sys.modules, "tensorflow", raising=False)
        patch.delenv("TF_USE_LEGACY_KERAS", raising=False)
        tensorflowonspark.install()
        try:
            import their_module  # pyright: ignore

            keras = os.environ.get("TF_USE_LEGACY_KERAS")
            for function, expected in (
                (their_module.main_fun, f"{home}.TFNode"),
                (_imports, [f"{home}.TFNode", f"{home}.compat", "builtins", keras]),
            ):
                cluster = _run(sc, function, nodes=1, input_mode=InputMode.TENSORFLOW)
                cluster.shutdown()
                assert cluster.howdah.results() == {0: expected}
        finally:
            tensorflowonspark.uninstall()


@pytest.mark.nightly
@pytest.mark.tfos("TFCluster.tensorboard_url")
def test_tensorboard_shows_the_folder_that_was_named(sc: Any, tmp_path: Path) -> None:
    def summarise(args: Any, ctx: Any) -> None:
        feed = ctx.get_data_feed()
        while not feed.should_stop():
            feed.next_batch(1)

    cluster = _run(sc, summarise, nodes=1, tensorboard=True, log_dir=str(tmp_path))
    while (url := cluster.tensorboard_url()) is None:
        pass  # TensorBoard is slow to load; each call waits
    assert url.startswith("http")
    job = cluster.howdah.status()
    assert any(task.role == "tensorboard" for task in job.tasks)
    cluster.shutdown()
