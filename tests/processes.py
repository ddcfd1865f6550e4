"""What a process does: whether it still runs, and what it has open."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil


def runs(process: psutil.Process | int) -> bool:
    """It is there, and no zombie that only waits for its parent."""
    try:
        if isinstance(process, int):
            process = psutil.Process(process)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def name(process: psutil.Process) -> str:
    """Empty if it is gone."""
    try:
        return process.name()
    except psutil.Error:
        return ""


def open_files(pid: int) -> list[str]:
    """What its descriptors are of, but for those that are closed meanwhile, as the listing's own."""
    found: list[str] = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(str(descriptor.readlink()))
    return found
