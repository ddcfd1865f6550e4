"""A folder of the container kept like one elsewhere while programs run: TensorBoard's.

Programs write event files into a local folder; a helper process (`howdah.storage.follow`) takes
them to the job directory, and beside TensorBoard another brings those of all tasks. The taking one
is started only once there is something to take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.agent.helpers import Helper, HelperProblem, module
from howdah.wire.messages import AgentNote, Mirror, Start

if TYPE_CHECKING:
    from howdah.agent.container import Container

log = logging.getLogger(__name__)

_HELPER = "howdah.storage.follow"
_LOOK_S = 2.0
_AGAIN_S = 5.0
_LAST_S = 20.0
"""For what came last, when the programs have ended."""


class _Said(msgspec.Struct):
    problem: str = ""


class Mirroring:
    """Of one attempt."""

    def __init__(self, container: Container, order: Start) -> None:
        self._container = container
        self._order = order
        self._over = asyncio.Event()
        self._helper: Helper | None = None

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Keep the folders alike in the block, and once more at its end."""
        mirror = self._order.mirror
        if mirror is None:
            yield
            return
        folder = Path(mirror.folder)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        work = asyncio.get_running_loop().create_task(self._work(mirror, folder))
        try:
            yield
            self._over.set()
            if self._helper is not None:
                self._helper.finish()
            await asyncio.wait({work}, timeout=_LAST_S if mirror.way == "push" else 0)
        finally:
            work.cancel()
            await asyncio.wait({work})

    async def _work(self, mirror: Mirror, folder: Path) -> None:
        while mirror.way == "push" and not _has_files(folder):
            if self._over.is_set():
                return
            await self._sleep(_LOOK_S)
        spec = {"folder": mirror.folder, "place": mirror.place}
        while True:
            try:
                file = self._container.write_private("mirror.json", msgspec.json.encode(spec))
                argv = module(_HELPER, mirror.way, file)
                async with self._container.helpers.running(argv) as helper:
                    self._helper = helper
                    if self._over.is_set():
                        helper.finish()
                    while (line := await helper.line()) is not None:
                        self._heard(line)
                    problem = helper.problem or f"it ended with status {await helper.wait()}"
            except (HelperProblem, OSError) as error:
                problem = str(error)
            finally:
                self._helper = None
            if self._over.is_set():
                return
            log.warning("the helper for %s ended: %s", folder, problem)
            await self._sleep(_AGAIN_S)

    async def _sleep(self, pause_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._over.wait()

    def _heard(self, line: bytes) -> None:
        with contextlib.suppress(msgspec.DecodeError):
            if problem := msgspec.json.decode(line, type=_Said).problem:
                order = self._order
                text = f"its TensorBoard folder is not up to date elsewhere: {problem}"
                self._container.say(AgentNote(task=order.task, attempt=order.attempt, text=text))


def _has_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))
