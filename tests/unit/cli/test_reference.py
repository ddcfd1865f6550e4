"""The reference page of the command line is the one that its generator writes."""

from __future__ import annotations

import importlib.util
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
    made = generator()
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), (
        "run docs/generate_cli.py and commit what it writes"
    )
