"""The parts of the compat module that need no Spark."""

from __future__ import annotations

import contextlib
import datetime
import importlib
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Row

from howdah.compat import tensorflowonspark
from howdah.compat.tensorflowonspark import (
    TFCluster,
    TFManager,
    TFNode,
    TFParallel,
    TFSparkNode,
    compat,
    gpu_info,
    marker,
    pipeline,
    rows,
    running,
    util,
)
from howdah.compat.tensorflowonspark.queues import AnswerQueue, Block, FeedQueue
from howdah.spark.context import file_system
from howdah.spark.feed.arrow.columns import Converter
from tests.docs.pages import blocks


@pytest.fixture
def installed() -> Iterator[None]:
    tensorflowonspark.install()
    yield
    tensorflowonspark.uninstall()


# -- names ------------------------------------------------------------------------------------------


def test_install_makes_imports_of_tensorflowonspark_find_the_same_modules(installed: None) -> None:
    ours = importlib.import_module("tensorflowonspark.TFNode")
    assert ours is TFNode
    namespace: dict[str, Any] = {}
    exec("from tensorflowonspark import TFCluster, TFNode as node", namespace)
    assert namespace["TFCluster"] is TFCluster and namespace["node"] is TFNode
    assert TFNode.__name__ == "howdah.compat.tensorflowonspark.TFNode"
    assert TFNode.__spec__ is not None and TFNode.__spec__.name == TFNode.__name__


def test_what_is_pickled_under_the_alias_is_found_without_it(installed: None) -> None:
    namespace: dict[str, Any] = {}
    exec("from tensorflowonspark.TFSparkNode import TFNodeContext", namespace)
    data = pickle.dumps(namespace["TFNodeContext"](job_name="ps"))
    tensorflowonspark.uninstall()
    assert pickle.loads(data).job_name == "ps"


def test_uninstall_takes_the_names_away_again() -> None:
    tensorflowonspark.install()
    tensorflowonspark.install()
    importlib.import_module("tensorflowonspark")
    tensorflowonspark.uninstall()
    assert "tensorflowonspark" not in sys.modules
    with pytest.raises(ImportError):
        importlib.import_module("tensorflowonspark")


def test_a_module_that_is_not_there_is_not_found(installed: None) -> None:
    with pytest.raises(ImportError):
        importlib.import_module("tensorflowonspark.nothing")


KERAS = "TF_USE_LEGACY_KERAS"


@pytest.fixture
def tf_keras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is installed, TensorFlow is not imported yet, and nobody has said which Keras is wanted."""
    (tmp_path / "tf_keras.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    monkeypatch.delenv(KERAS, raising=False)


def test_install_gives_the_driver_the_keras_of_the_training_processes(
    tf_keras: None, request: pytest.FixtureRequest
) -> None:
    assert compat.legacy_keras() == {KERAS: "1"}
    request.getfixturevalue("installed")
    assert os.environ[KERAS] == "1"
    tensorflowonspark.uninstall()
    assert KERAS not in os.environ


@pytest.mark.parametrize("chosen", ["0", "1"])
def test_the_keras_that_the_driver_has_chosen_is_that_of_the_training_processes(
    tf_keras: None,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    chosen: str,
) -> None:
    monkeypatch.setenv(KERAS, chosen)
    request.getfixturevalue("installed")
    assert os.environ[KERAS] == chosen
    assert compat.legacy_keras() == {KERAS: chosen}
    tensorflowonspark.uninstall()
    assert os.environ[KERAS] == chosen


def test_install_warns_where_the_driver_uses_the_other_keras_already(
    tf_keras: None, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", ModuleType("tensorflow"))
    with pytest.warns(
        UserWarning, match="uses Keras 3 in this process.*install.. first, or set TF_"
    ):
        request.getfixturevalue("installed")
    assert KERAS not in os.environ


def test_the_programs_of_the_guide_from_tensorflowonspark_find_these_modules(
    tf_keras: None,
) -> None:
    shown = [each for each in blocks("python") if each.page.name == "from-tensorflowonspark.md"]
    assert len(shown) == 2
    for block in shown:
        names: dict[str, Any] = {}
        try:
            exec(block.text, names)
        finally:
            tensorflowonspark.uninstall()
        assert (names["TFCluster"], names["TFNode"]) == (TFCluster, TFNode)


# -- paths ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("default_fs", "path", "expected"),
    [
        ("file://", "/foo/bar", "file:///foo/bar"),
        ("file:///", "/foo/bar", "file:///foo/bar"),
        ("hdfs://nn:8020", "/foo/bar", "hdfs://nn:8020/foo/bar"),
        ("hdfs://nn:8020/", "/foo/bar", "hdfs://nn:8020/foo/bar"),
        ("viewfs://nn", "/foo/bar", "viewfs://nn/foo/bar"),
        ("file://", "foo", "file:///w/foo"),
        ("hdfs://nn:8020", "foo", "hdfs://nn:8020/user/ann/foo"),
        ("viewfs://nn", "foo", "viewfs://nn/user/ann/foo"),
        ("s3a://bucket", "foo", "s3a://bucket/foo"),
        *(
            ("file://", path, path)
            for path in ("adl://b/x", "s3a://b/x", "http://b/x", "hdfs:///x")
        ),
    ],
)
def test_other_paths_are_on_the_default_file_system(
    default_fs: str, path: str, expected: str
) -> None:
    ctx = SimpleNamespace(defaultFS=default_fs, working_dir="/w", user="ann")
    assert TFNode.hdfs_path(ctx, path) == expected


@pytest.mark.parametrize("configured", ["file:///", "file:/", "file://", None])
def test_the_local_file_system_has_one_name(configured: str | None) -> None:
    assert file_system(configured) == "file://"


# -- rows -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def queued(*items: Any) -> Iterator[TFManager.TFManager]:
    """A manager with those in its queue, and the end of the feed."""
    manager = TFManager.start(b"key", ["input", "output"])
    queue = manager.get_queue("input")
    assert queue is not None
    for item in (*items, None):
        queue.put(item)
    yield manager
    manager.shutdown()


def test_a_data_feed_gives_batches_until_its_queue_ends() -> None:
    with queued(*range(5), marker.EndPartition(), *range(5, 10)) as manager:
        manager.set("state", "running")
        assert manager.get("state") == "running"
        feed = TFNode.DataFeed(manager)
        assert feed.next_batch(2) == [0, 1] and not feed.should_stop()
        assert feed.next_batch(4) == [2, 3, 4, 5] and not feed.should_stop()
        assert feed.next_batch(10) == [6, 7, 8, 9] and feed.should_stop()
        assert TFManager.connect(manager.address, b"key") is manager
    with pytest.raises(ConnectionError, match="no manager at"):
        TFManager.connect("nowhere", b"abc")
    # Where each batch is to be answered it ends with its partition.
    with queued(1, 2, marker.EndPartition(), 3) as manager:
        feed = TFNode.DataFeed(manager, train_mode=False)
        assert [feed.next_batch(10), feed.next_batch(10)] == [[1, 2], [3]]
        assert feed.should_stop()
    # A mapping gives tensors by name, in the order of the columns.
    with queued(("a0", "b0"), ("a1", "b1")) as manager:
        feed = TFNode.DataFeed(manager, input_mapping={"b": "y", "a": "x"})
        assert feed.next_batch(2) == {"x": ["a0", "a1"], "y": ["b0", "b1"]}


def test_a_row_that_is_none_does_not_end_the_feed() -> None:
    source = FeedQueue(iter([Block([None, 1]), Block([None]), Block([2])]), lambda: None)
    feed = TFNode.DataFeed(TFManager.TFManager({"input": source, "output": AnswerQueue(source)}))
    assert feed.next_batch(3) == [None, 1, None] and not feed.should_stop()
    assert feed.next_batch(3) == [2] and feed.should_stop()


class _Answered:
    def __init__(self, *sizes: int) -> None:
        self.answers: list[list[Any]] = []
        self.stopped = False
        self._sizes = sizes

    def blocks(self) -> Iterator[Block]:
        first = 0
        for size in self._sizes:
            yield Block(list(range(first, first + size)), self.answers.append)
            first += size

    def feed(self) -> TFNode.DataFeed:
        source = FeedQueue(self.blocks(), self._stop)
        manager = TFManager.TFManager({"input": source, "output": AnswerQueue(source)})
        return TFNode.DataFeed(manager, train_mode=False)

    def _stop(self) -> None:
        self.stopped = True


def test_answers_go_back_block_by_block_whatever_the_batch_size() -> None:
    answered = _Answered(5, 1, 4)
    feed = answered.feed()
    sizes: list[int] = []
    while not feed.should_stop():
        batch = feed.next_batch(3)
        sizes.append(len(batch))
        feed.batch_results([-number for number in batch])
    assert sizes == [3, 2, 1, 3, 1, 0]
    assert answered.answers == [[0, -1, -2, -3, -4], [-5], [-6, -7, -8, -9]]


def test_answers_come_before_the_next_rows_and_are_no_more_than_rows() -> None:
    answered = _Answered(2, 2)
    feed = answered.feed()
    feed.next_batch(2)
    with pytest.raises(RuntimeError, match="batch_results"):
        feed.next_batch(2)
    feed.terminate()
    assert answered.stopped and feed.mgr.get("state") == "terminating"
    feed = _Answered(2).feed()
    feed.next_batch(2)
    with pytest.raises(RuntimeError, match="more results than rows"):
        feed.batch_results([1, 2, 3])


@pytest.mark.parametrize(
    "row", [1, "x", (1, [0.5, 2.0]), [1, None], {"a": b"\0"}, (np.float32(1.5), "é"), None]
)
def test_python_rows_come_back_as_they_were(row: Any) -> None:
    given = [row] * 3
    batches = list(rows.to_arrow(given))
    assert list(rows.from_arrow(batches)) == given
    column = np.array(batches[0].column(0).to_pylist(), dtype=object)
    assert rows.of_batch({rows.PICKLED: column}, rows.SCHEMA) == given


def test_a_view_takes_only_its_own_part_along() -> None:
    images = np.zeros((1000, 784), np.uint8)
    (batch,) = rows.to_arrow([images[7]])
    assert batch.nbytes < 2000


def test_batches_of_rows_are_bounded_in_bytes() -> None:
    sizes = [batch.nbytes for batch in rows.to_arrow(b"x" * 100_000 for _ in range(200))]
    assert len(sizes) > 15 and max(sizes) < rows.BATCH_BYTES + 200_000


def test_values_of_a_frame_are_those_that_its_rdd_has() -> None:
    """Whatever arrays a batch makes of them: equal lengths are a matrix, others not."""
    noon = datetime.datetime(2026, 1, 1, 12)
    columns = {
        "number": pa.array([1, None]),
        "data": pa.array([b"ab", None]),
        "equal": pa.array([[0.5, 1.0], [2.0, 3.0]]),
        "ragged": pa.array([[1, 2], [3]]),
        "holes": pa.array([[1, None], None]),
        "deep": pa.array([[[1], [2, 3]], [[4]]]),
        "words": pa.array([["a", "b"], ["c"]]),
        "images": pa.array([[b"a", b"b"], [b"c", b"d"]]),
        "more": pa.array([[b"a"], [b"bc", None]]),
        "time": pa.array([noon, None], pa.timestamp("us")),
        "pair": pa.array([{"a": [1], "b": b"x"}, {"a": [2, 3], "b": b"yz"}]),
    }
    given = pa.record_batch(columns)
    found = rows.of_batch(Converter("train", None, None).convert(given), given.schema)
    for name, column in columns.items():
        wanted = [Row(**each) if name == "pair" else each for each in column.to_pylist()]
        assert repr([row[name] for row in found]) == repr(wanted)


def test_an_instant_of_a_frame_is_in_local_time_as_in_its_rdd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However deep it is, and whatever zone its column has: a session's batches come in the session's."""
    noon = datetime.datetime(2026, 1, 1, 12)
    evening = noon.replace(hour=21)
    at, paris = pa.timestamp("us", "UTC"), pa.timestamp("us", "Europe/Paris")
    event = pa.struct({"at": at, "name": pa.string()})
    given = pa.record_batch(
        {
            "at": pa.array([noon, None], at),
            "equal": pa.array([[noon, noon], [noon, None]], pa.list_(at)),
            "ragged": pa.array([[noon], None], pa.list_(at)),
            "deep": pa.array([[[noon], []], [[noon, None]]], pa.list_(pa.list_(at))),
            "square": pa.array([[[noon]], [[None]]], pa.list_(pa.list_(at))),
            "values": pa.array([[("a", noon)], None], pa.map_(pa.string(), at)),
            "zoned": pa.array([[(noon, noon)], []], pa.map_(paris, paris)),
            "lists": pa.array([[("a", [noon])], []], pa.map_(pa.string(), pa.list_(at))),
            "maps": pa.array(
                [[("a", [("b", noon)])], []], pa.map_(pa.string(), pa.map_(pa.string(), at))
            ),
            "event": pa.array([{"at": noon, "name": "x"}, {"at": None, "name": "y"}], event),
            "events": pa.array([[{"at": noon, "name": "x"}], None], pa.list_(event)),
            "local": pa.array([[noon], [noon, None]], pa.list_(pa.timestamp("us"))),
        }
    )
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        found = rows.of_batch(Converter("train", None, None).convert(given), given.schema)
    time.tzset()
    first, second = (row.asDict() for row in found)
    assert first == {
        "at": evening,
        "equal": [evening, evening],
        "ragged": [evening],
        "deep": [[evening], []],
        "square": [[evening]],
        "values": {"a": evening},
        "zoned": {evening: evening},
        "lists": {"a": [evening]},
        "maps": {"a": {"b": evening}},
        "event": Row(at=evening, name="x"),
        "events": [Row(at=evening, name="x")],
        "local": [noon],
    }
    assert repr(first["events"]) == repr([Row(at=evening, name="x")])
    assert second == {
        "at": None,
        "equal": [evening, None],
        "ragged": None,
        "deep": [[evening, None]],
        "square": [[None]],
        "values": None,
        "zoned": {},
        "lists": {},
        "maps": {},
        "event": Row(at=None, name="y"),
        "events": None,
        "local": [noon, None],
    }


# -- nodes ------------------------------------------------------------------------------------------


def test_nodes_are_numbered_ps_first_then_chief_evaluator_workers() -> None:
    template = TFSparkNode.cluster_template(6, 1, "chief", True)
    assert template == {"ps": [0], "chief": [1], "evaluator": [2], "worker": [3, 4, 5]}
    assert TFCluster.shape(template) == {
        "workers": 3, "ps": 1, "chief": 1, "evaluator": True, "roles": None,
    }  # fmt: skip
    assert TFCluster.shape({"master": [0], "worker": [1]})["roles"] == {"master": 1}


def test_more_kinds_of_nodes_than_nodes_are_refused_in_the_known_words() -> None:
    with pytest.raises(ValueError, match="requires 3 nodes, but only 2 executors available"):
        TFSparkNode.cluster_template(2, 2, "chief", False)
    with pytest.raises(ValueError, match="at least one worker"):
        TFSparkNode.cluster_template(2, 2, None, False)


def test_the_cluster_spec_is_in_the_order_of_the_numbers() -> None:
    nodes = [
        {"executor_id": number, "job_name": name, "host": "h", "port": 1000 + number}
        for number, name in [(2, "worker"), (0, "ps"), (1, "worker")]
    ]
    assert TFSparkNode.cluster_spec(nodes) == {"ps": ["h:1000"], "worker": ["h:1001", "h:1002"]}
    with pytest.raises(ValueError, match="Duplicate"):
        TFSparkNode.cluster_spec([*nodes, nodes[0]])
    assert TFSparkNode._get_cluster_spec(nodes) == TFSparkNode.cluster_spec(nodes)


@pytest.fixture
def hadoop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a Hadoop that counts how often it is asked; the environment names none."""
    program = tmp_path / "bin" / "hadoop"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$*$HADOOP_HOME" = "classpath --glob{tmp_path}" ] || exit 1\n'
        f"echo >> {tmp_path}/asked\necho /jars/a.jar:/jars/b.jar\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for name in list(os.environ):
        if name.startswith("HADOOP_") or name in ("LD_LIBRARY_PATH", util.CLASSPATH_UPDATED):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CLASSPATH", "mine.jar")
    return tmp_path


@pytest.mark.parametrize(
    ("default_fs", "expected"),
    [("hdfs://nn:8020", "mine.jar:/jars/a.jar:/jars/b.jar"), ("file://", "mine.jar")],
)
def test_programs_find_the_classes_of_hadoop_where_it_is_at_hand(
    default_fs: str, expected: str, installed: None, hadoop: Path
) -> None:
    os.environ["HADOOP_PREFIX"] = str(hadoop)
    node = running.NodeCall(
        call=running.pickled(lambda args, ctx: os.environ["CLASSPATH"], {"num_gpus": 0}),
        template={"worker": [0]},
        default_fs=default_fs,
        working_dir="/",
        user="u",
        fed=False,
    )
    me = SimpleNamespace(role="worker", index=0, rank=0, cluster={"worker": ["h:1"]})
    assert running.run_node(node, me) == expected


@pytest.mark.parametrize("libhdfs", [True, False])
def test_the_classes_of_hadoop_come_from_where_it_is_and_nothing_else_changes(
    libhdfs: bool, hadoop: Path
) -> None:
    os.environ |= {"HADOOP_HOME": "/nowhere", "HADOOP_PREFIX": str(hadoop)}
    native = hadoop / "lib" / "native"
    native.mkdir(parents=True)
    before = dict(os.environ)
    if libhdfs:
        (native / "libhdfs.so").touch()
        before["HADOOP_HDFS_HOME"] = str(hadoop)
    util.find_hadoop()
    assert os.environ.pop(util.CLASSPATH_UPDATED) == "1"
    assert os.environ == before | {"CLASSPATH": "mine.jar:/jars/a.jar:/jars/b.jar"}


def test_processes_on_their_own_find_the_classes_of_hadoop_and_ask_it_once(hadoop: Path) -> None:
    os.environ["HADOOP_HOME"] = str(hadoop)
    before = dict(os.environ)
    instance = TFParallel.Instance(
        call=running.pickled(lambda args, ctx: os.environ["CLASSPATH"], {"num_gpus": 0}),
        count=1,
        barrier=False,
        default_fs="hdfs://nn:8020",
        working_dir="/",
        user="u",
        env={},
    )
    expected = "mine.jar:/jars/a.jar:/jars/b.jar"
    assert list(TFParallel.call(instance, 0)) == [(0, expected)]
    assert os.environ == before  # Spark's worker goes on
    for _ in range(2):
        pipeline.single_node_env({"num_gpus": 0})
        assert os.environ["CLASSPATH"] == expected
    assert (hadoop / "asked").read_text() == 2 * "\n"


def test_a_context_counts_those_that_train() -> None:
    spec = {"ps": ["a"], "chief": ["b"], "worker": ["c", "d"], "evaluator": ["e"]}
    assert TFSparkNode.TFNodeContext(cluster_spec=spec).num_workers == 3


def test_deprecated_functions_say_so_in_the_known_words() -> None:
    ctx = TFSparkNode.TFNodeContext()
    calls: dict[str, Callable[[], Any]] = {
        "TFNode.DataFeed class": lambda: TFNode.next_batch(None, 1),
        "TFNode.DataFeed": lambda: TFNode.batch_results(None, []),
        "": lambda: TFNode.terminate(None),
        "higher-level APIs": lambda: ctx.start_cluster_server(1, rdma=True),
        " ": lambda: ctx.export_saved_model(None, "x", "serve", {}),
    }
    for words, call in calls.items():
        with pytest.raises(Exception, match=f"DEPRECATED: Use {words.strip()}"):
            call()


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (lambda: TFSparkNode.run(print, [], {}, False, None, [], True), "TFCluster.run"),
        (lambda: TFSparkNode.train([], {}), "cluster.train"),
        (lambda: TFSparkNode.inference([], 600, "input"), "cluster.inference"),
        (lambda: TFSparkNode.shutdown([]), "cluster.shutdown"),
    ],
)
def test_tasks_of_theirs_that_do_not_run_here_name_what_does(make: Any, instead: str) -> None:
    with pytest.raises(NotImplementedError, match=instead):
        make()


def test_an_error_of_the_functions_is_in_the_status_too() -> None:
    def fail(timeout_s: float | None) -> None:
        raise RuntimeError("FAKE exception after feeding")

    cluster = TFCluster.TFCluster()
    cluster.howdah = SimpleNamespace(results=fail, stop=lambda reason: None)  # type: ignore[assignment]
    TFCluster.tf_status.clear()
    with pytest.raises(RuntimeError, match="FAKE"):
        cluster.shutdown()
    assert TFCluster.tf_status == {"error": "FAKE exception after feeding"}
    TFCluster.tf_status.clear()


@pytest.mark.parametrize(
    ("address", "host"),
    [("h:1", "h"), ("h", "h"), ("10.0.0.1:22", "10.0.0.1"), ("[::1]:5", "::1")],
)
def test_hosts_of_addresses(address: str, host: str) -> None:
    assert util.host_of(address) == host


def test_a_host_is_not_taken_for_another_that_begins_like_it() -> None:
    assert util.place_on_host(["10.0.0.10:1", "10.0.0.1:1", "10.0.0.1:2"], 2) == 1


# -- GPUs -------------------------------------------------------------------------------------------


def _choose(requested: int | None, given: list[str], free: list[str], **kind: bool) -> list[str]:
    return gpu_info.choose(
        requested,
        given=given,
        kubernetes=kind.get("kubernetes", False),
        available=lambda: bool(free),
        free=lambda count: free[:count],
    )


@pytest.mark.parametrize(
    ("requested", "given", "free", "expected"),
    [
        (None, [], [], []),
        (None, [], ["0", "1"], ["0"]),
        (2, [], ["0", "1"], ["0", "1"]),
        (0, [], ["0", "1"], []),
        (None, ["5", "6"], ["0"], ["5", "6"]),
        (1, ["5", "6"], ["0"], ["5"]),
    ],
)
def test_sparks_gpus_come_first_then_free_ones(
    requested: int | None, given: list[str], free: list[str], expected: list[str]
) -> None:
    assert _choose(requested, given, free) == expected
    with pytest.raises(RuntimeError, match=r"Unable to allocate 2 GPU\(s\)"):
        _choose(2, [], [])
    # On Kubernetes there are no others.
    assert _choose(None, given, free, kubernetes=True) == given


@pytest.mark.parametrize("worker", range(5))
def test_shares_are_as_big_as_asked_also_beyond_the_last(worker: int) -> None:
    assert len(set(gpu_info.share(["0", "1", "2"], 2, worker))) == 2


def test_gpus_are_asked_for_by_a_namespace_or_a_dictionary() -> None:
    assert TFSparkNode.wanted_gpus(SimpleNamespace(num_gpus=2)) == 2
    assert TFSparkNode.wanted_gpus({"num_gpus": "3"}) == 3
    assert TFSparkNode.wanted_gpus(["--num_gpus", "1"]) is None
