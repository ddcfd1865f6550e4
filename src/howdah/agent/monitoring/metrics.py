"""What an attempt uses, and whether it gets on: measurements, memory against its limit, progress.

GPU use is measured through nvidia-ml-py, in a helper process because that library is large::

    python -m howdah.agent.monitoring.metrics <seconds> <device>…

prints a line ``utilisation memory_mb`` (mean and sum over the devices, ``-`` for what is not known)
every so many seconds until its standard input closes. A device is a UUID or, as Spark names them, a
number in the order of the bus.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import select
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from howdah.agent.host.processes import Stat, io_bytes, shared_out_bytes, usage
from howdah.wire.messages import Sample

_MB = 1024 * 1024
_SHARE = 0.001
"""Part of one core that looking may cost: on hosts where it is dear, it is done less often."""
_LONGEST_S = 5.0
_LOOK_S = 2.0
"""Between two looks into the checkpoint folder."""
_ENTRIES = 2000
_DEPTH = 4
NO_LIBRARY = 3
"""Exit code of the helper where the library that asks the driver is not installed."""

Fingerprint = tuple[int, int, int]
"""Entries, newest modification, total size."""
GpuUse = tuple[float | None, float | None]
"""Mean utilisation (0 to 1) and total memory in use (MB) of an attempt's GPUs; None is not known."""


class Sampler:
    """Looks at an attempt's processes, as often as is cheap."""

    def __init__(
        self,
        look: Callable[[], Mapping[int, Stat]],
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._look = look
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._due = 0.0
        self._before: tuple[float, float] | None = None
        """When, and CPU seconds by then."""

    def read(self, gpu: GpuUse, take_values: Callable[[], dict[str, float]]) -> Sample | None:
        """A sample, or None if it is too soon for one.

        ``take_values`` gives what the program reported since the last sample.
        """
        now = self._clock()
        if now < self._due:
            return None
        start = self._cpu_clock()
        found = self._look()
        used = usage(found.values())
        io = io_bytes(found)
        cost = self._cpu_clock() - start
        self._due = now + min(cost / _SHARE, _LONGEST_S) * 0.9
        cpu = None
        if self._before is not None and now > self._before[0]:
            # Time of processes that ended unseen by their parent is lost: never count backwards.
            cpu = max(used.cpu_s - self._before[1], 0.0) / (now - self._before[0])
        self._before = (now, used.cpu_s)
        if not found:  # all have ended: nothing is measured of none
            values = take_values()
            return Sample(time=time.time(), values=values) if values else None
        return Sample(
            time=time.time(),
            cpu=round(cpu, 3) if cpu is not None else None,
            rss_mb=round(used.rss_bytes / _MB, 1),
            gpu=gpu[0],
            gpu_memory_mb=gpu[1],
            io_read_mb=round(io[0] / _MB, 2) if io else None,
            io_write_mb=round(io[1] / _MB, 2) if io else None,
            values=take_values(),
        )


# -- memory --------------------------------------------------------------------------------------


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


def oom_counter_file(cgroups: str, mounts: str) -> Path | None:
    """The file that counts the kernel's out-of-memory kills in a process's control group.

    ``cgroups`` is the content of ``/proc/<pid>/cgroup``, and ``mounts`` of its ``mountinfo``: YARN may mount
    hierarchies wherever its administrator likes, and what runs in an image sees a part of them. None where
    there is no such file.
    """
    groups: dict[bool, str] = {}
    for line in cgroups.splitlines():
        hierarchy, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if hierarchy == "0" or "memory" in controllers.split(","):
            groups[hierarchy == "0"] = path
    for line in mounts.splitlines():
        # https://www.kernel.org/doc/Documentation/filesystems/proc.txt, 3.5
        about, _, source = line.partition(" - ")
        kind, _, options = (*source.split(" "), "", "")[:3]
        second = kind == "cgroup2"
        if not second and (kind != "cgroup" or "memory" not in options.split(",")):
            continue
        root, place = (_unescaped(each) for each in about.split(" ")[3:5])
        group = groups.get(second, "/..")
        if group.startswith("/.."):  # outside of what a namespace shows
            continue
        inside = posixpath.relpath(group, root)
        file = Path(place, inside, "memory.events" if second else "memory.oom_control")
        if not inside.startswith("..") and file.exists():
            return file
    return None


def _unescaped(path: str) -> str:
    """A path as ``mountinfo`` has it, with octal numbers for white space."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), path)


_UNLIMITED = 1 << 60
"""Version 1 writes the largest number of pages there is."""


class OomWatch:
    """How many processes the kernel has ended for memory since this was made."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file or _own_file()
        self._before = _count(self._file)

    def kills(self) -> int:
        """Since the beginning; 0 where the kernel does not tell."""
        return max(_count(self._file) - self._before, 0)

    def limit_mb(self) -> int | None:
        """What the control group, or one around it, may use; None where nothing limits it."""
        limits: list[int] = []
        for folder in self._file.parents if self._file else ():
            for name in ("memory.max", "memory.limit_in_bytes"):
                with contextlib.suppress(OSError, ValueError):  # "max" is no limit
                    limits.append(int((folder / name).read_bytes()))
        least = min(limits, default=_UNLIMITED)
        return least // _MB if least < _UNLIMITED else None


def _own_file() -> Path | None:
    try:
        cgroups, mounts = (Path("/proc/self", name) for name in ("cgroup", "mountinfo"))
        return oom_counter_file(
            cgroups.read_text("utf-8", "surrogateescape"),
            mounts.read_text("utf-8", "surrogateescape"),
        )
    except OSError:
        return None


def _count(file: Path | None) -> int:
    if file is None:
        return 0
    try:
        for line in file.read_text("utf-8").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


# -- progress ------------------------------------------------------------------------------------


class ProgressMonitor:
    """Remembers the last sign of life. Times are those of ``clock`` (monotonic seconds)."""

    def __init__(self, clock: Callable[[], float], folder: str | None = None) -> None:
        self._clock = clock
        self._folder = folder
        self._last = clock()
        self._seen = fingerprint(folder) if folder else None
        self._looked = self._last

    def shown(self) -> None:
        self._last = self._clock()

    def idle_s(self) -> float:
        """Seconds since the last sign."""
        now = self._clock()
        # Looking costs more than a counter: only when there was nothing else for a while.
        if self._folder and now - max(self._last, self._looked) >= _LOOK_S:
            self._looked = now
            seen = fingerprint(self._folder)
            if seen != self._seen:
                self._seen = seen
                self._last = now
        return now - self._last


def fingerprint(folder: str) -> Fingerprint:
    """A value that changes when files come, go or grow below ``folder``."""
    count = newest = total = 0
    waiting = [(folder, 0)]
    while waiting and count < _ENTRIES:
        path, depth = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    status = entry.stat(follow_symlinks=False)
                    count += 1
                    newest = max(newest, status.st_mtime_ns)
                    total += status.st_size
                    if depth < _DEPTH and entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, depth + 1))
        except OSError:
            continue
    return count, newest, total


# -- GPUs ----------------------------------------------------------------------------------------


def parse_gpus(line: bytes) -> GpuUse:
    """What one of the helper's lines says."""
    try:
        utilisation, memory = (None if word == b"-" else float(word) for word in line.split())
    except ValueError:
        return None, None
    return utilisation, memory


def measure_gpus(nvml: Any, devices: Sequence[Any]) -> GpuUse:
    """The devices' use. The driver tells the memory of an instance of a partitioned GPU (MIG), and no
    utilisation: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetUtilizationRates)."""
    return (
        _over(devices, lambda each: nvml.nvmlDeviceGetUtilizationRates(each).gpu / len(devices) / 100, nvml),
        _over(devices, lambda each: nvml.nvmlDeviceGetMemoryInfo(each).used / _MB, nvml),
    )  # fmt: skip


def _over(devices: Sequence[Any], read: Callable[[Any], float], nvml: Any) -> float | None:
    """The sum, None while the driver does not tell all of them: asked again the next time."""
    try:
        return sum(map(read, devices))
    except nvml.NVMLError:
        return None


def main(argv: Sequence[str]) -> int:
    """Measure until standard input closes. Without the library or a device it ends at once."""
    try:
        import pynvml as nvml  # the module of the package nvidia-ml-py
    except ImportError:
        sys.stderr.write("the package nvidia-ml-py is not installed (howdah[gpu])\n")
        return NO_LIBRARY
    interval_s, names = float(argv[0]), argv[1:]
    try:
        nvml.nvmlInit()
        devices = [
            nvml.nvmlDeviceGetHandleByIndex(int(name))
            if name.isdecimal()
            else nvml.nvmlDeviceGetHandleByUUID(name)
            for name in names
        ]
    except nvml.NVMLError as error:
        sys.stderr.write(f"GPUs {', '.join(names)} can't be measured: {error}\n")
        return 4
    while devices:
        shown = ("-" if each is None else f"{each:.3f}" for each in measure_gpus(nvml, devices))
        sys.stdout.write(" ".join(shown) + "\n")
        sys.stdout.flush()
        if select.select([sys.stdin], [], [], interval_s)[0]:
            break
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
