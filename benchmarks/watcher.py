"""A client that follows a job without its logs: ``python -m benchmarks.watcher JOB_DIRECTORY``."""

from __future__ import annotations

import asyncio
import sys

from benchmarks import standin
from howdah.client.following.log_lines import FollowerPosition
from howdah.client.following.remote import Remote
from howdah.storage.jobdir import JobDirectory


async def _watch(path: str) -> None:
    async for _ in Remote(JobDirectory(path)).follow(FollowerPosition(), logs=False):
        pass


if __name__ == "__main__":
    standin.register()
    asyncio.run(_watch(sys.argv[1]))
