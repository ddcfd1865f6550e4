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
    """The helper's line: either document of `howdah.storage.outputs`."""

    problem: str = ""
    problems: tuple[str, ...] = ()


class Outputs:
    """One attempt's."""

    def __init__(self, container: Container, order: Prepare) -> None:
        self._container = container
        self._order = order
        wanted = order.outputs or {}
        self._store = str(wanted.get("store", ""))
        self.folders: tuple[str, ...] = tuple(map(str, wanted.get("folders", ())))
        """What is copied: paths inside the working folder."""

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

    async def copy(self) -> None:
        """Copy what is there; what goes wrong is noted."""
        if not self.folders:
            return
        document = {
            "base": str(self._container.work / workfolder.TASK),
            "folders": self.folders,
            "store": self._store,
        }
        try:
            file = self._container.write_private("outputs.json", msgspec.json.encode(document))
            async with self._container.helpers.running(module(_HELPER, file)) as helper:
                said = _Said()
                while (line := await helper.line()) is not None:
                    said = msgspec.json.decode(line, type=_Said)
                status = await helper.wait()
                problem = said.problem or (helper.problem if status != 0 else "")
        except (HelperProblem, OSError, msgspec.DecodeError) as error:
            said, status, problem = _Said(), 1, str(error)
        if status != 0:
            self._note(f"its outputs could not be copied to {self._store}: {problem or status}")
        elif said.problems:
            some = "; ".join(said.problems[:3])
            self._note(f"{len(said.problems)} of its output files could not be copied: {some}")

    def _note(self, text: str) -> None:
        order = self._order
        self._container.say(AgentNote(task=order.task, attempt=order.attempt, text=text))


def _is_folder(name: str) -> bool:
    """Whether a path that may not exist yet is meant to be a folder: files have a suffix."""
    return not PurePath(name).suffix
