"""Howdah in a Python that was built on an old system: many calls that are newer are not in it."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import psutil
import pytest

import howdah
from tests.packing import portable

pytestmark = pytest.mark.nightly

JOB = """
name = "old"
attempts = 1
command = "sh -c 'sleep 600 & echo begun; wait'"
[roles.worker]
instances = 2
[timeouts]
run = "10s"
"""


def test_a_job_ends_with_all_its_processes(tmp_path: Path) -> None:
    """Neither ``os.pidfd_open`` nor ``close_range`` is there."""
    (tmp_path / "job.toml").write_text(JOB)
    python = portable.folder() / f"cpython-{portable.VERSION}-linux-x86_64-gnu" / "bin" / "python3"
    venv = tmp_path / "venv"
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    packages = (Path(howdah.__file__).parent.parent, sysconfig.get_path("purelib"))
    (venv / "lib/python3.11/site-packages/all.pth").write_text("\n".join(map(str, packages)))
    done = subprocess.run(
        [venv / "bin" / "python", "-m", "howdah", "run", "--backend", "local"],
        cwd=tmp_path,
        env={**os.environ, "HOWDAH_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    for worker in ("worker:0", "worker:1"):
        assert f"{worker} | begun" in done.stdout
    assert not [each for each in psutil.process_iter(["name", "cwd"]) if sleeps(each, tmp_path)]


def sleeps(process: psutil.Process, below: Path) -> bool:
    return process.info["name"] == "sleep" and str(process.info["cwd"]).startswith(str(below))
