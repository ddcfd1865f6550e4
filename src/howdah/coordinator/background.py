"""What runs beside the driver. An error there is logged and the work tried again: only the machine,
the journal and the backend may end a coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log: logging.Logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0

TRIM_FIRST_S = 5.0
TRIM_LONGEST_S = 320.0
TRIM_AGENTS = 100
"""Agents below which there is no memory worth giving back."""


async def persist(trouble: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work until it returns without an error.

    After an error it is done again, with growing pauses. An error that repeats is logged once;
    ``trouble`` says what does not happen meanwhile.
    """
    loop = asyncio.get_running_loop()
    pause_s, logged = FIRST_PAUSE_S, ""
    while True:
        begun = loop.time()
        try:
            return await work()
        except Exception as error:  # of any kind: none of it is worth the job
            if loop.time() - begun > LONGEST_PAUSE_S:
                pause_s, logged = FIRST_PAUSE_S, ""  # it went well for a while
            if logged != repr(error):
                logged = repr(error)
                log.warning("%s; it is tried again", trouble, exc_info=error)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)


async def trim_memory(agents: int) -> None:
    """Give free memory back to the system, soon after a start or take-over and more rarely later.

    A thousand handshakes and starts at once leave the C library with pages that are mostly free: 15
    of 105 MB at 1,000 agents, kept for a burst that does not come again.
    """
    if agents < TRIM_AGENTS:
        return
    import ctypes

    # Not every C library has it.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    pause_s = TRIM_FIRST_S
    while trim is not None:
        await asyncio.sleep(pause_s)
        trim(0)  # a millisecond
        pause_s = min(pause_s * 2, TRIM_LONGEST_S)
