"""The stand-in agent of the conformance suite with what real agents bring to YARN: a guard.

YARN ends the processes of a container's session; whatever left it is the agent's and its guard's.
"""

from __future__ import annotations

import json
from pathlib import Path

from howdah.agent.guard import Guard
from howdah.agent.processes import marker
from tests.conformance import standin


def main(launch_file: str) -> int:
    """As `tests.conformance.standin.main`."""
    launch = json.loads(Path(launch_file).read_bytes())
    guard = Guard(marker(launch["job_id"], launch["container_id"]))
    try:
        return standin.main(launch_file)
    finally:
        guard.dismiss()
