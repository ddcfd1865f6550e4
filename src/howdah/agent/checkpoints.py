"""The task's checkpoint folder: brought back before the start, saved while the programs run.

All reading and writing of the store happens in helper processes (`howdah.storage.checkpoints`):
one that restores, and one that watches the folder as long as the programs run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent import workfolder
from howdah.agent.container import Container
from howdah.agent.helpers import Helper, HelperProblem, module
from howdah.core.messages import CheckpointSaved
from howdah.wire.messages import AgentNote, Prepare, Start

log = logging.getLogger(__name__)

UNSAVED = "checkpoints"
"""Where a job without a `[checkpoint]` table has its folder: below the container's own."""

_HELPER = "howdah.storage.checkpoints"
SHOWN_DIGITS = 12
"""Of a checksum, where it is shown to people."""
_AGAIN_S = 1.0
"""Before a watcher that died is started again."""


class CheckpointProblem(Exception):
    """The checkpoint can't be brought back; the text says why."""


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was brought back."""

    version: str
    checksum: str
    origin: str = ""
    """Which checkpoint of which other job it is a copy of."""

    def __str__(self) -> str:
        """For the job's events; the whole checksum is in the version's manifest."""
        return f"{self.origin or self.version} (checksum {self.checksum[:SHOWN_DIGITS]})"


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of either helper: any of the documents of `howdah.storage.versions`."""

    version: str | None = None
    files: int = 0
    bytes: int = 0
    checksum: str = ""
    origin: str = ""
    skipped: tuple[dict[str, str], ...] = ()
    problem: str = ""


class Checkpoints:
    """One attempt's."""

    def __init__(self, container: Container, order: Prepare) -> None:
        self._container = container
        self._order = order
        self._spec = order.checkpoint
        self._watcher: Helper | None = None
        self._last_order = ""
        """How the watcher was told to end, once it was."""
        self._watching: asyncio.Task[None] | None = None

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

    async def restore(self) -> Restored | None:
        """Bring back what the order says, or the newest; the folder holds nothing else then.

        Raises:
            CheckpointProblem: the store can't be read, or the folder not be written.
        """
        if self._spec is None:
            return None
        said = _Said()
        try:
            file = self._write_spec(self._spec)
            async with self._container.helpers.running(module(_HELPER, "restore", file)) as helper:
                while (line := await helper.line()) is not None:
                    said = _understand(line) or said
                status = await helper.wait()
        except (HelperProblem, OSError) as problem:
            raise CheckpointProblem(f"its checkpoint can't be restored: {problem}") from problem
        if status != 0 or said.problem:
            why = said.problem or helper.problem or f"the helper ended with status {status}"
            raise CheckpointProblem(f"its checkpoint can't be restored: {why}")
        for skipped in said.skipped:
            self._note(
                f"checkpoint {skipped.get('version')} is damaged and was passed over: "
                f"{skipped.get('reason')}"
            )
        if said.version is None:
            return None
        return Restored(version=said.version, checksum=said.checksum, origin=said.origin)

    @contextlib.asynccontextmanager
    async def watching(self, order: Start) -> AsyncIterator[None]:
        """Save what the programs complete, if this task's folder is the one that is saved."""
        if self._spec is None or not self._is_saved(order):
            yield
            return
        self._watching = asyncio.get_running_loop().create_task(self._watch(self._spec))
        try:
            yield
        finally:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    def saved(self) -> None:
        """The program says that it has just completed one."""
        if self._watcher is not None:
            self._watcher.tell("publish")

    async def last(self, *, clean: bool) -> None:
        """Save what is left to be saved.

        Unless the programs ended by themselves (``clean``), a file may have been torn in the
        writing: then only what had been left alone for a while is saved.
        """
        if self._watching is None:
            return
        self._last_order = "finish" if clean else "end"
        self._tell_last()
        await asyncio.wait({self._watching})

    def _is_saved(self, order: Start) -> bool:
        assert self._spec is not None
        if self._spec.get("source", "chief") == "each":
            return True
        return any(spec.env.get("HOWDAH_IS_CHIEF") == "true" for spec in order.processes)

    async def _watch(self, spec: dict[str, Any]) -> None:
        """Keep a watcher going until it was told to end."""
        while True:
            try:
                file = self._write_spec(spec)
                argv = module(_HELPER, "watch", file)
                async with self._container.helpers.running(argv) as helper:
                    self._watcher = helper
                    self._tell_last()
                    while (line := await helper.line()) is not None:
                        self._heard(line)
                    status = await helper.wait()
                    problem = helper.problem or f"it ended with status {status}"
            except (HelperProblem, OSError) as error:
                problem = str(error)
            finally:
                self._watcher = None
            if self._last_order:
                return
            log.warning("the watcher of %s ended: %s", self.folder, problem)
            self._note(
                f"the watcher of its checkpoint folder ended and is started again: {problem}"
            )
            await asyncio.sleep(_AGAIN_S)

    def _tell_last(self) -> None:
        if self._watcher is None or not self._last_order:
            return
        if self._last_order == "finish":
            self._watcher.tell("finish")
        self._watcher.finish()

    def _heard(self, line: bytes) -> None:
        said = _understand(line)
        if said is None:
            return
        if said.problem:
            self._note(said.problem)
        elif said.version is not None:
            self._container.say(
                CheckpointSaved(
                    task=self._order.task,
                    attempt=self._order.attempt,
                    name=said.version,
                    files=said.files,
                    size=said.bytes,
                    checksum=said.checksum,
                )
            )

    def _write_spec(self, spec: dict[str, Any]) -> str:
        """The helper's instructions, in a file of the owner's alone: a store's URL may be secret."""
        order = self._order
        document = {"generation": order.generation, "attempt": order.attempt, **spec}
        document |= {"folder": str(self.folder), "task": order.task}
        return self._container.write_private("checkpoint.json", msgspec.json.encode(document))

    def _note(self, text: str) -> None:
        order = self._order
        self._container.say(AgentNote(task=order.task, attempt=order.attempt, text=text))


def _understand(line: bytes) -> _Said | None:
    try:
        return msgspec.json.decode(line, type=_Said)
    except msgspec.DecodeError:
        log.warning("a checkpoint helper printed %r", line[:200])
        return None
