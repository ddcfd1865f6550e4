"""What stays the same over all attempts of one container: paths, helpers, and the coordinator's ear."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from howdah.agent.children import Children, Helpers
from howdah.agent.execs import ContainerExecs
from howdah.agent.forwarder import LogFollowers
from howdah.agent.host.processes import Stat, marker, stat
from howdah.agent.launch import AgentLaunch, LogNames
from howdah.agent.watchdog import Watchdog
from howdah.agent.workfolder import TASK
from howdah.core.messages import Task
from howdah.storage import layout
from howdah.storage.files import write_private
from howdah.storage.folders import Signature
from howdah.wire.messages import AgentNote, Prepare, Start


class ContainerContext:
    """The container as its attempts see it."""

    def __init__(
        self,
        launch: AgentLaunch,
        children: Children,
        watchdog: Watchdog,
        sockets: Path,
        say: Callable[[Any], None],
        host: Callable[[], str],
    ) -> None:
        self.launch = launch
        self.children = children
        children.umask = -1 if launch.umask is None else launch.umask
        self.watchdog = watchdog
        self.sockets = sockets
        """A private folder with a short path."""
        self.say = say
        """Tells the coordinator, if there is one."""
        self._host = host
        self.ahead_s: float = 0.0
        """How far the job's clock is ahead of this host's."""
        self.marker: str = marker(launch.job_id, launch.container_id)
        self.followers: LogFollowers = LogFollowers()
        self.helpers: Helpers = Helpers(children, self.marker)
        self.work: Path = Path(launch.work_dir)
        self.logs: Path = Path(launch.log_dir)
        self.source: Path | None = Path(launch.source) if launch.source else None
        self.task: Path = self.source if launch.in_place and self.source else self.work / TASK
        """The programs' working folder."""
        self.given: dict[str, Signature] = {}
        """The files there that are not the programs' own, as they were put there."""
        self.checkpoint_request: Path = self.work / "checkpoint-request"
        self.execs: ContainerExecs = ContainerExecs(children, watchdog, lambda: self.task)

    @property
    def host(self) -> str:
        """The address peers are told."""
        return self._host()

    def note(self, of: Prepare | Start, text: str) -> None:
        """Tell readers of the job's events something about an attempt."""
        self.note_about(of.task, of.attempt, text)

    def note_about(self, task: Task, attempt: int, text: str) -> None:
        """The same."""
        self.say(AgentNote(task=task, attempt=attempt, text=text))

    def write_private(self, name: str, data: bytes) -> str:
        """Write a file of the owner's alone into the container's folder; returns its path.

        Raises:
            OSError: it can't be written.
        """
        write_private(self.work / name, data)
        return str(self.work / name)

    def job_dir_of(self, place: str) -> str | None:
        """The job directory's URL if the place is in it: helpers do not make it again."""
        url = self.launch.log_store
        return url if url is not None and place.startswith(f"{url.rstrip('/')}/") else None

    def unsaved(self, of: Prepare, what: str) -> Path | None:
        """Where in the job directory that is put which the attempt could not save; None where the job
        directory is elsewhere."""
        if self.launch.log_store is not None:
            return None
        task = f"{of.task.role}-{of.task.index}"
        # The job directory holds the folder of logs.
        return self.logs.parent / layout.UNSAVED / task / str(of.attempt) / what

    def own_pids(self) -> Collection[int]:
        """Processes of the agent's own: no part of an attempt."""
        return {self.watchdog.pid, *self.helpers.pids}

    def own_processes(self) -> dict[int, Stat]:
        """The agent, its watchdog and its helpers, by pid."""
        found = {pid: stat(pid) for pid in (os.getpid(), *self.own_pids())}
        return {pid: process for pid, process in found.items() if process is not None}

    def log_path(self, task: Task, attempt: int) -> Path:
        if self.launch.log_names is LogNames.FLAT:
            return self.logs / f"{task.role}-{task.index}.{attempt}.log"
        return self.logs / f"{task.role}-{task.index}" / f"{attempt}.log"

    def save_stacks(self, task: Task, attempt: int, text: str) -> str:
        """Write stacks where the job directory has them.

        Returns their path relative to it; empty where it is elsewhere, and the coordinator has to
        save them.

        Raises:
            OSError: they can't be written.
        """
        if self.launch.log_store is not None:
            return ""
        path = f"{layout.STACKS}/{task.role}-{task.index}-{attempt}.txt"
        file = self.logs.parent / path  # the job directory holds the folder of logs
        file.parent.mkdir(mode=0o700, exist_ok=True)
        write_private(file, text.encode(errors="replace"))
        return path
