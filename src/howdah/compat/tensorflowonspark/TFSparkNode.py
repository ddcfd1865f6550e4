"""TensorFlowOnSpark's ``TFSparkNode``: the context a training function is given."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from howdah.compat.tensorflowonspark import TFNode, gpu_info, util

logger: logging.Logger = logging.getLogger(__name__)

_COUNTED = ("master", "chief", "worker")
"""Roles that `TFNodeContext.num_workers` counts."""


class TFNodeContext:
    """Who this process is, and its ways to rows and paths. Given to ``map_fun(args, ctx)``."""

    def __init__(
        self,
        executor_id: int = 0,
        job_name: str = "",
        task_index: int = 0,
        cluster_spec: Mapping[str, Sequence[str]] | None = None,
        defaultFS: str = "file://",
        working_dir: str = ".",
        mgr: Any = None,
        tmp_socket: Any = None,
    ) -> None:
        """
        Args:
            executor_id: number of this node: parameter servers first, then chief, evaluator, workers.
            job_name: ``ps``, ``chief`` or ``master``, ``evaluator``, ``worker``.
            task_index: among the nodes of that name.
            cluster_spec: ``host:port`` of every node, by name and index.
            defaultFS: the default file system, without a slash at its end.
            working_dir: where the driver program was started.
            mgr: queues and values of this process.
            tmp_socket: keeps this node's port, if the program releases it itself.
        """
        self.worker_num = executor_id
        self.executor_id = executor_id
        self.job_name = job_name
        self.task_index = task_index
        self.cluster_spec: dict[str, list[str]] = {
            name: list(nodes) for name, nodes in (cluster_spec or {}).items()
        }
        self.num_workers: int = sum(len(self.cluster_spec.get(name, ())) for name in _COUNTED)
        self.defaultFS = defaultFS
        self.working_dir = working_dir
        self.mgr = mgr
        self.tmp_socket = tmp_socket
        self.user: str | None = None
        """Whose folder relative HDFS paths begin in; None: this process's user."""
        self.howdah: Any = None
        """Howdah's own context (`howdah.spark.context.Context`), for what is new."""

    def absolute_path(self, path: str) -> str:
        """See `TFNode.hdfs_path`."""
        return TFNode.hdfs_path(self, path)

    def start_cluster_server(self, num_gpus: int = 1, rdma: bool = False) -> Any:
        """Of TensorFlow 1 only: raises. See `TFNode.start_cluster_server`."""
        return TFNode.start_cluster_server(self, num_gpus, rdma)

    def export_saved_model(
        self, sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Any]
    ) -> None:
        """Of TensorFlow 1 only: raises. See `TFNode.export_saved_model`."""
        TFNode.export_saved_model(sess, export_dir, tag_set, signatures)

    def get_data_feed(
        self,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> TFNode.DataFeed:
        """The rows Spark sends: see `TFNode.DataFeed`."""
        return TFNode.DataFeed(self.mgr, train_mode, qname_in, qname_out, input_mapping)

    def release_port(self) -> None:
        """Close the socket that keeps this node's port: see `TFNode.release_port`."""
        TFNode.release_port(self)


def cluster_template(
    num_executors: int, num_ps: int, master_node: str | None, eval_node: bool
) -> dict[str, list[int]]:
    """Which node has which number: parameter servers first, then chief, evaluator, workers.

    Raises:
        ValueError: not so many nodes, or none that trains; in the words of TensorFlowOnSpark.
    """
    singles = [
        name for name, wanted in ((master_node, master_node), ("evaluator", eval_node)) if wanted
    ]
    needed = num_ps + len(singles)
    workers = max(num_executors - needed, 0)
    if needed + workers != num_executors:
        raise ValueError(
            f"TensorFlow cluster requires {needed + workers} nodes, "
            f"but only {num_executors} executors available"
        )
    if not master_node and not workers:
        raise ValueError("TensorFlow cluster requires at least one worker or master/chief node")
    counts = {"ps": num_ps, **{str(name): 1 for name in singles}, "worker": workers}
    numbers = iter(range(num_executors))
    return {name: [next(numbers) for _ in range(count)] for name, count in counts.items() if count}


def cluster_spec(cluster_info: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """``host:port`` of every node by name, in the order of their numbers.

    Raises:
        ValueError: two nodes have one number.
    """
    spec: dict[str, list[str]] = {}
    ordered = sorted(cluster_info, key=lambda node: node["executor_id"])
    for before, node in zip([None, *ordered], ordered):
        if before is not None and before["executor_id"] == node["executor_id"]:
            raise ValueError(f"Duplicate worker/task in cluster_info: {node['executor_id']}")
        spec.setdefault(node["job_name"], []).append(f"{node['host']}:{node['port']}")
    return spec


_get_cluster_spec = cluster_spec
"""TensorFlowOnSpark's name of it."""


def run(
    fn: Any,
    tf_args: Any,
    cluster_meta: Any,
    tensorboard: bool,
    log_dir: str | None,
    queues: Any,
    background: bool,
) -> Any:
    """A node's Spark task. Raises: no such task runs here; see `TFCluster.run`."""
    raise _no_task("run", "TFCluster.run(sc, map_fun, tf_args, num_executors, num_ps)")


def train(
    cluster_info: Any, cluster_meta: Any, feed_timeout: float = 600, qname: str = "input"
) -> Any:
    """A task that feeds. Raises: no such task runs here; see `TFCluster.TFCluster.train`."""
    raise _no_task("train", "cluster.train(dataRDD)")


def inference(cluster_info: Any, feed_timeout: float = 600, qname: str = "input") -> Any:
    """A task that is answered. Raises: no such task runs here; see `TFCluster.TFCluster.inference`."""
    raise _no_task("inference", "cluster.inference(dataRDD)")


def shutdown(cluster_info: Any, grace_secs: float = 0, queues: Any = ("input",)) -> Any:
    """A task that ends a node. Raises: no such task runs here; see `TFCluster.TFCluster.shutdown`."""
    raise _no_task("shutdown", "cluster.shutdown()")


def _no_task(name: str, instead: str) -> NotImplementedError:
    return NotImplementedError(
        f"TFSparkNode.{name} makes a Spark task that looks for TensorFlowOnSpark's own manager process, "
        f"which Howdah does not have. Use {instead}"
    )


def use_gpus(tf_args: Any, ctx: TFNodeContext) -> list[str]:
    """Set ``CUDA_VISIBLE_DEVICES`` for this node; ``tf_args.num_gpus`` says how many, if it is there.

    Raises:
        RuntimeError: there are not so many.
    """
    nodes = [node for group in ctx.cluster_spec.values() for node in group]
    mine = ctx.cluster_spec.get(ctx.job_name, [])
    place = nodes.index(mine[ctx.task_index]) if ctx.task_index < len(mine) else 0
    index = util.place_on_host(nodes, place) if nodes else 0

    def free(count: int) -> list[str]:
        return list(gpu_info.get_gpus(count, index, format=gpu_info.AS_LIST))

    chosen = gpu_info.choose(
        wanted_gpus(tf_args),
        given=gpu_info.given(),
        kubernetes="SPARK_EXECUTOR_POD_IP" in os.environ,
        available=gpu_info.is_gpu_available,
        free=free,
    )
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    return chosen


def wanted_gpus(tf_args: Any) -> int | None:
    """``num_gpus`` of a namespace or a dictionary; None where it is not said."""
    value = (
        tf_args.get("num_gpus")
        if isinstance(tf_args, Mapping)
        else getattr(tf_args, "num_gpus", None)
    )
    return None if value is None else int(value)
