"""What a target is, and a folder for those that read files."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Target(NamedTuple):
    """One decoder."""

    seeds: list[bytes]
    decode: Callable[[bytes], Any]
    errors: tuple[type[Exception], ...]
    words: tuple[bytes, ...] = ()
    share: float = 1.0
    """Of the inputs asked for, where one takes long."""


FOLDER = Path(
    tempfile.mkdtemp(prefix="hwt-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
)
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def in_file(name: str, read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    """A decoder of bytes for one that reads a file of that name."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)

    def decode(data: bytes) -> None:
        path.write_bytes(data)
        read(path)

    return decode
