"""Clusters of a test run: one that its processes share, and others; none of them outlives it.

Beside each cluster runs a guard (`python -m tests.hadoop.shared <folder> <process>`), which ends what a
process that was killed has left.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.hadoop import artifacts, daemons
from tests.hadoop.cluster import Cluster
from tests.hadoop.options import Options

_ROOT = Path(__file__).resolve().parents[2]
_PREFIX = "hwt-hadoop-"


def folder_of(run: str, name: str) -> Path:
    """Where that cluster of a run is. ``run`` begins with the process that the run ends with."""
    # Containers' paths are long as it is: not below pytest's own folder.
    return Path(tempfile.gettempdir()) / f"{_PREFIX}{run}-{name}"


def join(folder: Path, options: Options) -> Cluster:
    """The cluster there, which the first process to come starts. Raises ClusterError."""
    up = folder.with_suffix(".up")
    with artifacts.locked(folder.with_suffix(".lock")):
        if not up.exists():
            shutil.rmtree(folder, ignore_errors=True)  # the start of another process failed
            _guard(folder, int(folder.name.removeprefix(_PREFIX).partition("-")[0]))
            Cluster.create(folder, options).up()
            up.touch()
    return Cluster.open(folder)


def end_all(run: str) -> None:
    """End the clusters of a run that are left."""
    for site in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{run}-*/site.json"):
        Cluster.open(site.parent).remove()
    for file in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{run}-*.*"):
        file.unlink()


@contextlib.contextmanager
def started(folder: Path, options: Options) -> Iterator[Cluster]:
    """A cluster of one's own. Raises ClusterError if it cannot be started."""
    guard = _guard(folder, os.getpid())
    try:
        cluster = Cluster.create(folder, options)
        cluster.up()
        yield cluster
        cluster.remove()
    finally:
        guard.kill()
        guard.wait()
        _end(folder)


def _guard(folder: Path, process: int) -> subprocess.Popen[bytes]:
    """A session of its own, so that an interrupt of the test run does not reach it."""
    guard = subprocess.Popen(
        [sys.executable, "-m", "tests.hadoop.shared", str(folder), str(process)],
        cwd=_ROOT,
        env={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    guard.returncode = 0 if process != os.getpid() else None  # it may outlive this process
    return guard


def _end(folder: Path) -> None:
    if daemons.marked(folder):
        daemons.kill_marked(folder)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    with contextlib.suppress(ProcessLookupError):
        select.select([os.pidfd_open(int(sys.argv[2]))], [], [])
    _end(Path(sys.argv[1]))
