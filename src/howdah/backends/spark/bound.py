"""An agent that ends with its holder: who is left of a dead holder would be nobody's."""

from __future__ import annotations

import os
import signal

from howdah.agent import main as agent
from howdah.agent.processes import end_with_parent


def main(launch_file: str) -> int:
    """As `howdah.agent.main.main`."""
    holder = os.getppid()
    if end_with_parent() and os.getppid() != holder:  # it died between the fork and here
        return 128 + signal.SIGTERM
    return agent.main(launch_file)
