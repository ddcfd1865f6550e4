"""Many jobs at a glance."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from howdah.client import past
from howdah.client.errors import HowdahError
from howdah.client.handle import AsyncJobHandle
from howdah.core.view import JobView
from howdah.storage.jobdir import JobDirectory, StorageError, list_jobs
from howdah.storage.journal import JournalError

ASK_S = 2.0
"""A coordinator that is slower than this is not waited for: its journal is read instead."""


async def views(base: Path, *, limit: int | None = None) -> list[JobView]:
    """Status documents of the jobs below ``base``, newest first.

    One job that cannot be read never hides the others: its document says why.
    """
    directories = list_jobs(base)[:limit]
    return list(await asyncio.gather(*(_view(directory) for directory in directories)))


async def _view(directory: JobDirectory) -> JobView:
    try:
        try:
            final = directory.final()
            if final is not None:
                return final
            async with asyncio.timeout(ASK_S):
                return await AsyncJobHandle(directory).status()
        except (HowdahError, TimeoutError) as error:
            why = str(error) or f"its coordinator did not answer within {ASK_S:g}s"
            return msgspec.structs.replace(past.view(directory), reason=why)
    except (StorageError, JournalError, OSError) as error:
        return JobView(
            job_id=directory.job_id,
            name="?",
            framework="?",
            user="?",
            backend="?",
            phase="unreadable",
            reason=str(error),
            directory=str(directory.path),
        )
