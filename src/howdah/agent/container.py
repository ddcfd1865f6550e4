"""What stays the same over all attempts of one container: places, helpers, and who is told."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from howdah.agent.children import Children
from howdah.agent.follow import Followers
from howdah.agent.guard import Guard
from howdah.agent.helpers import Helpers
from howdah.agent.launch import AgentLaunch, LogNames
from howdah.agent.logcopies import LogCopies
from howdah.agent.processes import Stat, marker, stat
from howdah.core.messages import Task
from howdah.storage import layout


class Container:
    """The container as its attempts see it."""

    def __init__(
        self,
        launch: AgentLaunch,
        children: Children,
        guard: Guard,
        sockets: Path,
        say: Callable[[Any], None],
        host: Callable[[], str],
    ) -> None:
        self.launch = launch
        self.children = children
        self.guard = guard
        self.sockets = sockets
        """A private folder with a short path."""
        self.say = say
        """Tells the coordinator, if there is one."""
        self._host = host
        self.marker = marker(launch.job_id, launch.container_id)
        self.followers = Followers()
        self.helpers = Helpers(children, self.marker)
        self.work = Path(launch.work_dir)
        self.logs = Path(launch.log_dir)
        self.source = Path(launch.source) if launch.source else None
        self.checkpoint_request = self.work / "checkpoint-request"
        self.log_copies = LogCopies(
            launch.log_store, self.log_path, self.write_private, self.helpers, say
        )

    @property
    def host(self) -> str:
        """The address peers are told."""
        return self._host()

    @property
    def job_folder(self) -> Path:
        """The job directory, or what stands for it here: it holds the folder of logs."""
        return self.logs.parent

    def write_private(self, name: str, data: bytes) -> str:
        """Write a file of the owner's alone into the container's folder; returns its path.

        Raises:
            OSError: it can't be written.
        """
        file = self.work / name
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(descriptor, "wb") as out:
            out.write(data)
        return str(file)

    def aside(self) -> Collection[int]:
        """Processes of the agent's own."""
        return {self.guard.pid, *self.helpers.pids}

    def own_processes(self) -> dict[int, Stat]:
        """The agent, its guard and its helpers, by pid."""
        found = {pid: stat(pid) for pid in (os.getpid(), *self.aside())}
        return {pid: process for pid, process in found.items() if process is not None}

    def log_path(self, task: Task, attempt: int) -> Path:
        """Log of an attempt."""
        if self.launch.log_names is LogNames.FLAT:
            return self.logs / f"{task.role}-{task.index}.{attempt}.log"
        return self.logs / f"{task.role}-{task.index}" / f"{attempt}.log"

    def stacks_path(self, task: Task, attempt: int) -> str:
        """Stack dumps of an attempt, relative to the job directory."""
        return f"{layout.STACKS}/{task.role}-{task.index}-{attempt}.txt"
