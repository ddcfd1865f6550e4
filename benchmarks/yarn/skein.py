"""skein 0.8.2, the Python interface to YARN that Dask on YARN uses: a Java driver and master.

It has had no release since 2022. It gets an interpreter of its own with the protobuf it needs, and
a stand-in for Hadoop's ``yarn`` script, which it asks for the class path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.jobs import PROGRAMS
from benchmarks.yarn.timing import MASTER_MIB, TASK_MIB, Notes, Submission, watch
from tests.hadoop import artifacts
from tests.hadoop.cluster import Cluster
from tests.hadoop.errors import ClusterError

_WANTED = ("skein==0.8.2", "protobuf<3.21", "setuptools<81")
_INSTALL_S = 300


def submit(
    cluster: Cluster,
    there: Notes,
    containers: int,
    *,
    python: str,
    archive: Path | None = None,
    weigh: bool = False,
) -> Submission:
    """Run the noting program in so many containers and wait for the end.

    ``python`` is a path on the nodes, with an ``archive`` (tar.gz) one inside that. Raises Stuck,
    and ClusterError where skein cannot be installed.
    """
    own = _interpreter()
    if archive is not None:
        python = f"./environment/{python}"
    program = there.program(python, stay_s=3.0 if weigh else 0.0)
    with tempfile.TemporaryDirectory(prefix="hwb-") as folder:
        line = [str(own), str(PROGRAMS / "submit_with_skein.py"), str(containers)]
        line += [str(TASK_MIB), str(MASTER_MIB), " ".join(program), str(archive or "")]
        return watch(
            cluster,
            there,
            containers,
            line,
            _environment(cluster, Path(folder)),
            weigh=(lambda process: process.name() == "java") if weigh else None,
        )


def _environment(cluster: Cluster, folder: Path) -> dict[str, str]:
    yarn = folder / "yarn"
    yarn.write_text('#!/bin/sh\nprintf "%s\\n" "$BENCHMARK_CLASSPATH"\n')
    yarn.chmod(0o755)
    jars = artifacts.jars(cluster.site.options.version)
    return {
        **os.environ,
        **cluster.env(),
        "PATH": f"{folder}:{os.environ['PATH']}",
        "BENCHMARK_CLASSPATH": ":".join([str(cluster.conf_dir), *map(str, jars)]),
        "SKEIN_CONFIG": str(folder / "skein"),
    }


def _interpreter() -> Path:
    """One that has skein, installed once per user."""
    return artifacts.once(f"skein-{sys.implementation.cache_tag}", _install) / "bin" / "python"


def _install(place: Path) -> None:
    # Nothing in it may depend on its path: it is renamed when it is complete.
    for command in (
        [sys.executable, "-m", "venv", str(place)],
        [str(place / "bin" / "python"), "-m", "pip", "install", "-q", *_WANTED],
    ):
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S)
        if done.returncode:
            raise ClusterError(f"skein could not be installed: {done.stderr.strip()[-500:]}")
