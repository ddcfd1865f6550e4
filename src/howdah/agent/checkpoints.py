"""The task's checkpoint folder: brought back before the start, saved while the programs run.

All reading and writing of the store happens in helper processes (`howdah.storage.helper`):
one that restores, and one that watches the folder as long as the programs run.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import msgspec

from howdah.agent import workfolder
from howdah.agent.children import NOT_INSTALLED, Helper, HelperProblem, module
from howdah.agent.container import ContainerContext
from howdah.core.messages import CheckpointSaved
from howdah.storage import layout
from howdah.storage.confined_paths import to_text
from howdah.storage.folders import Tree, scan, set_aside
from howdah.wire.messages import Prepare, Start

log: logging.Logger = logging.getLogger(__name__)

UNSAVED = "checkpoints"
"""Where a job without a `[checkpoint]` table has its folder: below the container's own."""

SPARE, FILES = "unsaved-checkpoint", "files"
"""A sound state that the store does not take: see `howdah.storage.checkpoints.local_fallback`."""

SHOWN_DIGITS = 12
"""Of a checksum, where it is shown to people."""
_LOOK_S = 2.0
"""Between looks whether a task has written anything that others write for it as a rule."""
_AGAIN_S = 1.0
"""Before a watcher that died is started again."""
_LAST_TRIES = 3
"""Watchers that may die at the end, before saving is given up."""


class RestoredCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What was brought back."""

    version: str
    checksum: str
    origin: str = ""
    """Which checkpoint of which other job it is a copy of."""

    def __str__(self) -> str:
        """For the job's events; the whole checksum is in the version's manifest."""
        return f"{self.origin or self.version} (checksum {self.checksum[:SHOWN_DIGITS]})"


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of either helper: any of the documents of `howdah.storage.checkpoints.versions`."""

    version: str | None = None
    files: int = 0
    bytes: int = 0
    checksum: str = ""
    origin: str = ""
    seconds: float | None = None
    """Of a version that was saved, not restored."""
    skipped: tuple[dict[str, str], ...] = ()
    problem: str = ""
    transient: bool = False
    unsaved: bool = False
    note: str = ""


class Checkpoints:
    """One attempt's."""

    def __init__(
        self, container: ContainerContext, prepare: Prepare, troubled: Callable[[], object]
    ) -> None:
        """``troubled`` is called when there is a new `trouble`."""
        self._container = container
        self._prepare = prepare
        self._troubled = troubled
        self._spec = prepare.checkpoint
        self._watcher: Helper | None = None
        self._watching: asyncio.Task[None] | None = None
        self._last = ""
        """What the watcher was told at the end, once it was."""
        self._ending = asyncio.Event()
        self._first = False
        """Whether this task's folder is saved whatever others write."""
        self.trouble: str = ""
        """Why the store has not taken the newest state; empty where nothing kept it from that."""
        self._lost = ""
        """Why no more is tried."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders inside the working folder that must be real."""
        return (str(self._spec["folder"]),) if self._spec is not None else ()

    def of_working_folder(self) -> Collection[str]:
        """Which files of the working folder are in this task's checkpoint, if they are new: all but the ignored
        ones where that is its checkpoint folder, otherwise none."""
        if self._spec is None or not self._first or self.folder != self._container.task:
            return ()
        return scan(self.folder, self._spec.get("ignore", ()))

    @property
    def folder(self) -> Path:
        """The folder programs write checkpoints to."""
        if self._spec is None:
            return self._container.work / UNSAVED
        return workfolder.place(self._container.task, str(self._spec["folder"]))

    async def restore(self) -> RestoredCheckpoint | None:
        """Bring back what the command names, or the newest; the folder holds nothing else then.

        Raises:
            HelperProblem, OSError: the store can't be read, or the folder not be written.
        """
        if self._spec is None:
            return None
        said = _Said()
        file = self._write_spec(self._spec)
        async with self._container.helpers.running(
            module("howdah.storage.helper", "restore", file)
        ) as helper:
            while (line := await helper.line()) is not None:
                said = _understand(line) or said
                if said.unsaved:
                    self._container.note(self._prepare, said.problem)
                elif said.seconds is not None:
                    self._heard(said)  # an earlier attempt here had kept it
            status = await helper.wait()
        if status != 0:
            why = said.problem or helper.problem or f"the helper ended with status {status}"
            # One that was killed has met a shortage of memory, most likely.
            passing = said.transient or status < 0 or status == NOT_INSTALLED
            raise HelperProblem(why, transient=passing)
        for skipped in said.skipped:
            self._container.note(
                self._prepare,
                f"checkpoint {skipped.get('version')} is damaged and was passed over: "
                f"{skipped.get('reason')}",
            )
        if said.version is None:
            return None
        return RestoredCheckpoint(version=said.version, checksum=said.checksum, origin=said.origin)

    @contextlib.asynccontextmanager
    async def watching(self, start: Start) -> AsyncIterator[None]:
        """Save what the programs complete, if this task's folder is the one that is saved: its own, the
        chief's, or that of the lowest rank that writes anything."""
        spec, rank = self._spec, _rank(start)
        if spec is None or (rank is None and spec.get("source") != "each"):
            yield
            return
        if spec.get("source") == "each":
            watching, self._first = self._watch(spec), True
        elif rank == 0:
            watching, self._first = self._watch({**spec, "rank": 0}), True
        else:
            before = scan(self.folder)
            spec = {**spec, "rank": rank, "began_ns": time.time_ns()}
            watching = self._watch_once_written(spec, before)
        self._watching = asyncio.get_running_loop().create_task(watching)
        try:
            yield
        finally:
            self._watching.cancel()
            await asyncio.wait({self._watching})

    def saved(self) -> None:
        """The program says that it has just completed one."""
        if self._watcher is not None:
            self._watcher.tell(f"publish {_moment(time.time())}")

    def killed(self, kills: Sequence[float]) -> None:
        """Programs were killed at these moments; others may still run."""
        if self._watcher is not None:
            self._watcher.tell(" ".join(["killed", *map(_moment, kills)]))

    @property
    def wanted(self) -> bool:
        """Whether there may be something to save at the end."""
        return self._watching is not None

    async def save(self, limit_s: float, *, kills: Sequence[float], ended_at: float) -> None:
        """Save what is left to be saved, for so long; to be cancelled when there is less time.

        Unless the programs ended by themselves, a file may have been torn in the writing: then only
        what had been left alone for a while before each of the ``kills`` is saved.
        ``ended_at``: when the last process had ended, seconds since the epoch, as all moments.
        """
        assert self._watching is not None
        word = "end" if kills else "finish"
        self._last = " ".join([word, f"{limit_s:.3f}", *map(_moment, (ended_at, *kills))])
        self._ending.set()
        self._tell_last()
        await asyncio.wait({self._watching})

    def unsaved(self, limit_s: float) -> tuple[str, ...]:
        """What could not be saved in ``limit_s`` seconds, and why; a line for each folder."""
        if self._spec is None or self._watching is None:
            return ()
        why = self._lost
        if not why and not self._watching.done():
            why = self.trouble
            if self._last:
                what = why or f"{self._spec['store']} has not taken it"
                why = f"{what}; no more time than {limit_s:g} s was left"
                if place := self._rescue():
                    why += f"; it is kept in {place}"
        return (f"{self._spec['folder']}: {why}",) if why else ()

    def _rescue(self) -> str:
        """Put what the watcher came to no end with where it outlives the container; returns where that is."""
        place = self._container.unsaved(self._prepare, layout.CHECKPOINT)
        sound = self._container.work / SPARE / FILES
        # A program that was killed may have torn what it was writing.
        folder = sound if self._last.startswith("end") and sound.is_dir() else self.folder
        given = self._container.given if folder == self._container.task else {}
        ignore = () if self._spec is None else self._spec.get("ignore", ())
        files = {
            name: name
            for name, signature in scan(folder, ignore).items()
            if not signature.is_as(given.get(name))
        }
        return str((place and set_aside(folder, files, place)) or "")

    async def _watch_once_written(self, spec: dict[str, Any], before: Tree) -> None:
        """The same where most tasks never write: only then is there a process for it."""
        while True:
            ending = self._ending.is_set()
            if await asyncio.to_thread(scan, self.folder) != before:
                await self._watch(spec)
                return
            if ending:
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._ending.wait()

    async def _watch(self, spec: dict[str, Any]) -> None:
        """Keep a watcher going until one has done what it was told at the end."""
        tries = 0
        while True:
            try:
                file = self._write_spec(spec)
                argv = module("howdah.storage.helper", "watch", file)
                async with self._container.helpers.running(argv) as helper:
                    self._watcher = helper
                    self._tell_last()
                    while (line := await helper.line()) is not None:
                        if (said := _understand(line)) is not None:
                            self._heard(said)
                    status = await helper.wait()
                    problem = helper.problem or f"it ended with status {status}"
                    if self._last and status == 0:
                        return
            except (HelperProblem, OSError) as error:
                problem = str(error)
            finally:
                self._watcher = None
            tries += bool(self._last)
            if tries == _LAST_TRIES:
                self._lost = f"the process that saves it ended: {problem}"
                return
            log.warning("the watcher of %s ended: %s", self.folder, problem)
            self._container.note(
                self._prepare,
                f"the watcher of its checkpoint folder ended and is started again: {problem}",
            )
            await asyncio.sleep(_AGAIN_S)

    def _tell_last(self) -> None:
        if self._watcher is not None and self._last:
            self._watcher.tell(self._last)
            self._watcher.finish()

    def _heard(self, said: _Said) -> None:
        if said.note:
            self._container.note(self._prepare, f"its checkpoint: {said.note}")
        elif said.unsaved:
            self._lost = said.problem
        elif said.problem:
            self.trouble = said.problem
            again = "; it is tried again" if said.transient else ""
            self._container.note(
                self._prepare, f"its checkpoint folder is not saved: {said.problem}{again}"
            )
            self._troubled()
        elif said.version is not None:
            self.trouble = ""
            self._container.say(
                CheckpointSaved(
                    task=self._prepare.task,
                    attempt=self._prepare.attempt,
                    name=said.version,
                    files=said.files,
                    size=said.bytes,
                    checksum=said.checksum,
                )
            )

    def _write_spec(self, spec: dict[str, Any]) -> str:
        """The helper's instructions, in a file of the owner's alone: a store's URL may be secret."""
        prepare = self._prepare
        document = {"generation": prepare.generation, "attempt": prepare.attempt, **spec}
        document |= {"folder": str(self.folder), "task": prepare.task}
        document["spare"] = str(self._container.work / SPARE)
        document["unsaved"] = str(self._container.unsaved(prepare, layout.CHECKPOINT) or "")
        document["job_dir"] = self._container.job_dir_of(document["store"])
        if self.folder == self._container.task:
            given = msgspec.json.encode(
                {
                    to_text(name): signature._replace(link=to_text(signature.link))
                    for name, signature in self._container.given.items()
                }
            )
            document["given"] = self._container.write_private("given.json", given)
            document["without"] = (prepare.outputs or {}).get("folders", ())
        return self._container.write_private("checkpoint.json", msgspec.json.encode(document))


def _moment(moment: float) -> str:
    return f"{moment:.6f}"


def _rank(start: Start) -> int | None:
    """The least rank of the task's programs; None if they have none."""
    ranks = [spec.env["HOWDAH_RANK"] for spec in start.processes if "HOWDAH_RANK" in spec.env]
    chief = any(spec.env.get("HOWDAH_IS_CHIEF") == "true" for spec in start.processes)
    return 0 if chief else min(map(int, ranks), default=None)


def _understand(line: bytes) -> _Said | None:
    try:
        return msgspec.json.decode(line, type=_Said)
    except msgspec.DecodeError:
        log.warning("a checkpoint helper printed %r", line[:200])
        return None
