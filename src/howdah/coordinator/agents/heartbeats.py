"""Heartbeats: missed ones, hangs, and the measurements they carry, in memory and in the job
directory."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from howdah.coordinator.agents.limits import LINE_LENGTH, few
from howdah.coordinator.driver import Clock
from howdah.coordinator.status import LiveState
from howdah.core.messages import AgentSilent, AnyEvent, Task, TaskHung
from howdah.core.plan import Plan
from howdah.core.progress import HangWatch, Liveness
from howdah.core.state import JobState
from howdah.storage import metrics as stored_metrics
from howdah.storage.metrics import TaskSample
from howdah.wire.messages import Heartbeat, Point, Sample

log: logging.Logger = logging.getLogger(__name__)

BEAT_S = 1.0
"""Between two heartbeats of an agent."""
TICK_S = 0.5
MISSED = 15
"""Heartbeats an agent may miss before it counts as silent. A host that is only busy (twenty programs
importing TensorFlow on two cores) starves an agent for seconds; a dead one is noticed sooner, by
its closed connection."""
STALL_S = 2.0
"""If a tick comes this much late, it was this process that stood still, not the agents."""

RATE = 100.0
"""Samples kept a second, all tasks together (about 10 KB/s of the job directory at most)."""
POINTS = 10_000
"""Reports of programs that are stored a second, all tasks together (some 1 MB)."""
HELD = 30_000
"""Samples held in memory, all tasks together (packed: about 130 bytes each)."""
HELD_EACH = 1200
"""Samples held of one task at most: twenty minutes of a small job."""
STORE_S = 5.0
REMEMBERED_S = 1200.0
"""A new coordinator shows measurements this old."""


class HeartbeatMonitor:
    """Takes heartbeats in; emits `AgentSilent` and `TaskHung`."""

    def __init__(
        self,
        plan: Plan,
        state: Callable[[], JobState],
        emit: Callable[[AnyEvent], None],
        live: LiveState,
        metrics: Metrics,
        clock: Clock,
        *,
        silent: Callable[[str], None],
        beat_s: float = BEAT_S,
    ) -> None:
        """``silent`` is told the container of an agent that has fallen silent."""
        self._state = state
        self._emit = emit
        self._live = live
        self._metrics = metrics
        self._clock = clock
        self._silent = silent
        self._liveness = Liveness(MISSED * beat_s)
        self._connected: set[str] = set()
        now = clock.now()
        self._hangs = HangWatch(plan, now)
        self._watch_hangs = self._hangs.needed
        self._last_tick = now

    def connected(self, container_id: str) -> None:
        """An agent is there: from now on its silence counts."""
        self._connected.add(container_id)
        self._liveness.heartbeat(container_id, self._clock.now())

    def disconnected(self, container_id: str) -> None:
        """Its connection ended, which the machine is told by another event."""
        self._connected.discard(container_id)
        self._liveness.forget(container_id)

    def heartbeat(self, container_id: str, task: Task, heartbeat: Heartbeat) -> None:
        """Take a heartbeat in. The hot path: a thousand of these a second."""
        now = self._clock.now()
        self._liveness.heartbeat(container_id, now)
        if not heartbeat.attempt:
            return
        sample = heartbeat.sample
        if sample is not None:
            # On the job's clock, as all that it is shown beside: hosts' own clocks may be apart, or be set.
            sample = msgspec.structs.replace(sample, time=now, values=few(sample.values))
            heartbeat = msgspec.structs.replace(heartbeat, sample=sample)
        if heartbeat.last_line is not None and len(heartbeat.last_line) > LINE_LENGTH:
            heartbeat = msgspec.structs.replace(
                heartbeat, last_line=heartbeat.last_line[:LINE_LENGTH]
            )
        self._live.heartbeat(task, heartbeat, now)
        if heartbeat.points:
            self._metrics.take_points(task, heartbeat.attempt, heartbeat.points, now)
        if sample is not None:
            self._metrics.take(task, heartbeat.attempt, sample)
        if self._watch_hangs and heartbeat.progress_s is not None:
            self._hangs.observe(task, heartbeat.attempt, now - heartbeat.progress_s)

    def tick(self, now: float) -> None:
        """Look for the silent and the stuck."""
        late_s = now - self._last_tick - TICK_S
        self._last_tick = now
        if late_s > STALL_S:
            for container_id in self._connected:
                self._liveness.heartbeat(container_id, now)
        for container_id, silent_s in self._liveness.due(now):
            self._silent(container_id)
            self._emit(AgentSilent(container_id=container_id, silent_s=silent_s))
        if self._watch_hangs:
            for task, attempt, idle_s in self._hangs.due(self._state(), now):
                self._emit(TaskHung(task=task, attempt=attempt, idle_s=idle_s))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.tick(self._clock.now())


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Sample).decode


class _Series:
    __slots__ = ("attempt", "early", "next", "reports", "ring")

    def __init__(self, held: int) -> None:
        self.attempt = 0
        self.next = 0.0
        self.ring: deque[bytes] = deque(maxlen=held)
        self.reports = False
        """Whether its agent sends each report of the program."""
        self.early: Sample | None = None
        """The newest one that came too soon to be kept, with the values of all that did."""


class Metrics:
    """All tasks' measurements over time: the newest in memory, all that is kept in the job directory.

    A job of 1,000 tasks sends 1,000 samples a second, more than anybody reads or wants to store. So
    each task keeps one sample an interval that grows with the job, and what a program reported is
    merged meanwhile, the newest value of a name winning.
    """

    def __init__(self, tasks: int, incarnation: int = 1) -> None:
        self._incarnation = incarnation
        self._interval_s = tasks / RATE
        self._most_points = max(1, POINTS // max(tasks, 1))
        self._held = max(30, min(HELD_EACH, HELD // max(tasks, 1)))
        self._series: dict[Task, _Series] = {}
        self._unstored: list[TaskSample] = []
        self._newest = 0.0

    def take(self, task: Task, attempt: int, sample: Sample) -> None:
        series = self._series.get(task)
        if series is None:
            series = self._series[task] = _Series(self._held)
        if attempt > series.attempt:
            self._keep_early(task, series)
            series.attempt = attempt
        elif attempt < series.attempt:
            return
        self._newest = max(self._newest, sample.time)
        early = sample.time < series.next
        if early and not sample.values:
            return
        if series.early is not None:
            values = few({**series.early.values, **sample.values})
            sample = msgspec.structs.replace(sample, values=values)
        if early:
            series.early = sample
        else:
            self._keep(task, series, sample)

    def take_points(self, task: Task, attempt: int, points: Sequence[Point], now: float) -> None:
        """Store each report of a program; of more than `POINTS` a second, evenly as many. ``now`` is when they
        came, by the job's clock."""
        series = self._series.setdefault(task, _Series(self._held))
        if attempt < series.attempt:
            return
        series.reports = True
        ahead_s = points[-1].time - now  # the host's clock
        for point in points[:: -(-len(points) // self._most_points)]:
            sample = Sample(time=point.time - ahead_s, values=few(point.values), step=point.step)
            self._unstored.append(TaskSample(task=task, attempt=attempt, sample=sample))

    def _keep(self, task: Task, series: _Series, sample: Sample) -> None:
        series.early = None
        series.next = sample.time + self._interval_s
        # Packed, a held sample is one object that the garbage collector leaves alone.
        series.ring.append(_encode(sample))
        if series.reports:  # they are stored one by one
            sample = msgspec.structs.replace(sample, values={})
            if sample.rss_mb is None:
                return
        self._unstored.append(TaskSample(task=task, attempt=series.attempt, sample=sample))

    def _keep_early(self, task: Task, series: _Series) -> None:
        if series.early is not None:
            self._keep(task, series, series.early)

    def remember(self, stored: Iterable[TaskSample]) -> None:
        """Put what former coordinators stored before what has come since."""
        found: dict[Task, list[bytes]] = {}
        for item in stored:
            found.setdefault(item.task, []).append(_encode(item.sample))
        for task, packed in found.items():
            series = self._series.setdefault(task, _Series(self._held))
            series.ring = deque([*packed, *series.ring], maxlen=self._held)

    def unstored(self, *, last: bool = False) -> list[TaskSample]:
        """What came since the last call and is to be stored; ``last``: no more will come."""
        for task, series in self._series.items():
            # A program that has ended sends no other sample that would take these values along.
            if last or self._newest >= series.next:
                self._keep_early(task, series)
        kept, self._unstored = self._unstored, []
        return kept

    def since(self, task: Task, time: float) -> list[Sample]:
        """Held samples of the task later than ``time``, oldest first."""
        series = self._series.get(task)
        if series is None:
            return []
        return [sample for packed in series.ring if (sample := _decode(packed)).time > time]

    async def keep_stored(self, folder: Path) -> None:
        """Store what comes, many samples at a time, until cancelled."""
        while True:
            await asyncio.sleep(STORE_S)
            await self.store(folder)

    async def store(self, folder: Path, *, last: bool = False) -> None:
        """Store what has not been stored; ``last``: no more will come. Without room for it the job goes
        on."""
        if samples := self.unstored(last=last):
            try:
                await asyncio.to_thread(
                    stored_metrics.append, folder, samples, incarnation=self._incarnation
                )
            except OSError as error:
                log.warning("%d measurements are lost: %s", len(samples), error)

    async def remember_stored(self, folder: Path, since: float) -> None:
        """Show what former coordinators stored since then."""

        def read() -> list[TaskSample]:
            return list(stored_metrics.read(folder, since=since))

        self.remember(await asyncio.to_thread(read))
