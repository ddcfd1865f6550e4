"""The environment that everybody ships: an interpreter and numpy, packed by ``howdah pack``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from benchmarks.jobs import Stuck, howdah

PYTHON = "bin/python"
"""The interpreter inside it."""
_JOB = """\
name = "environment"
command = "true"
[environment]
requirements = "requirements.txt"
[roles.worker]
instances = 1
"""
_PACK_S = 600
_ROOT = Path(__file__).parents[2]


def pack(folder: Path) -> Path:
    """The archive, in that folder. Raises Stuck if it cannot be built."""
    (folder / "requirements.txt").write_text("numpy\n")
    (folder / "job.toml").write_text(_JOB)
    archive = folder / "environment.tar.gz"
    line = [*howdah(), "pack", "--output", str(archive), "--json"]
    env = {**os.environ, "PATH": path()}
    done = subprocess.run(
        line, cwd=folder, env=env, capture_output=True, text=True, timeout=_PACK_S
    )
    if done.returncode:
        raise Stuck(f"the environment could not be packed: {done.stderr.strip()[-1000:]}")
    return archive


def path(root: Path = _ROOT) -> str:
    """PATH, with the uv behind it that tools/setup brings where there is none."""
    brought = (root / ".venv-tools" / place for place in ("bin", "lib/bin"))
    return os.pathsep.join([os.environ["PATH"], *map(str, brought)])
