"""A folder of the container kept like one elsewhere while programs run: TensorBoard's.

Programs write event files into a local folder; a helper process (`howdah.storage.follow`) takes
them to the job directory, and beside TensorBoard another brings those of all tasks. The taking one
is started only once there is something to take.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from howdah.agent import workfolder
from howdah.agent.container import Container
from howdah.agent.helpers import Helper, HelperProblem, module
from howdah.wire.messages import AgentNote, Mirror, Start

log = logging.getLogger(__name__)

_HELPER = "howdah.storage.follow"
_LOOK_S = 2.0
_AGAIN_S = 5.0


class _Said(msgspec.Struct):
    problem: str = ""


class Mirroring:
    """Of one attempt."""

    def __init__(self, container: Container, start: Start) -> None:
        self._container = container
        self._start = start
        self._over = asyncio.Event()
        self._helper: Helper | None = None
        self._work: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def going(self) -> AsyncIterator[None]:
        """Keep the folders alike in the block."""
        mirror = self._start.mirror
        if mirror is None:
            yield
            return
        folder = Path(mirror.folder)
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._work = asyncio.get_running_loop().create_task(self._keep(mirror, folder))
        try:
            yield
        finally:
            self._work.cancel()
            await asyncio.wait({self._work})

    @property
    def wanted(self) -> bool:
        """Whether there may be something to take there."""
        mirror = self._start.mirror
        return mirror is not None and mirror.way == "push" and workfolder.has_files(mirror.folder)

    async def save(self) -> None:
        """Take there what came last; to be cancelled when there is no more time."""
        assert self._work is not None
        self._over.set()
        if self._helper is not None:
            self._helper.finish()
        await asyncio.wait({self._work})

    async def _keep(self, mirror: Mirror, folder: Path) -> None:
        while mirror.way == "push" and not workfolder.has_files(folder):
            if self._over.is_set():
                return
            await self._sleep(_LOOK_S)
        spec = {
            "folder": mirror.folder,
            "place": mirror.place,
            "attempt": self._start.attempt if mirror.way == "push" else 0,
        }
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
                    status = await helper.wait()
                    problem = helper.problem or f"it ended with status {status}"
                    if status == 0:
                        return  # told to, or a later attempt's folder it is now
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
                start = self._start
                text = f"its TensorBoard folder is not up to date elsewhere: {problem}"
                self._container.say(AgentNote(task=start.task, attempt=start.attempt, text=text))
