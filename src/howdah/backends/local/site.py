"""A job of this machine as a client finds it: its processes, as the job directory names them."""

from __future__ import annotations

import os
import shutil

from howdah.backends import submitter_liveness
from howdah.backends.base import BackendError, Lost, Running
from howdah.backends.local.messages import LEASE_S
from howdah.backends.local.processes import alive, read_process, strays
from howdah.backends.local.runtime_paths import remove_leftover
from howdah.backends.local.submit import ADDRESS, node_alive, revive
from howdah.backends.local_directory_site import LocalDirectorySite
from howdah.storage import coordinator_ends
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress

FULL = 1 << 20
"""Bytes; a disk with less is full."""


class LocalSite(LocalDirectorySite):
    """Everything is in the job directory and on this machine."""

    def running(self) -> Running:
        """Whether the job's node daemon or its coordinator is alive. Either starts the other again,
        so with both gone neither will come back."""
        if node_alive(self._directory.path):
            return Running.YES
        coordinator = self._directory.coordinator()
        if coordinator is not None and _lives(coordinator):
            return Running.YES
        known = coordinator is not None or (self._directory.path / ADDRESS).exists()
        return Running.NO if known or self._late() or self._cut_off() else Running.NOT_YET

    def lost(self) -> Lost:
        directory = self._directory
        if self._cut_off():
            return submitter_liveness.never_handed_over(directory.meta(), "the local backend")
        left = self.left_running()
        anew = "to begin anew once they have ended" if left else "to begin anew"
        return Lost(
            f"nobody runs {directory.job_id} any more: neither its coordinator nor its node daemon "
            f"is alive{f', but {left}' if left else f' ({_likely(directory)})'}",
            f"To go on where it was: howdah attach --revive {directory.job_id}; {anew}: "
            f"{self._rerun()}. What it left is in {directory.path}{_kept(directory)}",
        )

    def left_running(self, *, thorough: bool = False) -> str:
        agents = map(read_process, self._directory.containers.glob("*"))
        if any(agent is not None and alive(agent.pid, agent.start) for agent in agents):
            return f"its programs still run, and end by themselves within {LEASE_S:g} s"
        if thorough and (left := strays().get(self._directory.job_id)):
            return f"processes of it still run without an agent; to end them: kill {' '.join(map(str, left))}"
        return ""

    def remove_elsewhere(self) -> int:
        remove_leftover(self._directory.path)
        return 0

    def revive(self) -> None:
        revive(self._directory.path)

    def end(self, reason: str) -> None:
        raise BackendError(
            f"{self._directory.job_id} can only be ended by its coordinator: howdah attach --revive "
            f"{self._directory.job_id}, then howdah stop"
        )


def _lives(coordinator: CoordinatorAddress) -> bool:
    if coordinator.start is not None:
        return alive(coordinator.pid, coordinator.start)
    return _exists(coordinator.pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kept(directory: JobDirectory) -> str:
    unsaved = directory.unsaved()
    return (
        f", and what its store has not taken in {', '.join(map(str, unsaved))}" if unsaved else ""
    )


def _likely(directory: JobDirectory) -> str:
    """Why both may have gone. What runs a job ends when it can't write the journal."""
    if ends := coordinator_ends.read(directory.path):
        return f"its last coordinator died of: {ends[-1].reason}"
    free = shutil.disk_usage(directory.path).free
    if free < FULL:
        return f"the disk is full: {free >> 10} KiB are free; make room first"
    return "did the machine restart?"
