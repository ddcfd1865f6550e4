"""The same tests on the older Spark: a process has one Spark, so they get a run of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.versions import ROOT, Version, environment, running

_RUN_S = 420


@pytest.mark.timeout(_RUN_S + 30)
@pytest.mark.skipif(running() is Version.OLDER, reason="this is that run")
def test_all_that_must_run_on_both_sparks_passes_on_the_older(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", "tests/spark", "-m", "both_sparks", "-n", "0"]
    command += ["-q", "-o", f"cache_dir={tmp_path / 'cache'}", f"--basetemp={tmp_path / 'run'}"]
    own = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**own, **environment(Version.OLDER)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        out, _ = process.communicate(timeout=_RUN_S)
    except subprocess.TimeoutExpired:
        process.terminate()  # pytest ends its fixtures
        out, _ = process.communicate(timeout=20)
    assert process.returncode == 0, out[-8000:]
