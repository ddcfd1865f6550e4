"""Sessions of this process, one at a time, and their thorough end."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.spark.versions import environment, settings

_END_S = 20.0


class Shared:
    """What the files of a group share, made for the first of them: a process has one SparkContext."""

    def __init__(self) -> None:
        self._kind = ""
        self._made: Any = None
        self._stack = contextlib.ExitStack()

    def get(self, kind: str, make: Callable[[], contextlib.AbstractContextManager[Any]]) -> Any:
        """That kind. If there is another one, it ends."""
        if kind != self._kind:
            self.end()
            self._made = self._stack.enter_context(make())
            self._kind = kind
        return self._made

    def end(self) -> None:
        """Also of what it has changed in this process's environment."""
        self._kind = ""
        self._stack.close()


@contextlib.contextmanager
def session(folder: Path, conf: Mapping[str, str]) -> Iterator[Any]:
    """A classic session with those settings. Its JVM ends with it: the next may have other ones."""
    from pyspark.sql import SparkSession  # here: who makes no session waits for no import

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        # pyspark remembers there that this process has used Connect.
        for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
            patch.delenv(name, raising=False)
        patch.setattr("pyspark.java_gateway.Popen", _popen)
        builder = SparkSession.builder
        for name, value in {**settings(folder), **conf}.items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
        try:
            made.sparkContext.setLogLevel("ERROR")
            yield made
        finally:
            made.stop()
            _end_jvm()


@contextlib.contextmanager
def remote(address: str) -> Iterator[Any]:
    """A Connect session on that server."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment().items():
            patch.setenv(name, value)
        # pyspark sets it, and takes every later session of this process for one of Connect.
        patch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
        made = SparkSession.builder.remote(address).getOrCreate()
        try:
            yield made
        finally:
            made.stop()
            for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE"):
                os.environ.pop(name, None)


def _popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start the JVM without running Python between fork and exec, as pyspark would.

    In a process with threads of other tests the child may find a lock there that none will free. A
    group of its own keeps Ctrl-C from the JVM, too.
    """
    del options["preexec_fn"]
    return subprocess.Popen(command, process_group=0, **options)


def _end_jvm() -> None:
    """`SparkSession.stop` leaves the JVM to the end of this process; here it ends now."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    process = getattr(gateway, "proc", None)
    gateway.shutdown()
    SparkContext._gateway = None
    SparkContext._jvm = None
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
