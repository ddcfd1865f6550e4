"""Whether somebody runs a job: its processes on this machine, as the job directory names them."""

from __future__ import annotations

import enum
import os
import time

from howdah.backends.local.processes import alive
from howdah.backends.local.submit import ADDRESS, node_alive
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress

SUBMITTING_S = 60.0
"""A submission that takes longer has failed."""


class Running(enum.Enum):
    """Whether a job has somebody who runs it."""

    YES = "yes"
    NOT_YET = "not-yet"
    """Just submitted: neither coordinator nor node daemon has given its address."""
    NO = "no"
    """Both are gone. Either starts the other again, so neither will come back."""


def running(directory: JobDirectory) -> Running:
    """Whether the job's node daemon or its coordinator is alive."""
    if node_alive(directory.path):
        return Running.YES
    coordinator = directory.coordinator()
    if coordinator is not None and _lives(coordinator):
        return Running.YES
    known = coordinator is not None or (directory.path / ADDRESS).exists()
    late = time.time() - directory.meta().submitted > SUBMITTING_S
    return Running.NO if known or late else Running.NOT_YET


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
