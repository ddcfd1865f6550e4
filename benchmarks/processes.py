"""What processes use, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import psutil

_MB = 1024 * 1024


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Megabytes (2**20 bytes) of one process."""

    rss: float
    """Resident, pages shared with others counted in full."""
    pss: float | None
    """Shared pages counted by the share of each who has them (Linux)."""
    uss: float
    """What would be free if only this process ended."""


def memory(pid: int) -> Memory:
    """What that process holds now.

    Raises:
        psutil.Error: it is gone.
    """
    found = psutil.Process(pid).memory_full_info()
    pss = getattr(found, "pss", None)
    return Memory(rss=found.rss / _MB, pss=None if pss is None else pss / _MB, uss=found.uss / _MB)


def cpu_s(pid: int) -> float:
    """Seconds of processor time used so far, to the nanosecond where the kernel tells.

    Raises:
        psutil.Error: it is gone.
    """
    try:
        # Living threads only: those that matter here live as long as their process.
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((t / "schedstat").read_text().split()[0]) for t in threads) / 1e9
    except (OSError, IndexError):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system
