"""Howdah's own submission: everything on, as a user has it."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from benchmarks.jobs import howdah
from benchmarks.yarn.timing import TASK_MIB, Notes, Submission, watch
from tests.hadoop.cluster import Cluster


def submit(
    cluster: Cluster,
    there: Notes,
    containers: int,
    *,
    python: str,
    archive: Path | None = None,
    weigh: bool = False,
    cache: Path | None = None,
) -> Submission:
    """Run the noting program in so many containers and wait for the end. Raises Stuck.

    ``python`` is a path on the nodes; with an ``archive`` (tar.gz) its ``bin/python`` is taken. ``cache``
    is a folder for packed archives, instead of the user's.
    """
    environment = f"archive={archive}" if archive else f"python={python}"
    program = there.program("python", stay_s=3.0 if weigh else 0.0)
    source = there.folder / "source"
    source.mkdir(exist_ok=True)
    line = [*howdah(), "run", "--backend", "yarn", "--framework", "command", "--name", "benchmark"]
    line += ["--role", f"worker={containers}", "--set", f"roles.worker.memory={TASK_MIB}m"]
    line += ["--set", f"environment.{environment}", "--", *program]
    env = {**os.environ, **cluster.env(), "HOWDAH_HOME": str(there.folder / "home")}
    if cache is not None:
        env["XDG_CACHE_HOME"] = str(cache)
    return watch(
        cluster,
        there,
        containers,
        line,
        env,
        folder=source,
        weigh=_is_master if weigh else None,
        weigh_agent=_is_agent if weigh else None,
    )


def _is_master(process: psutil.Process) -> bool:
    return "howdah.coordinator" in process.cmdline()


def _is_agent(process: psutil.Process) -> bool:
    return process.name() == "howdah-agent"
