"""A job of another user as who has a copy of its directory finds it (`howdah.storage.copies.local_copy`)."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from howdah.backends.base import BackendError, Lost, Running
from howdah.backends.local_directory_site import LocalDirectorySite
from howdah.core.messages import Task
from howdah.storage import layout
from howdah.storage.copies import local_copy
from howdah.storage.layout import CoordinatorAddress
from howdah.wire.status import JobView

CONNECT_S = 1.0
BETWEEN_TWO_S = 3.0
"""A coordinator that does not answer may have a successor within this."""

_silent: dict[Path, tuple[CoordinatorAddress, float]] = {}
"""Coordinators that did not answer when they were asked last, and since when. Who asks makes a new site each
time, and waits for none as long as that."""


class CopiedSite(LocalDirectorySite):
    """What is asked is copied first. Only its coordinator is spoken to; nothing of the job is run or ended
    otherwise, whatever its directory says."""

    at_hand = False

    def coordinator(self) -> CoordinatorAddress | None:
        self._directory.remove_coordinator()
        self._bring(accept=layout.COORDINATOR.__eq__)
        self._bring(layout.SECRETS, accept=layout.VARIABLES.__ne__)
        return self._directory.coordinator()

    def final(self) -> JobView | None:
        final = self._directory.final()
        if final is None:
            self._bring(accept=layout.FINAL.__eq__)
            final = self._directory.final()
            if final is not None:
                self.bring_story()
        return final

    def running(self) -> Running:
        """Whether its coordinator answers, on this machine or another. One that has not answered for
        `BETWEEN_TWO_S`, as far as it was asked, is gone."""
        address = self.coordinator()
        if address is None:
            return Running.NO if self._late() else Running.NOT_YET
        path = self._directory.path
        with contextlib.suppress(OSError):
            socket.create_connection((address.host, address.port), CONNECT_S).close()
            _silent.pop(path, None)
            return Running.YES
        now = time.monotonic()
        known, since = _silent.get(path, (address, now))
        if known != address:
            since = now
        _silent[path] = (address, since)
        gone = now - since > BETWEEN_TWO_S or self.final() is not None
        return Running.NO if gone else Running.NOT_YET

    def bring_story(self) -> None:
        self._bring(accept=lambda name: name.startswith("events-"))
        self._bring(layout.STACKS)

    def bring_metrics(self) -> None:
        self._bring(accept=lambda name: name.startswith("metrics-"))

    def bring_logs(self, tasks: Sequence[Task] = ()) -> None:
        names = [f"{task.role}-{task.index}" for task in tasks]
        for name in names or local_copy.folders(self._directory.path, layout.LOGS):
            self._bring(f"{layout.LOGS}/{name}")

    def lost(self) -> Lost:
        directory, address = self._directory, self._directory.coordinator()
        at = "" if address is None else f" at {address.host}:{address.port}"
        return Lost(
            f"nobody runs {directory.job_id} any more, or this machine cannot reach it: its coordinator "
            f"does not answer{at}",
            f"For its owner, to begin anew: {self._rerun()}",
        )

    def revive(self) -> None:
        raise BackendError(f"only its owner can revive {self._directory.job_id}")

    def end(self, reason: str) -> None:
        raise BackendError(
            f"{self._directory.job_id} can only be ended by its coordinator, which does not answer"
        )

    def _bring(self, below: str = "", accept: Callable[[str], bool] = lambda name: True) -> None:
        with contextlib.suppress(FileNotFoundError):
            local_copy.bring(self._directory.path, below, accept)
