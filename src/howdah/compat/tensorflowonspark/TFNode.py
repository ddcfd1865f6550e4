"""TensorFlowOnSpark's ``TFNode``: what a training function calls."""

from __future__ import annotations

import getpass
import logging
import os
from collections.abc import Mapping, Sequence
from queue import Empty
from typing import Any

from howdah.compat.tensorflowonspark import marker
from howdah.compat.tensorflowonspark.queues import FeedQueue
from howdah.spark.context import absolute_path

logger: logging.Logger = logging.getLogger(__name__)

_USE_DATA_FEED = "DEPRECATED: Use TFNode.DataFeed class instead"


def hdfs_path(ctx: Any, path: str) -> str:
    """An absolute path with its file system: see `howdah.spark.context.absolute_path`.

    Args:
        ctx: has ``defaultFS`` and ``working_dir``.
        path: with a scheme, absolute, or relative.
    """
    user = getattr(ctx, "user", None) or os.environ.get("SPARK_USER") or getpass.getuser()
    return absolute_path(path, ctx.defaultFS, user, ctx.working_dir)


def start_cluster_server(ctx: Any, num_gpus: int = 1, rdma: bool = False) -> Any:
    """Of TensorFlow 1 only.

    Raises:
        Exception: always, in the words of TensorFlowOnSpark.
    """
    raise Exception("DEPRECATED: Use higher-level APIs like `tf.keras` or `tf.estimator`")


def next_batch(mgr: Any, batch_size: int, qname: str = "input") -> Any:
    """Use `DataFeed`. Raises Exception, as it does there."""
    raise Exception(_USE_DATA_FEED)


def batch_results(mgr: Any, results: Any, qname: str = "output") -> Any:
    """Use `DataFeed`. Raises Exception, as it does there."""
    raise Exception(_USE_DATA_FEED)


def terminate(mgr: Any, qname: str = "input") -> Any:
    """Use `DataFeed`. Raises Exception, as it does there."""
    raise Exception(_USE_DATA_FEED)


def export_saved_model(
    sess: Any, export_dir: str, tag_set: str, signatures: Mapping[str, Any]
) -> None:
    """Of TensorFlow 1 only. Raises Exception, as it does there with TensorFlow 2."""
    raise Exception("DEPRECATED: Use TF provided APIs instead.")


def release_port(ctx: Any) -> None:
    """Close the socket that keeps this process's port, right before TensorFlow binds it."""
    if ctx.tmp_socket is None:
        logger.warning("release_port() invoked with no bound socket.")
        return
    ctx.tmp_socket.close()
    ctx.tmp_socket = None


class DataFeed:
    """Rows from Spark for a training function, and its answers back."""

    def __init__(
        self,
        mgr: Any,
        train_mode: bool = True,
        qname_in: str = "input",
        qname_out: str = "output",
        input_mapping: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            mgr: ``ctx.mgr``.
            train_mode: False where each row is answered: a batch then ends with its partition.
            qname_in: name of the queue (of the feed) rows come from.
            qname_out: of the queue answers go to.
            input_mapping: column to tensor name. The columns of a row are taken in the order of
                their names; batches are dictionaries of tensor name to list.
        """
        self.mgr = mgr
        self.train_mode = train_mode
        self.qname_in = qname_in
        self.qname_out = qname_out
        self.done_feeding: bool = False
        self.input_tensors: list[str] | None = (
            [tensor for _, tensor in sorted(input_mapping.items())]
            if input_mapping is not None
            else None
        )
        self.queue_in: Any = self._queue(qname_in)
        self.queue_out: Any = self._queue(qname_out)

    def next_batch(self, batch_size: int) -> Any:
        """The next ``batch_size`` rows: a list, or with a mapping a dictionary of lists.

        Waits for rows. Fewer come at the end of the feed (none, and `should_stop` is true), and, if
        rows are answered, at the end of a partition.
        """
        rows: list[Any] = []
        while len(rows) < batch_size:
            if isinstance(self.queue_in, FeedQueue):
                found = self.queue_in.take(batch_size - len(rows))
                if len(found):
                    rows.extend(found)
                    continue
            item = self.queue_in.get()
            self.queue_in.task_done()
            if item is None and getattr(self.queue_in, "ended", True):
                self.done_feeding = True
                break
            if isinstance(item, marker.EndPartition):
                # A feed marks only what is to be answered; there no batch may go on.
                if rows and (not self.train_mode or isinstance(self.queue_in, FeedQueue)):
                    break
                continue
            rows.append(item)
        if self.input_tensors is None:
            return rows
        return {
            tensor: [row[place] for row in rows] for place, tensor in enumerate(self.input_tensors)
        }

    def should_stop(self) -> bool:
        """Whether the feed has ended: no further row will come."""
        return self.done_feeding

    def batch_results(self, results: Sequence[Any]) -> None:
        """Answer the rows of the last batches, one result a row, in their order.

        Raises:
            RuntimeError: there are more results than rows.
        """
        for result in results:
            self.queue_out.put(result)

    def terminate(self) -> None:
        """No more rows are wanted; the Spark job that feeds ends."""
        self.mgr.set("state", "terminating")
        if isinstance(self.queue_in, FeedQueue):
            self.queue_in.drop()
            return
        while True:
            try:
                self.queue_in.get(block=False)
            except Empty:
                return
            self.queue_in.task_done()

    def _queue(self, name: str) -> Any:
        queue = self.mgr.get_queue(name)
        if queue is None:
            raise ValueError(
                f"there is no queue {name!r}; name it in TFCluster.run(..., queues=[...])"
            )
        return queue
