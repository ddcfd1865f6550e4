"""The task's checkpoint folder: brought back before the start, saved while the programs run.

All reading and writing of the store happens in helper processes (`howdah.storage.checkpoints`).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from howdah.agent import workfolder
from howdah.agent.container import Container
from howdah.core.events import Exit
from howdah.wire.messages import Prepare, Start

UNSAVED = "checkpoints"
"""Where a job without a `[checkpoint]` table has its folder: below the container's own."""


class CheckpointProblem(Exception):
    """A checkpoint can't be brought back or saved; the text says why."""


class Checkpoints:
    """One attempt's."""

    def __init__(self, container: Container, order: Prepare) -> None:
        self._container = container
        self._order = order
        self._spec = order.checkpoint

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders inside the working folder that must be real."""
        return (str(self._spec["folder"]),) if self._spec is not None else ()

    @property
    def folder(self) -> Path:
        """The folder programs write checkpoints to."""
        if self._spec is None:
            return self._container.work / UNSAVED
        return workfolder.place(self._container.work / workfolder.TASK, str(self._spec["folder"]))

    async def restore(self) -> str | None:
        return None

    @contextlib.asynccontextmanager
    async def watching(self, order: Start) -> AsyncIterator[None]:
        yield

    def saved(self) -> None:
        """The program says that it has just completed one."""

    async def last(self, exit: Exit) -> None:
        """Save what the watch has not."""
