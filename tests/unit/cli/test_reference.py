"""The reference page of the command line is the one that its generator writes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

REPOSITORY = Path(__file__).parents[3]


def generator() -> ModuleType:
    path = REPOSITORY / "docs" / "generate_cli.py"
    spec = importlib.util.spec_from_file_location("generate_cli", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_page_is_up_to_date() -> None:
    # By a program of its own: click keeps what a command's help was when it was first asked for.
    program = "import runpy; print(runpy.run_path('docs/generate_cli.py')['page'](), end='')"
    made = subprocess.run(
        [sys.executable, "-c", program], cwd=REPOSITORY, check=True, capture_output=True, text=True
    ).stdout
    assert generator().PAGE.read_text(encoding="utf-8") == made, (
        "run docs/generate_cli.py and commit what it writes"
    )
