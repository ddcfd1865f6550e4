"""Measurements of an attempt's processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from howdah.agent.processes import Stat, io_bytes, usage
from howdah.wire.messages import Sample

_MB = 1024 * 1024
_SHARE = 0.001
"""Part of one core that looking may cost: on hosts where it is dear, it is done less often."""
_LONGEST_S = 5.0


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

    def read(
        self, gpu: tuple[float, float] | None, take_values: Callable[[], dict[str, float]]
    ) -> Sample | None:
        """A sample, or None if it is too soon for one.

        ``gpu`` is utilisation (0 to 1) and memory in MB; ``take_values`` gives what the program
        reported since the last sample.
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
        return Sample(
            time=time.time(),
            cpu=round(cpu, 3) if cpu is not None else None,
            rss_mb=round(used.rss_bytes / _MB, 1),
            gpu=gpu[0] if gpu else None,
            gpu_memory_mb=gpu[1] if gpu else None,
            io_read_mb=round(io[0] / _MB, 2) if io else None,
            io_write_mb=round(io[1] / _MB, 2) if io else None,
            values=take_values(),
        )
