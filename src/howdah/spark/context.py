"""What a training function is given besides its arguments: who it is, its folders, its feeds."""

from __future__ import annotations

import getpass
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from howdah import task
from howdah.spark.feed.feed import Feed

SCHEMES = frozenset(
    "abfs abfss adl file gs hdfs http https o3fs ofs oss s3 s3a s3n swift viewfs wasb wasbs".split()
)
"""Paths that begin with one of these and a colon are left as they are, as those with ``://`` are."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
FED_ROLES = ("chief", "master", "worker")


class Wiring(msgspec.Struct, frozen=True, kw_only=True):
    """Where the controller of the feeds is, and what else the driver lets its functions know."""

    job_id: str
    host: str
    port: int
    default_fs: str = ""
    """Hadoop's ``fs.defaultFS``; empty: local."""
    user: str = ""
    """Name of the user on that file system; empty: this process's."""
    workers: int = 0
    """How many ranks are fed."""
    ports: tuple[int, int] | None = None
    """First and last of those that training processes listen at; any, if None."""


class Context:
    """``ctx`` of ``train(args, ctx)``."""

    def __init__(
        self,
        me: task.Context,
        wiring: Wiring | None,
        feed: Callable[[str, Sequence[int] | None], Feed],
    ) -> None:
        self._feed = feed
        self._user = wiring.user if wiring is not None else ""
        self.role: str = me.role
        self.index: int = me.index
        self.rank: int | None = me.rank
        """None for a role without ranks (ps, evaluator)."""
        self.world_size: int = me.world_size
        self.generation: int = me.generation
        """How often the gang has been formed; from 1."""
        self.is_chief: bool = me.is_chief
        self.cluster: dict[str, list[str]] = me.cluster
        """``host:port`` of every task, by role and index."""
        fed = sum(len(self.cluster.get(role, ())) for role in FED_ROLES)
        self.num_workers: int = (wiring.workers if wiring is not None else 0) or fed or 1
        """Ranks that are fed: roles chief, controller and worker."""
        self.job_id: str = me.job_id
        self.host: str = me.host
        self.checkpoint_dir: Path = me.checkpoint_dir
        self.tensorboard_dir: str = me.tensorboard_dir
        self.output_dir: Path = me.output_dir
        self.shared_dir: Path = me.shared_dir
        self.task: task.Context = me
        """Everything else."""
        self.default_fs: str = (wiring.default_fs if wiring is not None else "") or "file://"
        """Spark's ``fs.defaultFS``, such as ``hdfs://namenode:8020``."""
        self.working_dir: str = os.environ.get("HOWDAH_SPARK_FOLDER") or str(Path.cwd())
        """Folder of the executor, usually; relative paths without a distributed file system begin there."""

    def absolute_path(self, path: str) -> str:
        """The path as this cluster's file systems know it: see `absolute_path`."""
        return absolute_path(path, self.default_fs, self._user, self.working_dir)

    def report(self, step: float | None = None, **numbers: float) -> None:
        """Tell how training goes (`howdah.task.report`)."""
        task.report(step, **numbers)

    def checkpoint_requested(self) -> bool:
        """Whether a checkpoint is asked for now (`howdah.task.checkpoint_requested`)."""
        return task.checkpoint_requested()

    def feed(self, name: str = "train", ranks: Sequence[int] | None = None) -> Feed:
        """The rows of `Cluster.train(…, feed=name)` or `inference`. Always the same object.

        Args:
            ranks: only these ranks read it, such as ``[0]`` where one validates while the others
                wait. Without it a feed begins when every rank has asked for its rows, or will not.

        Raises:
            FeedError: this process is not fed.
        """
        return self._feed(name, ranks)


def file_system(default_fs: str | None) -> str:
    """``fs.defaultFS`` as paths are put behind it: ``file://``, ``hdfs://namenode:8020``, ``hdfs://``."""
    scheme, _, authority = (default_fs or "file:").partition("://")
    return "file://" if scheme.startswith("file") else f"{scheme}://{authority.rstrip('/')}"


def absolute_path(path: str, default_fs: str, user: str, working_dir: str) -> str:
    """``path`` with its file system.

    With a scheme it is left as it is. ``/x`` belongs to the default file system. A relative path
    begins at the user's home on HDFS and ViewFs, at ``working_dir`` where the default is local, and
    at the root of any other file system.
    """
    scheme, colon, rest = path.partition(":")
    if (_SCHEME.fullmatch(scheme) and rest.startswith("//")) or (colon and scheme in SCHEMES):
        return path
    default = file_system(default_fs)
    if path.startswith("/"):
        return f"{default}{path}"
    if default.startswith(("hdfs:", "viewfs:")):
        return f"{default}/user/{user or getpass.getuser()}/{path}"
    if default == "file://":
        return f"file://{str(Path(working_dir).absolute()).rstrip('/')}/{path}"
    return f"{default}/{path}"
