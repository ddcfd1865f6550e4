"""The stand-in agent of the conformance suite with what real agents bring to YARN: a watchdog.

YARN ends the processes of a container's session; whatever left it is the agent's and its watchdog's.
"""

from __future__ import annotations

import json
from pathlib import Path

from howdah.agent.host.processes import marker
from howdah.agent.watchdog import Watchdog
from tests.conformance import standin


def main(launch_file: str) -> int:
    """As `tests.conformance.standin.main`."""
    launch = json.loads(Path(launch_file).read_bytes())
    watchdog = Watchdog(marker(launch["job_id"], launch["container_id"]))
    try:
        return standin.main(launch_file)
    finally:
        watchdog.stop()
