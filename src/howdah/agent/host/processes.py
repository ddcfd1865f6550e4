# ruff: noqa: F403 - both modules have the same names, all of them for others
"""Looking at and signalling processes, by whatever this system offers.

Names are those of `howdah.agent.host.procfs`; where there is no /proc, of `howdah.agent.host.portable`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection

HAS_PROC = sys.platform == "linux" and os.path.exists("/proc/self/stat")

if HAS_PROC:
    from howdah.agent.host.procfs import *
else:
    from howdah.agent.host.portable import *

MARKER = "HOWDAH_CONTAINER"
"""Environment variable that every process of a container carries."""


def marker(job_id: str, container_id: str) -> str:
    return f"{job_id}/{container_id}"


def close_all_but(kept: Collection[int]) -> None:
    """Close the descriptors of this process, but for those.

    Not by ``os.closerange`` up to the limit: a Python that was built on an old system, as uv's are, makes
    2**31 system calls of it.
    """
    folder = "/proc/self/fd" if HAS_PROC else "/dev/fd"
    for name in os.listdir(folder):  # noqa: PTH208 - a path for each would be built for nothing
        if int(name) not in kept:
            os.closerange(int(name), int(name) + 1)
