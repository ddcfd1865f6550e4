"""TensorFlowOnSpark's ``TFCluster``, over `howdah.spark.Cluster`."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from howdah.client.submission.functions import job_name
from howdah.compat.tensorflowonspark import TFSparkNode, compat, feeding, running
from howdah.spark.cluster import Cluster
from howdah.spark.context import file_system
from howdah.spark.session import Session
from howdah.spec.model import TensorBoard
from howdah.wire.status import JobView

logger: logging.Logger = logging.getLogger(__name__)

POLL_S = 0.2
TENSORBOARD_S = 60.0
"""TensorBoard takes seconds to start, tens of them where it finds TensorFlow."""
tf_status: dict[str, str] = {}
"""``error``: why the last cluster's functions, or feeding them, failed; not there while nothing did."""
EPOCHS = 10
"""What ``num_epochs=0`` means."""


class InputMode:
    """Who reads the data."""

    TENSORFLOW = 0
    """The program, by itself."""
    SPARK = 1
    """Spark: rows of RDDs are fed."""


class TFCluster:
    """A running cluster. Made by `run`."""

    sc: Any = None
    """The SparkContext."""
    defaultFS: str | None = None
    working_dir: str | None = None
    num_executors: int | None = None
    """Nodes of the cluster."""
    nodeRDD: Any = None
    """An RDD with the numbers of the nodes, one a partition."""
    cluster_id: int | None = None
    cluster_info: list[dict[str, Any]] | None = None
    """One dictionary a node: executor_id, host, job_name, task_index, port, tb_pid, tb_port, …"""
    cluster_meta: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None
    """The same as ``cluster_meta``."""
    input_mode: int | None = None
    queues: Sequence[str] | None = None
    server: Any = None
    """``done`` becomes true when a program has terminated its feed."""
    _tensorboard = False
    _stream_error: BaseException | None = None
    howdah: Cluster
    """Howdah's own cluster, for what is new: ``status()``, ``logs()``, ``url``."""

    def train(
        self, dataRDD: Any, num_epochs: int = 0, feed_timeout: float = 600, qname: str = "input"
    ) -> None:
        """Feed the rows of an RDD, a DataFrame or a DStream to the training functions.

        Args:
            dataRDD: RDD (rows arrive as they are), DataFrame (rows arrive as tuples; much faster),
                or DStream (each of its RDDs is fed when it comes; this returns at once).
            num_epochs: how often; 0 is 10.
            feed_timeout: seconds without any progress until it fails.
            qname: name of the feed.

        Raises:
            AssertionError: the cluster is not fed by Spark, or there is no such queue.
            FeedError: a training function raised (with its traceback), Spark failed, nothing moved.
        """
        self._check_feed(qname, "train")
        assert num_epochs >= 0, "num_epochs cannot be negative"
        if feeding.is_stream(dataRDD):
            dataRDD.foreachRDD(lambda rdd: self._feed_part(rdd, feed_timeout, qname))
            return
        self._feed(dataRDD, num_epochs or EPOCHS, feed_timeout, qname)

    def inference(self, dataRDD: Any, feed_timeout: float = 600, qname: str = "input") -> Any:
        """An RDD of answers, one for each row, in the rows' order. Lazy, exact under Spark's retries.

        Raises:
            AssertionError: the cluster is not fed by Spark, or there is no such queue.
        """
        self._check_feed(qname, "inference")
        return feeding.inference(self.howdah, dataRDD, qname)

    def shutdown(self, ssc: Any = None, grace_secs: float = 0, timeout: float = 259200) -> None:
        """End the feeds, wait until the training functions have returned, and end the cluster.

        Args:
            ssc: a StreamingContext: feeding goes on until it is stopped, or until a program
                terminates its feed; then it is stopped, gracefully.
            grace_secs: not needed: functions are waited for in any case. Kept for programs that
                give it.
            timeout: seconds after which the functions are stopped; -1: never.

        Raises:
            JobFailed: a function raised; with its traceback.
            TimeoutError: they had not returned in time.
        """
        deadline = time.monotonic() + timeout if timeout > 0 else None
        if ssc is not None:
            self._await_stream(ssc, deadline)
        left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        try:
            with _noted():
                self.howdah.results(timeout_s=left)
        except TimeoutError:
            self.howdah.stop(f"not done {timeout:g} s after shutdown")
            raise
        except BaseException:
            self.howdah.stop("shutdown failed")
            raise
        self.howdah.stop()
        if self._stream_error is not None:
            raise self._stream_error

    def tensorboard_url(self) -> str | None:
        """Address of TensorBoard through the job page, once it answers; None without one."""
        deadline = time.monotonic() + (TENSORBOARD_S if self._tensorboard else 0.0)
        while (url := self.howdah.tensorboard_url) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return url

    def _check_feed(self, qname: str, what: str) -> None:
        if self.input_mode != InputMode.SPARK:
            raise AssertionError(f"TFCluster.{what}() requires InputMode.SPARK")
        if qname not in (self.queues or ()):
            raise AssertionError(f"Unknown queue: {qname}")

    def _feed(self, data: Any, epochs: int, timeout_s: float, qname: str) -> None:
        with _noted():
            report = feeding.train(self.howdah, data, epochs, timeout_s, qname)
        if report.stopped:
            self.server.done = True

    def _feed_part(self, rdd: Any, timeout_s: float, qname: str) -> None:
        """One RDD of a DStream. After an error, or once a program has had enough, none is fed."""
        if self.server.done or rdd.isEmpty():
            return
        try:
            self._feed(rdd, 1, timeout_s, qname)
        except BaseException as error:
            self._stream_error = error
            self.server.done = True
            raise

    def _await_stream(self, ssc: Any, deadline: float | None) -> None:
        while not ssc.awaitTerminationOrTimeout(POLL_S):
            late = deadline is not None and time.monotonic() > deadline
            # Also where a program has said so after the last rows there were.
            enough = any(self.howdah.stopped(queue, "none") for queue in self.queues or ())
            if self.server.done or enough or late:
                ssc.stop(stopSparkContext=False, stopGraceFully=True)
                return


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """An error is in `tf_status` too."""
    try:
        yield
    except Exception as error:
        tf_status["error"] = str(error)
        raise


class _Stopping:
    """What is left of the reservation server: whether a program has had enough."""

    def __init__(self) -> None:
        self._done = threading.Event()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    @done.setter
    def done(self, value: bool) -> None:
        if value:
            self._done.set()

    def stop(self) -> None:
        """As if a program had had enough."""
        self._done.set()


def run(
    sc: Any,
    map_fun: Any,
    tf_args: Any,
    num_executors: int,
    num_ps: int,
    tensorboard: bool = False,
    input_mode: int = InputMode.TENSORFLOW,
    log_dir: str | None = None,
    driver_ps_nodes: bool = False,
    master_node: str | None = None,
    reservation_timeout: float = 600,
    queues: Sequence[str] = ("input", "output", "error"),
    eval_node: bool = False,
    release_port: bool = True,
    *,
    slots: str | None = None,
) -> TFCluster:
    """Start ``map_fun(tf_args, ctx)`` on every node, and return when all are there.

    Args:
        sc: a SparkContext (or a SparkSession).
        map_fun: called with ``tf_args`` and a `TFSparkNode.TFNodeContext`.
        tf_args: a namespace, a dictionary, or a list of words that becomes ``sys.argv``.
        num_executors: all nodes together.
        num_ps: parameter servers among them.
        tensorboard: run TensorBoard beside the cluster.
        input_mode: see `InputMode`.
        log_dir: where TensorBoard reads summaries.
        driver_ps_nodes: parameter servers run on the driver's machine; `InputMode.TENSORFLOW` only.
        master_node: name of the chief (``chief`` or ``master``); None: there is none.
        reservation_timeout: seconds until all nodes have to be there.
        queues: names of feeds; ``output`` is where answers go.
        eval_node: one node is the evaluator; `InputMode.TENSORFLOW` only.
        release_port: False: the program calls ``ctx.release_port()`` before TensorFlow binds the port.
        slots: ``held`` or ``shared``: see `howdah.spark.Cluster.start`. (TensorFlowOnSpark has no such
            argument.)

    Raises:
        ValueError: the arguments do not fit each other.
        BackendError: Spark can never give what is asked for; names the setting.
        TimeoutError: the nodes were not there in time.
        JobFailed: one failed before all were there.
    """
    fed = input_mode == InputMode.SPARK
    if driver_ps_nodes and fed:
        raise ValueError(
            "running PS nodes on driver locally is only supported in InputMode.TENSORFLOW"
        )
    if eval_node and fed:
        raise ValueError("running evaluator nodes is only supported in InputMode.TENSORFLOW")
    template = TFSparkNode.cluster_template(num_executors, num_ps, master_node, eval_node)
    session = Session(sc)
    context = session.spark.sparkContext
    default_fs = file_system(session.default_fs())
    working_dir = str(Path.cwd())
    node = running.NodeCall(
        call=running.pickled(map_fun, tf_args),
        template=template,
        default_fs=default_fs,
        working_dir=working_dir,
        user=session.user(),
        queues=tuple(queues),
        release_port=release_port,
        fed=fed,
    )
    tf_status.clear()
    cluster = TFCluster()
    cluster.howdah = Cluster.start(
        sc,
        running.run_node,
        node,
        framework="tensorflow",
        mode="feed" if fed else "foreground",
        driver_ps=driver_ps_nodes,
        slots=slots,
        spread=True,
        tensorboard=TensorBoard(folder=log_dir) if tensorboard and log_dir else tensorboard,
        name=job_name(map_fun),
        start_timeout_s=reservation_timeout,
        env=compat.legacy_keras(),
        **shape(template),
    )
    cluster._tensorboard = tensorboard
    cluster.sc = context
    cluster.defaultFS = default_fs
    cluster.working_dir = working_dir
    cluster.num_executors = num_executors
    cluster.input_mode = input_mode
    cluster.queues = list(queues)
    cluster.server = _Stopping()
    first = num_ps if driver_ps_nodes else 0
    cluster.nodeRDD = context.parallelize(range(first, num_executors), num_executors - first)
    cluster.cluster_info = info(cluster.howdah.status(), template)
    cluster.cluster_id = abs(hash(cluster.howdah.job_id))
    cluster.cluster_meta = cluster.meta = {
        "id": cluster.cluster_id,
        "cluster_template": template,
        "num_executors": num_executors,
        "default_fs": default_fs,
        "working_dir": working_dir,
        "release_port": release_port,
        "job_id": cluster.howdah.job_id,
    }
    return cluster


def shape(template: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The nodes as arguments of `Cluster.start`."""
    known = {"ps", "worker", "chief", "evaluator"}
    return {
        "workers": len(template.get("worker", ())),
        "ps": len(template.get("ps", ())),
        "chief": len(template.get("chief", ())),
        "evaluator": "evaluator" in template,
        "roles": {name: len(nodes) for name, nodes in template.items() if name not in known}
        or None,
    }


def info(view: JobView, template: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """``cluster_info``: the nodes in the order of their numbers."""
    nodes = [
        {
            "executor_id": template[task.role][task.index],
            "host": task.host or task.node,
            "job_name": task.role,
            "task_index": task.index,
            "port": task.ports[0] if task.ports else 0,
            "tb_pid": 0,
            "tb_port": 0,
            "addr": None,  # of a manager there; rows go another way here
            "authkey": None,
        }
        for task in view.tasks
        if task.role in template and task.index < len(template[task.role])
    ]
    return sorted(nodes, key=lambda node: node["executor_id"])
