"""Logs of ended attempts, copied to the job directory where that is elsewhere.

A helper process does it (`howdah.storage.logcopy`), beside whatever the container does next; the
agent only has to live until it is done.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent.helpers import HelperProblem, Helpers, module
from howdah.core.messages import Task
from howdah.storage import layout
from howdah.wire.messages import AgentNote

_HELPER = "howdah.storage.logcopy"
_PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
"""Between tries: a NameNode that restarts is back in a minute or two."""
_LAST_PAUSES_S = (0.5, 1.0)
"""The same once the agent is to go. The helper itself waits a while for a NameNode."""
_TRY_S = 300.0


class LogCopies:
    """All copies of one container that are under way."""

    def __init__(
        self,
        store: str | None,
        log_path: Callable[[Task, int], Path],
        write_private: Callable[[str, bytes], str],
        helpers: Helpers,
        say: Callable[[Any], None],
    ) -> None:
        """``store`` is the job's folder elsewhere, None where logs stay; the others are those of
        the container."""
        self._store = store
        self._log_path = log_path
        self._write_private = write_private
        self._helpers = helpers
        self._say = say
        self._under_way: set[asyncio.Task[None]] = set()
        self._leaving = asyncio.Event()

    def begin(self, task: Task, attempt: int) -> None:
        """Copy the log of an attempt that has ended, if logs are to be copied and it has one."""
        log = self._log_path(task, attempt)
        if self._store is None or not log.exists():
            return
        url = f"{self._store}/{layout.task_log(task.role, task.index, attempt)}"
        copying = asyncio.get_running_loop().create_task(self._copy(task, attempt, log, url))
        self._under_way.add(copying)
        copying.add_done_callback(self._under_way.discard)

    async def done(self, within_s: float) -> None:
        """Wait until all is copied, or until so much time has passed."""
        self._leaving.set()
        if not self._under_way:
            return
        _, unfinished = await asyncio.wait(self._under_way, timeout=within_s)
        for copying in unfinished:
            copying.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    async def _copy(self, task: Task, attempt: int, log: Path, url: str) -> None:
        problem = "the agent was ended before it was done"
        try:
            pauses = iter(_PAUSES_S)
            last_pauses = iter(_LAST_PAUSES_S)
            while problem := await self._try(log, url):
                pause = next(last_pauses if self._leaving.is_set() else pauses, None)
                if pause is None:
                    break
                await self._sleep(pause)
        finally:
            if problem:
                text = f"its log could not be copied to {url}: {problem}; it is in {log}"
                self._say(AgentNote(task=task, attempt=attempt, text=text))

    async def _sleep(self, pause: float) -> None:
        """So long; less if the agent begins to leave meanwhile."""
        if self._leaving.is_set():
            await asyncio.sleep(pause)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._leaving.wait()

    async def _try(self, log: Path, url: str) -> str:
        """Copy it once; returns what went wrong."""
        spec = msgspec.json.encode({"log": str(log), "url": url})
        try:
            file = self._write_private(f"copy-{log.stem}.json", spec)
            await self._helpers.output(module(_HELPER, file), _TRY_S)
        except (HelperProblem, OSError) as error:
            return str(error)
        return ""
