"""TensorFlowOnSpark from PyPI, in a folder of its own: all else it needs, TensorFlow too, is here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.hadoop import artifacts
from tests.spark.versions import ROOT

_WANTED = ("tensorflowonspark==2.2.5", "setuptools<81")
"""It imports pkg_resources, which later setuptools do not have."""
_INSTALL_S = 300


def folder() -> Path:
    """Where it is, fetched if need be. Raises CalledProcessError."""
    return artifacts.once("tensorflowonspark-2.2.5", _install)


def _install(place: Path) -> None:
    command = [str(ROOT / "tools" / "setup"), "--tool", "pip", "install", "--quiet", "--no-deps"]
    command += ["--python", sys.executable, "--target", str(place), *_WANTED]
    subprocess.run(command, check=True, timeout=_INSTALL_S, stdin=subprocess.DEVNULL)
