"""Watching over the living: missed beats, hangs, and measurements of the present."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from howdah.coordinator.clock import Clock
from howdah.coordinator.live import LiveBoard
from howdah.coordinator.metrics import Metrics
from howdah.core.messages import AgentSilent, AnyEvent, Task, TaskHung
from howdah.core.plan import Plan
from howdah.core.progress import HangWatch, Liveness
from howdah.core.state import JobState
from howdah.wire.messages import Heartbeat

TICK_S = 0.5
MISSED = 15
"""Beats an agent may miss before it counts as silent. A host that is only busy (twenty programs
importing TensorFlow on two cores) starves an agent for seconds; a dead one is noticed sooner, by
its closed connection."""
STALL_S = 2.0
"""If a tick comes this much late, it was this process that stood still, not the agents."""


class Vitals:
    """Takes beats in; emits `AgentSilent` and `TaskHung`."""

    def __init__(
        self,
        plan: Plan,
        state: Callable[[], JobState],
        emit: Callable[[AnyEvent], None],
        live: LiveBoard,
        metrics: Metrics,
        clock: Clock,
        *,
        beat_s: float,
        silent: Callable[[str], None],
    ) -> None:
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
        self._liveness.beat(container_id, self._clock.now())

    def disconnected(self, container_id: str) -> None:
        """Its connection ended, which the machine is told otherwise."""
        self._connected.discard(container_id)
        self._liveness.forget(container_id)

    def beat(self, container_id: str, task: Task, beat: Heartbeat, now: float) -> None:
        """The hot path: a thousand of these a second."""
        self._liveness.beat(container_id, now)
        if not beat.attempt:
            return
        self._live.beat(task, beat, now)
        if beat.sample is not None:
            self._metrics.take(task, beat.attempt, beat.sample)
        if self._watch_hangs and beat.progress_s is not None:
            self._hangs.observe(task, beat.attempt, now - beat.progress_s)

    def tick(self, now: float) -> None:
        """Look for the silent and the stuck."""
        late_s = now - self._last_tick - TICK_S
        self._last_tick = now
        if late_s > STALL_S:
            for container_id in self._connected:
                self._liveness.beat(container_id, now)
        for container_id, silent_s in self._liveness.due(now):
            self._silent(container_id)
            self._emit(AgentSilent(container_id=container_id, silent_s=silent_s))
        if self._watch_hangs:
            for task, attempt, idle_s in self._hangs.due(self._state(), now):
                self._emit(TaskHung(task=task, attempt=attempt, idle_s=idle_s))

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            self.tick(self._clock.now())
