"""The same tests on the older Spark: a process has one Spark, so they get runs of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.versions import ROOT, Version, environment, running

pytestmark = pytest.mark.nightly

_RUN_S = 900
_END_S = 30

FILES = sorted(
    str(file.relative_to(ROOT))
    for file in Path(__file__).parent.rglob("test_*.py")
    if file.name != Path(__file__).name and "mark.both_sparks" in file.read_text()
)


@pytest.mark.timeout(_RUN_S + 2 * _END_S)
@pytest.mark.skipif(running() is Version.OLDER, reason="this is such a run")
@pytest.mark.parametrize("file", FILES)
def test_what_is_marked_both_sparks_passes_on_the_older(file: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest", file, "-m", "both_sparks", "-n", "0", "-q"]
    command += ["-o", f"cache_dir={tmp_path / 'cache'}", f"--basetemp={tmp_path / 'run'}"]
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
        process.send_signal(signal.SIGINT)  # pytest tears its fixtures down
        try:
            out, _ = process.communicate(timeout=_END_S)
        finally:
            process.kill()
    assert process.returncode == 0, out[-8000:]
