"""Folders of a task that are copied to the job's store when the task ends."""

from __future__ import annotations

from pathlib import Path

from howdah.agent.container import Container
from howdah.wire.messages import Prepare

UNSAVED = "outputs"


class Outputs:
    """One attempt's."""

    def __init__(self, container: Container, order: Prepare) -> None:
        self._container = container
        self._order = order

    @property
    def folders(self) -> tuple[str, ...]:
        return ()

    @property
    def folder(self) -> Path:
        return self._container.work / UNSAVED

    async def copy(self) -> None:
        pass
