"""The job directory on HDFS, as the master keeps it up to date."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from pathlib import Path

import msgspec

from howdah.storage import layout
from howdah.storage.copies.mirror import Mirror
from howdah.storage.hdfs.errors import NotFound
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.layout import CoordinatorAddress

log: logging.Logger = logging.getLogger(__name__)

PATIENCE_S = 300.0
"""For a NameNode that restarts: at the job's end, nothing is lost meanwhile."""
_DOCUMENTS = ("metrics-*", f"{layout.STACKS}/*", f"{layout.LOGS}/coordinator.log")


class RemoteDirectory:
    """The directory at ``url``, whose local copy is in ``local``."""

    def __init__(self, url: str, local: Path) -> None:
        self.url = url
        self._local = local
        self._hdfs = Hdfs(url)
        self._address: asyncio.Task[None] | None = None

    def announce(self, address: CoordinatorAddress) -> None:
        """Write where the coordinator is, in the background; the newest wins."""
        former = self._address

        async def work() -> None:
            if former is not None:
                await asyncio.wait([former])
            document = msgspec.json.format(msgspec.json.encode(address), indent=2) + b"\n"
            try:
                await asyncio.to_thread(
                    self._hdfs.patient(PATIENCE_S).write,
                    f"{self.url}/{layout.COORDINATOR}",
                    document,
                    parents=False,  # if its submission was taken back meanwhile
                )
            except OSError as error:
                log.warning("the coordinator's address is not on HDFS: %s", error)

        self._address = asyncio.create_task(work())

    async def finish(self) -> None:
        """Bring everything there that the job leaves, ``final.json`` last. The journal is there.

        Raises:
            OSError: HDFS does not take it.
        """
        if self._address is not None:
            self._address.cancel()
            await asyncio.wait([self._address])
        await asyncio.to_thread(self._finish)

    def forget(self, name: str) -> None:
        """Remove a file of it."""
        try:
            self._hdfs.patient(PATIENCE_S).remove(f"{self.url}/{name}")
        except OSError as error:
            log.warning("%s stays in %s: %s", name, self.url, error)

    def _finish(self) -> None:
        hdfs = self._hdfs.patient(PATIENCE_S)
        names = [
            str(path.relative_to(self._local))
            for pattern in _DOCUMENTS
            for path in self._local.glob(pattern)
            if path.is_file()
        ]
        mirror = Mirror(self.url, self._local, hdfs)
        mirror.push(names)
        mirror.push([layout.FINAL])
        with contextlib.suppress(NotFound):
            hdfs.remove(f"{self.url}/{layout.COORDINATOR}")
