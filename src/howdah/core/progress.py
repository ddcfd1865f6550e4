"""Who is silent, and who makes no progress: pure trackers the coordinator feeds.

They hold no part of the job's state: after a take-over they start afresh, so nobody is called
silent or hung for the time in which no coordinator listened. What they find becomes an event.
"""

from __future__ import annotations

from howdah.core.messages import Task
from howdah.core.plan import Join, Plan, RolePlan
from howdah.core.restart import WORKING
from howdah.core.state import JobPhase, JobState, TaskState
from howdah.spec.model import Mode, Restart, Tracking


class Liveness:
    """Missed beats. An agent is silent when none came for ``limit_s`` seconds."""

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._last: dict[str, float] = {}

    def heartbeat(self, container_id: str, now: float) -> None:
        """Anything was heard of the container's agent."""
        self._last[container_id] = now

    def forget(self, container_id: str) -> None:
        """Its connection is closed or it is gone: silence means nothing any more."""
        self._last.pop(container_id, None)

    def due(self, now: float) -> list[tuple[str, float]]:
        """Containers that are silent, with the seconds; each is named once."""
        silent = [(c, now - last) for c, last in self._last.items() if now - last > self.limit_s]
        for container_id, _ in silent:
            del self._last[container_id]
        return silent


class HangWatch:
    """No progress within a role's hang limit.

    A synchronous gang progresses together: most of its ranks print nothing, so one rank's progress
    is everybody's, and only when all watched members are idle is it a hang. Tasks of mode each, and those
    that restart alone, or that have no peers and are never restarted, are watched alone. The clock of a
    gang starts when its last member has joined, that of a single task when it has.
    """

    def __init__(self, plan: Plan, now: float) -> None:
        self._plan = plan
        self._epoch = now
        self._progress: dict[tuple[str, int], float] = {}

    @property
    def needed(self) -> bool:
        """Whether any role has a hang limit."""
        return any(_watched(role) for role in self._plan.roles)

    def observe(self, task: Task, attempt: int, progress_at: float) -> None:
        """The attempt last showed progress at that time."""
        key = (str(task), attempt)
        if progress_at > self._progress.get(key, 0.0):
            self._progress[key] = progress_at

    def due(self, state: JobState, now: float) -> list[tuple[Task, int, float]]:
        """Attempts to be called hung: task, attempt, seconds without progress."""
        each = self._plan.mode is Mode.EACH
        # In mode each some run while others still wait for their containers.
        if state.phase not in (WORKING if each else (JobPhase.RUNNING,)) or state.hang is not None:
            return []
        found: list[tuple[Task, int, float]] = []
        gang: list[tuple[float, Task, int, float]] = []
        for role in self._plan.roles:
            if not _watched(role) or role.stage != state.stage:
                continue
            assert role.hang_s is not None
            for index in range(role.maximum):
                data = state.tasks[f"{role.name}:{index}"]
                if data.state is not TaskState.RUNNING or data.exit is not None:
                    continue
                if data.joined_at is None:
                    continue  # until it has met its peers, its start-up time-out is its limit
                idle = now - self._last(data.task, data.attempt, data.joined_at)
                if each or _alone(role):
                    if idle > role.hang_s:
                        found.append((data.task, data.attempt, idle))
                else:
                    idle = min(idle, now - state.since)
                    gang.append((idle - role.hang_s, data.task, data.attempt, idle))
        if gang and min(gang)[0] > 0:
            _, task, attempt, idle = max(gang, key=lambda entry: entry[0])
            found.append((task, attempt, idle))
        return found

    def _last(self, task: Task, attempt: int, joined_at: float) -> float:
        seen = self._progress.get((str(task), attempt), 0.0)
        return max(seen, joined_at, self._epoch)


def _alone(role: RolePlan) -> bool:
    without_peers = role.join is Join.NOW and role.restart is Restart.NEVER
    return role.restart is Restart.TASK or without_peers


def _watched(role: RolePlan) -> bool:
    return role.watched and role.hang_s is not None and role.tracking is not Tracking.SIDECAR
