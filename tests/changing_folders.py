"""What is in a folder that others are changing: `Path.rglob` raises where one below it goes away meanwhile."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


def all_below(folder: Path) -> list[Path]:
    """Folders and files, but for what goes away just then."""
    return [
        Path(place, name)
        for place, folders, files in os.walk(folder)
        for name in (*folders, *files)
    ]


def contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Of the regular files below it."""
    for path in all_below(folder):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink():
                yield path, path.read_bytes()
