"""Whether a process still runs."""

from __future__ import annotations

import psutil


def runs(process: psutil.Process | int) -> bool:
    """It is there, and no zombie that only waits for its parent."""
    try:
        if isinstance(process, int):
            process = psutil.Process(process)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
