"""Folders of a task that are copied to the job's store when an attempt has ended.

A helper process does it (`howdah.storage.outputs`).
"""

from __future__ import annotations

from pathlib import Path, PurePath

import msgspec

from howdah.agent import workfolder
from howdah.agent.container import Container
from howdah.agent.helpers import HelperProblem, module
from howdah.wire.messages import AgentNote, Prepare

UNSAVED = "outputs"
"""Where a job without an `[outputs]` table has its folder: below the container's own."""

_HELPER = "howdah.storage.outputs"


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the helper: either document of `howdah.storage.outputs`."""

    problem: str = ""
    transient: bool = False
    problems: tuple[str, ...] | None = None


class Outputs:
    """One attempt's."""

    def __init__(self, container: Container, prepare: Prepare) -> None:
        self._container = container
        self._prepare = prepare
        wanted = prepare.outputs or {}
        self._store = str(wanted.get("store", ""))
        self.folders: tuple[str, ...] = tuple(map(str, wanted.get("folders", ())))
        """What is copied: paths inside the working folder."""
        self._lost: tuple[str, ...] | None = None
        """What could not be copied, once the helper is done."""
        self._trouble = ""

    @property
    def folder(self) -> Path:
        """The folder programs are told to write to: the first of those, if it is one."""
        base = self._container.work
        for folder in self.folders:
            if _is_folder(folder):
                return workfolder.place(base / workfolder.TASK, folder)
        return base / UNSAVED

    def make(self) -> None:
        """Make the folders, so that programs need not.

        Raises:
            OSError: one can't be made.
        """
        base = self._container.work / workfolder.TASK
        for folder in self.folders:
            path = workfolder.place(base, folder)
            (path if _is_folder(folder) else path.parent).mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def wanted(self) -> bool:
        """Whether there is something to copy."""
        return any(self._has_files(folder) for folder in self.folders)

    async def save(self, limit_s: float) -> None:
        """Copy what is there, for so long; to be cancelled when there is less time."""
        document = {
            "base": str(self._container.work / workfolder.TASK),
            "folders": self.folders,
            "store": self._store,
            "attempt": self._prepare.attempt,
            "limit_s": limit_s,
        }
        problem = ""
        try:
            file = self._container.write_private("outputs.json", msgspec.json.encode(document))
            async with self._container.helpers.running(module(_HELPER, file)) as helper:
                while (line := await helper.line()) is not None:
                    said = msgspec.json.decode(line, type=_Said)
                    self._lost = said.problems
                    if said.problem:
                        self._trouble = said.problem
                        again = "; it is tried again" if said.transient else ""
                        self._note(f"its outputs are not copied: {said.problem}{again}")
                if await helper.wait() == 0:
                    self._lost = self._lost or ()
                else:
                    problem = self._trouble or helper.problem or "its process ended early"
        except (HelperProblem, OSError, msgspec.DecodeError) as error:
            problem = str(error)
        if problem:
            self._lost = tuple(f"{folder}: {problem}" for folder in self.folders)

    def unsaved(self, limit_s: float) -> tuple[str, ...]:
        """What could not be saved in ``limit_s`` seconds, and why; a line for each folder."""
        if self._lost is not None:
            return self._lost
        why = self._trouble or f"not copied to {self._store}"
        return tuple(
            f"{folder}: {why}; no more time than {limit_s:g} s was left"
            for folder in self.folders
            if self._has_files(folder)
        )

    def _has_files(self, folder: str) -> bool:
        path = workfolder.place(self._container.work / workfolder.TASK, folder)
        return path.is_file() or workfolder.has_files(path)

    def _note(self, text: str) -> None:
        prepare = self._prepare
        self._container.say(AgentNote(task=prepare.task, attempt=prepare.attempt, text=text))


def _is_folder(name: str) -> bool:
    """Whether a path that may not exist yet is meant to be a folder: files have a suffix."""
    return not PurePath(name).suffix
