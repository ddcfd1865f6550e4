"""Whether somebody runs a job: its processes on this machine, as the job directory names them."""

from __future__ import annotations

import enum
import os
import time

from howdah.backends.local.submit import ADDRESS, node_alive
from howdah.storage.jobdir import JobDirectory

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
    if coordinator is not None and _exists(coordinator.pid):
        return Running.YES
    known = coordinator is not None or (directory.path / ADDRESS).exists()
    late = time.time() - directory.meta().submitted > SUBMITTING_S
    return Running.NO if known or late else Running.NOT_YET


def _exists(pid: int) -> bool:
    """The id may have been given to another process meanwhile: then we wait in vain, no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
