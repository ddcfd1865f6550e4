"""What happens in a node's process: TensorFlowOnSpark's context around Howdah's, then ``map_fun``.

``map_fun`` and its arguments travel as pickles of their own inside the call: they are unpickled only
after `install`, so that a function of a module that says ``import tensorflowonspark`` is found.
"""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from howdah.compat.tensorflowonspark import TFManager, TFSparkNode, aliases, util
from howdah.compat.tensorflowonspark.queues import AnswerQueue, AnyQueue, Block, FeedQueue

TRAIN_ROWS = 1024
"""Rows taken from the feed at once; a DataFeed gives its batches out of them."""


class NodeCall(msgspec.Struct, frozen=True, kw_only=True):
    """What every node's process is told by `TFCluster.run`."""

    call: bytes
    """Pickle of (map_fun, tf_args)."""
    template: dict[str, list[int]]
    """Numbers of the nodes, by name and index."""
    default_fs: str
    working_dir: str
    user: str
    queues: tuple[str, ...] = ()
    release_port: bool = True
    fed: bool = True
    """Rows come from Spark."""


def pickled(function: Callable[..., Any], args: Any) -> bytes:
    """A call that can be made elsewhere, also of what the main module defines."""
    import cloudpickle

    return cloudpickle.dumps((function, args))


def run_node(node: NodeCall, howdah: Any) -> Any:
    """The training function that `howdah.spark.Cluster` runs: makes the call in this process."""
    install()
    if not node.default_fs.startswith("file:"):
        util.find_hadoop()
    function, args = pickle.loads(node.call)  # noqa: S301 - sent by the job's own driver
    ctx = context(node, howdah)
    TFSparkNode.use_gpus(args, ctx)
    if isinstance(args, list):
        sys.argv = list(args)
    try:
        return function(args, ctx)
    finally:
        if ctx.tmp_socket is not None:
            ctx.tmp_socket.close()
        ctx.mgr.set("state", "stopped")


def context(node: NodeCall, howdah: Any) -> TFSparkNode.TFNodeContext:
    """TensorFlowOnSpark's context of this process."""
    spec = ordered_spec(node.template, howdah.cluster)
    made = TFSparkNode.TFNodeContext(
        executor_id=node.template[howdah.role][howdah.index],
        job_name=howdah.role,
        task_index=howdah.index,
        cluster_spec=spec,
        defaultFS=node.default_fs,
        working_dir=node.working_dir,
        mgr=manager(node, howdah),
        tmp_socket=None if node.release_port else _bound(spec[howdah.role][howdah.index]),
    )
    made.user = node.user
    made.howdah = howdah
    return made


def ordered_spec(
    template: Mapping[str, Sequence[int]], cluster: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Addresses by name, in the order of the nodes' numbers; roles of Howdah's own are left out."""
    names = sorted(template, key=lambda name: template[name][0])
    return {name: list(cluster[name]) for name in names if cluster.get(name)}


def manager(node: NodeCall, howdah: Any) -> TFManager.TFManager:
    """Queues of this process: those of rows and answers over Howdah's feeds, if it is fed."""
    queues: dict[str, AnyQueue] = dict(_plain(node.queues))
    if node.fed and howdah.rank is not None:
        sources = {
            name: FeedQueue(
                blocks(lambda name=name: howdah.feed(name)),
                lambda name=name: howdah.feed(name).stop(),
            )
            for name in node.queues
            if name not in ("output", "error", "control")
        }
        queues |= sources
        if sources:
            first = sources.get("input") or next(iter(sources.values()))
            queues["output"] = AnswerQueue(first)
    made = TFManager.TFManager(queues)
    made.set("state", "running")
    return made


def blocks(feed: Callable[[], Any], size: int = TRAIN_ROWS) -> Iterator[Block]:
    """Rows of a Howdah feed, many at a time. The feed is opened by the first one that is wanted."""
    from howdah.compat.tensorflowonspark import rows

    source = feed()
    for batch in source.batches(size):
        found = rows.of_batch(batch, source.schema)
        yield Block(found, _answerer(source) if source.scoring else None)


def _answerer(source: Any) -> Callable[[list[Any]], None]:
    from howdah.compat.tensorflowonspark import rows

    return lambda answers: source.results(rows.answers_to_arrow(answers))


def _plain(names: Sequence[str]) -> Iterator[tuple[str, AnyQueue]]:
    from queue import Queue

    for name in (*names, "control", "error"):
        yield name, Queue()


def _bound(address: str) -> socket.socket:
    """A socket on this node's port: nobody takes it before the program releases it."""
    kept = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # The agent holds the port of a TensorFlow server too, for who shares it.
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    kept.bind(("", int(address.rpartition(":")[2])))
    return kept


def install() -> None:
    """In a process that calls a ``map_fun``: its ``import tensorflowonspark`` finds this one."""
    try:
        aliases.find_by_alias()  # which Keras is the job's to say
    except ImportError:
        pass  # the other one is in use here: the program's imports are its own affair
