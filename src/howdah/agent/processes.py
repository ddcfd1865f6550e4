# ruff: noqa: F401 - the names are for other modules
"""Looking at and signalling processes, by whatever this system offers.

Names are those of `howdah.agent.procfs`; where there is no /proc, of `howdah.agent.portable`.
"""

from __future__ import annotations

import os
import sys

HAS_PROC = sys.platform == "linux" and os.path.exists("/proc/self/stat")

if HAS_PROC:
    from howdah.agent.procfs import (
        Stat,
        Usage,
        become_subreaper,
        command_line,
        descendants,
        end_with_parent,
        handles,
        io_bytes,
        marked,
        name_process,
        prefer_as_oom_victim,
        program,
        send_signal,
        shared_out_bytes,
        socket_inodes,
        stat,
        usage,
    )
else:
    from howdah.agent.portable import (
        Stat,
        Usage,
        become_subreaper,
        command_line,
        descendants,
        end_with_parent,
        handles,
        io_bytes,
        marked,
        name_process,
        prefer_as_oom_victim,
        program,
        send_signal,
        shared_out_bytes,
        socket_inodes,
        stat,
        usage,
    )

MARKER = "HOWDAH_CONTAINER"
"""Environment variable that every process of a container carries."""


def marker(job_id: str, container_id: str) -> str:
    """The marker's value for that container."""
    return f"{job_id}/{container_id}"
