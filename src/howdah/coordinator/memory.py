"""Giving memory back to the system.

A thousand handshakes and starts at once leave the C library with pages that are mostly free:
15 of 105 MB at 1,000 agents, kept for a burst that will not come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

FIRST_S = 5.0
LONGEST_S = 320.0
MANY = 100
"""Agents below which there is nothing worth giving back."""


async def keep_low(agents: int) -> None:
    """Give back what is free, soon after a start or take-over and more rarely later."""
    trim = _trim() if agents >= MANY else None
    pause = FIRST_S
    while True:
        await asyncio.sleep(pause)
        if trim is not None:
            trim(0)  # a millisecond
        pause = min(pause * 2, LONGEST_S)


def _trim() -> Callable[[int], int] | None:
    """``malloc_trim``, where the C library has it."""
    import ctypes

    return getattr(ctypes.CDLL(None), "malloc_trim", None)
