"""What the tests of checkpoints do again and again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from howdah.storage.checkpoints.versions import CheckpointSpec, Saved
from howdah.storage.folders import scan


def fill(folder: Path, **files: str) -> None:
    """Write files, old enough to be surely finished."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def saved(result: Saved | None) -> Saved:
    assert result is not None
    return result


def content(folder: Path) -> dict[str, str]:
    return {name: (folder / name).read_text() for name in scan(folder)}


def change(spec: CheckpointSpec, **fields: Any) -> CheckpointSpec:
    return msgspec.structs.replace(spec, **fields)
