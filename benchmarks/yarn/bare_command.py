"""The cluster's share of a submission: one shell command, which needs nothing and notes when it runs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from benchmarks.jobs import PROGRAMS
from benchmarks.yarn.timing import Notes, Submission, watch
from tests.hadoop.cluster import Cluster


def submit(
    cluster: Cluster,
    there: Notes,
    containers: int,
    *,
    python: str,
    archive: Path | None = None,
    weigh: bool = False,
) -> Submission:
    """Run the command in one container, which is the application's master, and wait for the end. Raises Stuck."""
    assert containers == 1
    part = there.folder / "part"
    command = f"date +%s.%N > {part} && mv {part} {there.folder}/container_1"
    line = [sys.executable, str(PROGRAMS / "submit_bare.py"), command]
    return watch(cluster, there, containers, line, {**os.environ, **cluster.env()})
