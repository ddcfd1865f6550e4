"""TensorFlowOnSpark's ``TFParallel``: one function many times, each for itself."""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.compat.tensorflowonspark import (
    TFManager,
    TFSparkNode,
    compat,
    running,
    util,
)
from howdah.spark.context import file_system
from howdah.spark.session import Session

logger: logging.Logger = logging.getLogger(__name__)


class Instance(msgspec.Struct, frozen=True, kw_only=True):
    """What every instance is told."""

    call: bytes
    """Pickle of (map_fn, tf_args)."""
    count: int
    barrier: bool
    default_fs: str
    working_dir: str
    user: str
    env: dict[str, str]


def run(
    sc: Any, map_fn: Any, tf_args: Any, num_executors: int, use_barrier: bool = True
) -> list[Any]:
    """Call ``map_fn(tf_args, ctx)`` in ``num_executors`` Spark tasks that know nothing of each other.

    They run in Spark's own Python workers, as they do there. `howdah.spark.parallel` gives each a
    process of its own, with logs and measurements.

    Args:
        sc: a SparkContext (or a SparkSession).
        map_fn: ``ctx.worker_num`` of ``ctx.num_workers`` says which instance it is.
        tf_args: handed over; ``num_gpus`` in it says how many GPUs each takes (one, if not said and
            there are any).
        num_executors: how many.
        use_barrier: all run at the same time; otherwise as slots come free.

    Returns:
        What they returned, by number. (TensorFlowOnSpark returns None.)

    Raises:
        ValueError: ``use_barrier``, and Spark has not so many slots.
        Exception: one raised; Spark's error, with its traceback.
    """
    session = Session(sc)
    context = session.spark.sparkContext
    if use_barrier and num_executors > context.defaultParallelism:
        # Spark itself would look again every 15 s, 40 times.
        raise ValueError(
            f"num_executors={num_executors} with use_barrier=True needs {num_executors} slots at "
            f"once, and Spark has {context.defaultParallelism} (spark.executor.instances x "
            "spark.executor.cores / spark.task.cpus). Ask for fewer, or give use_barrier=False"
        )
    instance = Instance(
        call=running.pickled(map_fn, tf_args),
        count=num_executors,
        barrier=use_barrier,
        default_fs=file_system(session.default_fs()),
        working_dir=str(Path.cwd()),
        user=session.user(),
        env=compat.legacy_keras(),
    )
    numbers = context.parallelize(range(num_executors), num_executors)
    if use_barrier:
        found = numbers.barrier().mapPartitions(lambda it: call(instance, next(iter(it)))).collect()
    else:
        found = numbers.mapPartitions(lambda it: call(instance, next(iter(it)))).collect()
    return [value for _, value in sorted(found, key=lambda pair: pair[0])]


def call(instance: Instance, number: int) -> Iterator[tuple[int, Any]]:
    """In a Spark task: the call, with its number."""
    running.install()
    before, argv = dict(os.environ), sys.argv
    for name, value in instance.env.items():
        os.environ.setdefault(name, value)
    function, args = pickle.loads(instance.call)  # noqa: S301 - sent by the driver of this Spark job
    wanted = TFSparkNode.wanted_gpus(args)
    util.single_node_env(1 if wanted is None else wanted, number, _nodes(instance))
    ctx = TFSparkNode.TFNodeContext(
        executor_id=number,
        task_index=number,
        defaultFS=instance.default_fs,
        working_dir=instance.working_dir,
        mgr=TFManager.TFManager({}),
    )
    ctx.num_workers = instance.count
    ctx.user = instance.user
    if isinstance(args, list):
        sys.argv = list(args)
    try:
        yield number, function(args, ctx)
    finally:
        # The worker runs other tasks afterwards.
        sys.argv = argv
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _nodes(instance: Instance) -> list[str]:
    """Where the instances are, if Spark says it."""
    if not instance.barrier:
        return []
    from pyspark import BarrierTaskContext

    return [str(info.address) for info in BarrierTaskContext.get().getTaskInfos()]
