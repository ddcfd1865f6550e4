"""Hadoop's own example of a YARN application: ``hadoop-yarn-applications-distributedshell``.

It starts one shell command in each container, with a client, a master and no agent: the least that
a Java application does. Its newest release on Maven Central is older than the servers'; it runs
with the servers' jars. Its command is split at blanks, so nothing in it may have any.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchmarks.yarn.timing import MASTER_MIB, TASK_MIB, Notes, Submission, watch
from tests.hadoop import artifacts
from tests.hadoop.cluster import Cluster

VERSION = "3.4.2"
_ARTIFACT = "hadoop-yarn-applications-distributedshell"
_MAIN = "org.apache.hadoop.yarn.applications.distributedshell.Client"


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

    ``python`` is a path on the nodes. With an ``archive`` (tar.gz) it is a path inside that: the
    archive is uploaded, localised and unpacked, which DistributedShell's command must do itself.
    Raises Stuck, and ClusterError where it cannot be fetched.
    """
    program = there.program(python, stay_s=3.0 if weigh else 0.0)
    line = [str(artifacts.java()), _MAIN, *_options(containers, program, archive)]
    return watch(
        cluster,
        there,
        containers,
        line,
        _environment(cluster),
        weigh=(lambda process: process.name() == "java") if weigh else None,
    )


def _jar() -> Path:
    coordinate = f"org.apache.hadoop:{_ARTIFACT}:{VERSION}"
    jars = artifacts.fetch(f"distributedshell-{VERSION}", [coordinate])
    return next(jar for jar in jars if jar.name.startswith(_ARTIFACT))


def _environment(cluster: Cluster) -> dict[str, str]:
    jars = [_jar(), *artifacts.jars(cluster.site.options.version)]
    path = ":".join([str(cluster.conf_dir), *map(str, jars)])
    return {**os.environ, **cluster.env(), "CLASSPATH": path}


def _options(containers: int, program: Sequence[str], archive: Path | None) -> list[str]:
    command = " ".join(program)
    localised: list[str] = []
    if archive is not None:
        command = f"tar xzf {archive.name} && ./{command}"
        localised = ["-localize_files", str(archive)]
    return [
        *("-jar", str(_jar())),
        *("-num_containers", str(containers)),
        *("-container_memory", str(TASK_MIB)),
        *("-master_memory", str(MASTER_MIB)),
        *("-shell_command", command),
        *localised,
    ]
