"""What a training function is given besides its arguments: who it is, its folders, its feeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from howdah.spark.feed.feed import Feed


class Context:
    """``ctx`` of ``train(args, ctx)``."""

    role: str
    index: int
    rank: int | None
    """None for a role without ranks (ps, evaluator)."""
    world_size: int
    generation: int
    is_chief: bool
    num_workers: int
    """Ranks that are fed: roles chief, master and worker."""
    cluster: dict[str, list[str]]
    """``host:port`` of every task, by role and index."""
    job_id: str
    host: str
    checkpoint_dir: Path
    tensorboard_dir: str
    output_dir: Path
    shared_dir: Path
    default_fs: str
    """Spark's ``fs.defaultFS``, such as ``hdfs://namenode:8020``; ``file://`` by default."""

    def absolute_path(self, path: str) -> str:
        """The path as this cluster's file systems know it."""
        raise NotImplementedError

    def report(self, step: float | None = None, **numbers: float) -> None:
        """Tell how training goes (`howdah.task.report`)."""
        raise NotImplementedError

    def checkpoint_requested(self) -> bool:
        """Whether a checkpoint is asked for now (`howdah.task.checkpoint_requested`)."""
        raise NotImplementedError

    def feed(self, name: str = "train") -> Feed:
        """The rows of `Cluster.train(…, feed=name)` or `inference`. Always the same object."""
        raise NotImplementedError


def run(
    train: Callable[[Any, Context], Any], args: Any = None, env: Mapping[str, str] | None = None
) -> Any:
    """In a training process: connect, call ``train(args, ctx)``, tell the master of its end.

    Raises:
        BaseException: what ``train`` raised, after the master was told.
    """
    from howdah.spark.feed.trainer import connect

    with connect(env) as trainer:
        return train(args, trainer.context)
