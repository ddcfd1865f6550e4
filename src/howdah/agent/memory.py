"""Memory of an attempt against its limit, and proof that the kernel ended something for memory."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from howdah.agent.processes import shared_out_bytes

_MB = 1024 * 1024


def over_limit(rss_bytes: int, limit_mb: int, pids: Collection[int]) -> str:
    """``used X MB of Y MB`` if the processes use more than allowed; else empty.

    Resident memory counts a page once for each process that shares it, so near the limit the
    dearer figure decides, which counts it once.
    """
    if rss_bytes <= limit_mb * _MB:
        return ""
    used = shared_out_bytes(pids)
    if used is None:
        used = rss_bytes
    if used <= limit_mb * _MB:
        return ""
    return f"used {used // _MB} MB of {limit_mb} MB"


def oom_counter_file(cgroups: str, roots: tuple[str, ...] = ("/sys/fs/cgroup",)) -> Path | None:
    """The file that counts the kernel's out-of-memory kills in a process's control group.

    ``cgroups`` is the content of /proc/<pid>/cgroup. None where there is no such file.
    """
    for line in cgroups.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        inside = path.lstrip("/")
        for root in roots:
            if hierarchy == "0" and not controllers:
                places = [Path(root, inside, "memory.events")]
            elif "memory" in controllers.split(","):
                places = [Path(root, "memory", inside, "memory.oom_control")]
            else:
                continue
            for place in places:
                if place.exists():
                    return place
    return None


class OomWatch:
    """How many processes the kernel has ended for memory since this was made."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _own_file()
        self._before = _count(self._file)

    def kills(self) -> int:
        """Since the beginning; 0 where the kernel does not tell."""
        return max(_count(self._file) - self._before, 0)


def _own_file() -> Path | None:
    try:
        return oom_counter_file(Path("/proc/self/cgroup").read_text())
    except OSError:
        return None


def _count(file: Path | None) -> int:
    if file is None:
        return 0
    try:
        for line in file.read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0
