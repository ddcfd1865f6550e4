"""The coordinator's process as the driver program's child: ``python -m`` this module.

It imports all it needs while the job directory
is still being written; a line on standard input says which one it is, none that there is none.
"""

import os
import sys


def main() -> int:
    """Coordinate that job to its end; returns the process's exit code."""
    import importlib

    # Named, not imported: the coordinator is a room above this one.
    coordinator = importlib.import_module("howdah.coordinator.main")
    importlib.import_module("howdah.backends.spark.backend")
    job_dir = sys.stdin.readline().strip()
    if not job_dir:
        return 0
    from pathlib import Path

    from howdah.backends.local.forks import log_to
    from howdah.backends.local.keeper import COORDINATOR_LOG

    log_to(Path(job_dir, COORDINATOR_LOG))
    return coordinator.main(job_dir)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
