"""Why the job's containers do not come, for people: asked of the backend while they are awaited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from howdah.backends.base import Backend
from howdah.core.state import JobPhase, JobState

log = logging.getLogger(__name__)

FIRST_S = 1.0
"""Most containers come sooner than this."""
AGAIN_S = 3.0


class Waits:
    """Keeps ``why`` as it is now; empty while nothing is awaited."""

    def __init__(
        self,
        backend: Callable[[], Backend],
        state: Callable[[], JobState],
        touch: Callable[[], object],
    ) -> None:
        self.why = ""
        self._backend = backend
        self._state = state
        self._touch = touch

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(AGAIN_S if self.why else FIRST_S)
            why = await self._ask() if self._awaited() else ""
            if why != self.why:
                self.why = why
                self._touch()

    def _awaited(self) -> bool:
        state = self._state()
        if state.phase is not JobPhase.ALLOCATING:
            return False
        return any(data.request_id is not None for data in state.tasks.values())

    async def _ask(self) -> str:
        try:
            return await self._backend().waiting()
        except Exception:  # words for people are not worth a job
            log.exception("the backend cannot say why containers do not come")
            return ""
