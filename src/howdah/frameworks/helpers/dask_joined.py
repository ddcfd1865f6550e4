"""Say that a Dask worker has joined, once its scheduler knows it. Loaded by the worker's nanny.

A nanny has started when its worker has registered (``distributed/nanny.py``, ``Nanny.start_unsafe``).
"""

import asyncio
from typing import Any

from howdah import task

_saying = set()
"""asyncio itself does not keep a task alive."""


def dask_setup(nanny: Any) -> None:
    """Called by Dask while the nanny starts, before its worker does."""
    _saying.add(asyncio.ensure_future(say(nanny)))


async def say(nanny: Any) -> None:
    try:
        await nanny
    except Exception:  # the nanny's own failure, which ends its process
        return
    task.joined()
