"""An agent that ends with its holder: who is left of a dead holder would be nobody's."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

from howdah.agent import main as agent

_PR_SET_PDEATHSIG = 1


def main(launch_file: str) -> int:
    """As `howdah.agent.main.main`."""
    holder = os.getppid()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != holder:  # it died between the fork and here
            return 128 + signal.SIGTERM
    return agent.main(launch_file)
