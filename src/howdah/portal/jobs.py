"""The jobs of the portal: the list, kept up to date while somebody looks at it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from howdah.client.lookup.listing import look
from howdah.client.lookup.states import UNREADABLE
from howdah.portal.access_control import Reader
from howdah.portal.copies import Copies
from howdah.portal.index import JobIndex
from howdah.portal.rows import Row, row, row_of, unreadable
from howdah.storage import layout, ownership
from howdah.storage.jobdir import JobDirectory, NotYours, base_folder

FRESH_S = 1.0
"""A list that is no older is shown as it is."""
PATIENCE_S = 0.7
"""A page waits this long for the list to be brought up to date; then it shows what is known."""
FIND_S = 30.0
"""One job that is not in the list is waited for this long, while jobs are still taken in."""
SELDOM_S = 30.0
"""Jobs that nobody runs any more, and unreadable ones, are looked at this often."""
AT_ONCE = 16
"""Coordinators asked at the same time."""


def list_folder() -> Path:
    """The folder of what portals keep of jobs: it can be made again.

    Raises:
        NotYours: somebody else could put other jobs there.
    """
    folder = base_folder().parent.parent / "portal"
    if why := ownership.exposed(folder):
        raise NotYours(
            f"What portals keep in {folder} can't be trusted: {why}. Set HOWDAH_HOME to a folder of your "
            f"own, or make that one yours and {ownership.REMEDY}"
        )
    return folder


class Jobs:
    """The jobs below a folder. All methods but `close` are called on the server's event loop.

    Args:
        base: the folder of job directories.
        folder: a private one, for the list.
        copies: whose the folder is, where the jobs are other users'.
    """

    def __init__(self, base: Path, folder: Path, copies: Copies | None = None) -> None:
        self.base = base
        self.copies = copies
        self.place: str = str(base) if copies is None else copies.place
        """Where they are, for people."""
        self.index: JobIndex = JobIndex(base, folder, None if copies is None else copies.share)
        self._refreshed = -1e9
        self._refreshing: asyncio.Task[None] | None = None
        self._taken_in = asyncio.Event()
        """What there is, is in the list, although jobs that run may still be asked how they are."""
        self._looked: dict[str, float] = {}
        self._closed = False

    async def catch_up(self) -> None:
        """Bring the list up to date, or at least begin to.

        Raises:
            NotYours: others could put jobs there.
        """
        if self._refreshing is None:
            if time.monotonic() - self._refreshed < FRESH_S:
                return
            self._taken_in.clear()
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._done)
        refreshing = self._refreshing
        await asyncio.wait({refreshing}, timeout=PATIENCE_S)
        if refreshing.done():
            refreshing.result()

    async def find(
        self, job_id: str, reader: Reader | None = None
    ) -> tuple[JobDirectory, Row] | None:
        """The job of that id as the list has it; None if there is none that the reader may see.

        Raises:
            NotYours: others could put jobs there.
            TimeoutError: not all jobs are in the list yet, and that one is not.
        """
        found = await asyncio.to_thread(self.index.get, job_id, reader)
        if found is None:
            await self.catch_up()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._taken_in.wait(), FIND_S)
            found = await asyncio.to_thread(self.index.get, job_id, reader)
            if found is None and not self._taken_in.is_set():
                raise TimeoutError
        return None if found is None else (JobDirectory(self.base / found.job_id), found)

    def close(self) -> None:
        """Let go of the list."""
        self._closed = True
        if self._refreshing is not None:
            self._refreshing.cancel()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        self._refreshed = time.monotonic()
        if not task.cancelled():
            task.exception()  # whoever waits for it is told

    async def _refresh(self) -> None:
        try:
            if self.copies is not None:
                await asyncio.to_thread(self.copies.bring, lambda: self._closed)
            unended = await asyncio.to_thread(self.index.refresh, lambda: self._closed)
        finally:
            self._taken_in.set()
        room = asyncio.Semaphore(AT_ONCE)

        async def ask(directory: JobDirectory) -> None:
            async with room:
                await self.look(directory)

        now = time.monotonic()
        due = [each for each in unended if self._looked.get(each.job_id, -1e9) <= now - SELDOM_S]
        await asyncio.gather(*map(ask, due))

    async def look(self, directory: JobDirectory) -> Row:
        """Ask a job that has not ended how it is."""
        if (directory.path / layout.FINAL).exists():
            found = await asyncio.to_thread(row_of, directory)
        else:
            try:
                found = row(directory, await look(directory))
            except Exception as error:  # as in `row_of`
                found = unreadable(directory, str(error) or type(error).__name__)
        if found.ended:
            self._looked.pop(directory.job_id, None)
        elif found.state in ("lost", UNREADABLE):
            self._looked[directory.job_id] = time.monotonic()
        await asyncio.to_thread(self.index.put, [found])
        return found
