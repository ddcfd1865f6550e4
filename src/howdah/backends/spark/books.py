"""What a coordinator of a Spark job remembers over its own death: ``spark-containers.json``."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import msgspec

from howdah.storage.files import write_atomically

FILE = "spark-containers.json"


class Launched(msgspec.Struct, frozen=True, kw_only=True):
    """A container with an agent."""

    holder: str
    role: str
    host: str
    ticket: int = 0


class Book(msgspec.Struct, frozen=True, kw_only=True):
    containers: dict[str, Launched] = {}
    tickets: int = 0
    """The highest ticket that was used."""


def read(job_dir: Path) -> Book:
    """What the last coordinator wrote; an empty book if there was none."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((job_dir / FILE).read_bytes(), type=Book)
    return Book()


class Books:
    """Written at most once for all changes of one turn of the event loop."""

    def __init__(self, job_dir: Path) -> None:
        self._job_dir = job_dir
        past = read(job_dir)
        self.containers: dict[str, Launched] = dict(past.containers)
        self.tickets = past.tickets
        self._due: asyncio.Event | None = None
        """Set when what has changed is written."""

    def next_ticket(self) -> int:
        self.tickets += 1
        self._soon()
        return self.tickets

    async def launched(self, container_id: str, entry: Launched) -> None:
        """To be said before the launch is ordered; it is on disk when this returns."""
        self.containers[container_id] = entry
        await self._soon().wait()

    def ended(self, container_id: str) -> None:
        if self.containers.pop(container_id, None) is not None:
            self._soon()

    def _soon(self) -> asyncio.Event:
        if self._due is None:
            self._due = asyncio.Event()
            asyncio.get_running_loop().call_soon(self._write, self._due)
        return self._due

    def _write(self, written: asyncio.Event) -> None:
        self._due = None
        book = Book(containers=dict(self.containers), tickets=self.tickets)
        with contextlib.suppress(OSError):  # a full disk: the journal will say so
            write_atomically(self._job_dir / FILE, msgspec.json.encode(book))
        written.set()
