"""Let a Dask scheduler leave last and quietly, when a job has ended well. Loaded by the scheduler.

All are told to end at once, and whoever loses a connection tells of it with a traceback: workers whose
scheduler has gone, so it waits for them; and the scheduler itself, which says in other lines who has left.
"""

import asyncio
import logging
import time
from typing import Any

LOOK_S = 0.05
LONGEST_S = 5.0
"""Workers that have not left by then won't; a scheduler is killed 10 s after it was told to end."""


async def dask_setup(scheduler: Any) -> None:
    """Called by Dask when the scheduler starts: load what a user's configuration names in this one's stead."""
    import dask.config
    from distributed.preloading import process_preloads

    logging.getLogger("distributed.batched").setLevel(logging.WARNING)
    configured = dask.config.get("distributed.scheduler.preload")
    arguments = dask.config.get("distributed.scheduler.preload-argv")
    await process_preloads(scheduler, configured, arguments).start()


async def dask_teardown(scheduler: Any) -> None:
    """Called by Dask when the scheduler begins to close."""
    end = time.monotonic() + LONGEST_S
    while scheduler.workers and time.monotonic() < end:
        await asyncio.sleep(LOOK_S)
