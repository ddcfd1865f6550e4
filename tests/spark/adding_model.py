"""A model of one number, on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make(path: str) -> Any:
    """Adds what the file says, and tells where the file was."""
    bias = int((Path(path) / "bias.txt").read_text())
    return lambda batch: {"y": batch["id"] + bias, "place": [path] * len(batch["id"])}


def saved(folder: Path, bias: int) -> str:
    folder.mkdir()
    (folder / "bias.txt").write_text(str(bias))
    return str(folder)
