"""What TensorFlowOnSpark's users call in Spark's tasks and in the driver, without a cluster."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from howdah.compat.tensorflowonspark import (
    TFNode,
    TFParallel,
    TFSparkNode,
    gpu_info,
    reservation,
    util,
)
from howdah.compat.tensorflowonspark.pipeline import Namespace, TFEstimator, TFModel
from tests.spark.compat import test_pure, test_reservation


@pytest.fixture(scope="module")
def sc(spark: Any) -> Any:
    return spark.sparkContext


def in_task(sc: Any, function: Callable[[], Any]) -> Any:
    """What it returns in a Python worker of Spark."""
    return sc.parallelize([0], 1).map(lambda _: function()).collect()[0]


# -- TFParallel -------------------------------------------------------------------------------------


def _square(args: Any, ctx: Any) -> tuple[int, int, str]:
    return args["base"] + ctx.worker_num**2, ctx.num_workers, ctx.defaultFS


@pytest.mark.nightly
@pytest.mark.tfos("TFParallel: without a barrier")
def test_instances_run_as_slots_come_free_and_return_values(sc: Any) -> None:
    found = TFParallel.run(sc, _square, {"base": 1}, 5, use_barrier=False)
    assert found == [(1 + n * n, 5, "file://") for n in range(5)]


@pytest.mark.nightly
@pytest.mark.tfos("TFParallel: with a barrier")
def test_instances_run_at_the_same_time_with_a_barrier(sc: Any, tmp_path: Path) -> None:
    def meet(args: Any, ctx: Any) -> list[str]:
        import time

        (Path(args) / str(ctx.executor_id)).touch()
        deadline = time.monotonic() + 30
        while len(found := sorted(p.name for p in Path(args).iterdir())) < ctx.num_workers:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return found

    assert TFParallel.run(sc, meet, str(tmp_path), 2) == [["0", "1"]] * 2


@pytest.mark.nightly
@pytest.mark.tfos("TFParallel: more instances than slots")
def test_more_instances_than_slots_are_refused_at_once_with_a_barrier(sc: Any) -> None:
    with pytest.raises(ValueError, match="num_executors=3 with use_barrier=True needs 3 slots"):
        TFParallel.run(sc, _square, {"base": 1}, 3)


@pytest.mark.nightly
def test_an_instance_that_raises_fails_the_call_and_leaves_no_trace(sc: Any) -> None:
    def fail(args: Any, ctx: Any) -> None:
        raise RuntimeError("no such model")

    with pytest.raises(Exception, match="no such model"):
        TFParallel.run(sc, fail, {}, 1)
    found = TFParallel.run(sc, lambda args, ctx: (args, __import__("sys").argv), ["a", "b"], 1)
    assert found == [(["a", "b"], ["a", "b"])]
    assert in_task(sc, lambda: "CUDA_VISIBLE_DEVICES" in os.environ) is False


# -- TFNode, TFSparkNode ----------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.tfos("TFNode: paths of three file systems")
def test_paths_are_made_absolute_by_file_system(sc: Any) -> None:
    def find() -> list[list[str]]:
        paths = ("hdfs://foo/bar", "viewfs://foo/bar", "file://foo/bar", "/foo/bar", "foo/bar")
        systems = ("file://", "hdfs://namenode:8020", "viewfs://namenode:8020")
        return [
            [
                TFNode.hdfs_path(SimpleNamespace(defaultFS=fs, working_dir="/cwd", user="u"), path)
                for path in paths
            ]
            for fs in systems
        ]

    kept = ["hdfs://foo/bar", "viewfs://foo/bar", "file://foo/bar"]
    assert in_task(sc, find) == [
        [*kept, "file:///foo/bar", "file:///cwd/foo/bar"],
        [*kept, "hdfs://namenode:8020/foo/bar", "hdfs://namenode:8020/user/u/foo/bar"],
        [*kept, "viewfs://namenode:8020/foo/bar", "viewfs://namenode:8020/user/u/foo/bar"],
    ]
    plain = SimpleNamespace(defaultFS="hdfs://n", working_dir="/cwd")
    user = os.environ.get("SPARK_USER") or getpass.getuser()
    assert TFNode.hdfs_path(plain, "x") == f"hdfs://n/user/{user}/x"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "shown",
    [
        pytest.param(
            test_pure.test_a_data_feed_gives_batches_until_its_queue_ends,
            marks=pytest.mark.tfos(
                "TFNode: batches of 2, 4 and the rest", "TFManager: queues and values"
            ),
            id="a data feed",
        ),
        pytest.param(
            test_pure.test_deprecated_functions_say_so_in_the_known_words,
            marks=pytest.mark.tfos("TFNode: functions of the past"),
            id="functions of the past",
        ),
        pytest.param(
            test_pure.test_the_cluster_spec_is_in_the_order_of_the_numbers,
            marks=pytest.mark.tfos("TFSparkNode: the cluster spec"),
            id="the cluster spec",
        ),
        pytest.param(
            test_reservation.test_reservations_are_done_when_all_are_there,
            marks=pytest.mark.tfos("reservation: the store"),
            id="the store of reservations",
        ),
    ],
)
def test_what_is_shown_without_spark_holds_in_a_task(sc: Any, shown: Callable[[], None]) -> None:
    in_task(sc, shown)


# -- GPUs -------------------------------------------------------------------------------------------


class _Machine:
    """In a task: a machine with those GPUs, where ``_use`` asks for some."""

    def __init__(self, devices: list[str], given: list[str] | None = None) -> None:
        self.devices = devices
        self.given = given or []

    def use(
        self, tf_args: Any, job_name: str = "worker", index: int = 0, kubernetes: bool = False
    ) -> str:
        spec = {"ps": ["h0:1"], "worker": ["h0:2", "h0:3", "h1:2"]}
        ctx = TFSparkNode.TFNodeContext(job_name=job_name, task_index=index, cluster_spec=spec)
        with pytest.MonkeyPatch.context() as patch:
            found = [gpu_info.gpus.Device(uuid=f"GPU-{d}", index=d) for d in self.devices]
            patch.setattr(gpu_info.gpus, "nvml_devices", lambda: found)
            patch.setattr(gpu_info, "RETRY_S", 0.0)
            patch.setattr(gpu_info, "_spark_addresses", lambda: self.given)
            patch.setenv("CUDA_VISIBLE_DEVICES", "")
            if kubernetes:
                patch.setenv("SPARK_EXECUTOR_POD_IP", "1.2.3.4")
            TFSparkNode.use_gpus(tf_args, ctx)
            return os.environ["CUDA_VISIBLE_DEVICES"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("devices", "given", "asked", "expected"),
    [
        pytest.param(
            ["0", "1"],
            [],
            [(argparse.Namespace(num_gpus=2), "ps")],
            ["0,1"],
            marks=pytest.mark.tfos(
                "TFSparkNode: GPUs wanted and there", "TFSparkNode: free GPUs where Spark has none"
            ),
            id="free ones",
        ),
        pytest.param(
            ["0", "1"],
            [],
            [({}, "ps")],
            ["0"],
            marks=pytest.mark.tfos("TFSparkNode: one GPU unless said otherwise"),
            id="one",
        ),
        pytest.param(
            ["0", "1", "2"],
            [],
            [({}, "ps", 0), ({}, "worker", 1), ({}, "worker", 2)],
            ["0", "2", "0"],
            marks=pytest.mark.tfos("TFSparkNode: GPUs by the place in the cluster spec"),
            id="different ones on a host",
        ),
        pytest.param(
            ["0", "1"],
            ["5", "6"],
            [({},), ({"num_gpus": 1},)],
            ["5,6", "5"],
            marks=pytest.mark.tfos("TFSparkNode: Spark's GPU resources come first"),
            id="Spark's",
        ),
        pytest.param(
            ["0"],
            [],
            [({}, "worker", 0, True)],
            [""],
            marks=pytest.mark.tfos("TFSparkNode: on Kubernetes only Spark's GPUs"),
            id="none on Kubernetes",
        ),
        pytest.param([], [], [({},)], [""], id="none"),
    ],
)
def test_a_node_uses_the_gpus_that_are_its_own(
    sc: Any, devices: list[str], given: list[str], asked: list[tuple[Any, ...]], expected: list[str]
) -> None:
    def use() -> list[str]:
        machine = _Machine(devices, given)
        return [machine.use(*each) for each in asked]

    assert in_task(sc, use) == expected


@pytest.mark.nightly
@pytest.mark.tfos("TFSparkNode: GPUs wanted where none are")
def test_gpus_that_are_not_there_fail_the_node(sc: Any) -> None:
    with pytest.raises(Exception, match=r"Unable to allocate 1 GPU\(s\) from available GPUs: \[\]"):
        in_task(sc, lambda: _Machine([]).use({"num_gpus": 1}))


@pytest.mark.nightly
@pytest.mark.tfos("util: single_node_env, get_ip_address, find_in_path")
def test_the_utilities_work_in_a_task(sc: Any, tmp_path: Path) -> None:
    (tmp_path / "tool").touch()

    def use() -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gpu_info.gpus, "nvml_devices", list)
            patch.setenv("CUDA_VISIBLE_DEVICES", "9")
            util.single_node_env(num_gpus=1)
            visible = os.environ["CUDA_VISIBLE_DEVICES"]
        path = os.pathsep.join(["/nowhere", str(tmp_path)])
        return [visible, util.find_in_path(path, "tool"), util.find_in_path(path, "no")]

    assert in_task(sc, use) == ["", str(tmp_path / "tool"), False]
    assert socket.inet_aton(in_task(sc, util.get_ip_address))
    assert in_task(sc, lambda: gpu_info.is_gpu_available()) in (True, False)


# -- reservation ------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[reservation.Server]:
    monkeypatch.setenv(reservation.TFOS_SERVER_HOST, "127.0.0.1")
    made = reservation.Server(2)
    yield made
    made.stop()
    made.join()


def _register(address: reservation.KeyedAddress, number: int) -> int:
    client = reservation.Client(address)
    client.register({"node": number})
    found = client.await_reservations()
    client.close()
    return len(found)


@pytest.mark.nightly
@pytest.mark.tfos("reservation: server and client", "reservation: several clients")
def test_nodes_in_tasks_register_with_the_driver(sc: Any, server: reservation.Server) -> None:
    address = server.start()
    counts = sc.parallelize(range(2), 2).map(lambda n: _register(address, n)).collect()
    assert counts == [2, 2]
    assert sorted(each["node"] for each in server.await_reservations(sc)) == [0, 1]

    def stop() -> Any:
        client = reservation.Client(address)
        answer = client.request_stop()
        client.close()
        return answer

    assert in_task(sc, stop) == "OK" and server.done


def _in_environment(**env: str) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        server = reservation.Server(1)
        return [server.get_server_ip(), server.get_server_ports()]


@pytest.mark.nightly
@pytest.mark.tfos(
    "reservation: the host of TFOS_SERVER_HOST",
    "reservation: this machine's address",
    "reservation: the port of TFOS_SERVER_PORT",
    "reservation: a range of ports",
    "reservation: any port",
)
def test_host_and_ports_come_from_the_environment(sc: Any) -> None:
    assert in_task(sc, lambda: _in_environment(TFOS_SERVER_HOST="my-host")) == ["my-host", [0]]
    address = in_task(sc, util.get_ip_address)
    assert in_task(sc, lambda: _in_environment(TFOS_SERVER_PORT="9999")) == [address, [9999]]
    ports = in_task(sc, lambda: _in_environment(TFOS_SERVER_PORT="9997-9999"))[1]
    assert ports == [9997, 9998, 9999]


@pytest.mark.nightly
@pytest.mark.tfos("reservation: no port is free")
def test_a_taken_port_is_passed_over_or_refused(sc: Any) -> None:
    def bind() -> list[Any]:
        server = reservation.Server(1)
        with server.start_listening_socket() as taken, pytest.MonkeyPatch.context() as patch:
            port = taken.getsockname()[1]
            patch.setenv("TFOS_SERVER_PORT", f"{port}-{port + 20}")
            with server.start_listening_socket() as other:
                told: list[Any] = [other.getsockname()[1] > port]
            patch.setenv("TFOS_SERVER_PORT", str(port))
            try:
                server.start_listening_socket()
            except OSError as error:
                told.append(str(error))
        return told

    later, refused = in_task(sc, bind)
    assert later and "unable to bind to any ports" in refused


# -- pipeline ---------------------------------------------------------------------------------------


@pytest.mark.tfos("pipeline: Namespace")
def test_a_namespace_is_made_of_many_things(spark: Any) -> None:
    given = {"string": "foo", "int": 1, "float": 3.14, "array": [1, 2, 3], "map": {"a": 1}}
    first = Namespace(given)
    assert (first.string, first.int, first.array) == ("foo", 1, [1, 2, 3])
    assert "int" in first and "argv" not in first
    assert first == Namespace(first) == Namespace(argparse.Namespace(**given))
    words = ["--foo", "1", "--bar", "test"]
    assert Namespace(words).argv == words and list(Namespace(words)) == words
    assert Namespace(words) == words
    with pytest.raises(TypeError, match="Unsupported Namespace args: 1"):
        Namespace(1)  # type: ignore[arg-type]


@pytest.mark.tfos("pipeline: arguments and parameters merged")
def test_parameters_win_over_arguments_of_the_same_name(spark: Any) -> None:
    estimator = TFEstimator(_square, {"foo": 1, "epochs": 9, "cluster_size": 7})
    estimator.setEpochs(2)
    merged = estimator.merge_args_params()
    assert (merged.foo, merged.epochs, merged.cluster_size, merged.batch_size) == (1, 2, 1, 100)
    assert (estimator.args.epochs, estimator.getEpochs()) == (9, 2)


@pytest.mark.tfos("pipeline: every parameter has a setter and a getter")
def test_every_parameter_can_be_set_and_read(spark: Any) -> None:
    values: dict[str, Any] = {
        "BatchSize": 10, "ClusterSize": 3, "Epochs": 4, "Steps": 5, "InputMapping": {"c": "t"},
        "InputMode": 1, "MasterNode": "master", "NumPS": 1, "DriverPSNodes": True,
        "ModelDir": "m", "ExportDir": "e", "GraceSecs": 1, "Tensorboard": True,
        "Protocol": "grpc", "Readers": 2, "TFRecordDir": "r",
        "FeedTimeout": 1, "ReservationTimeout": 2, "LogDir": "l", "EvalNode": True,
        "ReleasePort": False,
    }  # fmt: skip
    estimator = TFEstimator(_square, {})
    for name, value in values.items():
        assert getattr(estimator, f"set{name}")(value) is estimator
        assert getattr(estimator, f"get{name}")() == value
    model = TFModel({})
    more = {
        "OutputMapping": {"t": "c"},
        "SignatureDefKey": "s",
        "TagSet": "a,b",
        "KeepColumns": True,
    }
    for name, value in more.items():
        assert getattr(getattr(model, f"set{name}")(value), f"get{name}")() == value
    with pytest.raises(TypeError):
        estimator.setInputMapping("no")  # type: ignore[arg-type]
    copied = estimator.copy({estimator.epochs: 8})
    assert (copied.getEpochs(), copied.getSteps(), copied.train_fn) == (8, 5, _square)
