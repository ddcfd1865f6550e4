"""What must hold after every step, whatever happened. One function; see `check`."""

from __future__ import annotations

from howdah.core.plan import Completion
from howdah.core.state import (
    LIVE,
    UP,
    JobPhase,
    JobState,
    Outcome,
    TaskState,
)
from howdah.spec.model import Mode, Restart, Tracking

S = TaskState


class InvariantBroken(AssertionError):
    """A defect of the machine."""


def check(state: JobState) -> None:
    """Hold the state against every invariant.

    Raises:
        InvariantBroken: names the invariant and the values.
    """
    if state.plan is None:
        return
    _containers(state)
    _requests(state)
    _generations(state)
    _counts(state)
    _budgets(state)
    _outcome(state)


def _must(holds: bool, text: str) -> None:
    if not holds:
        raise InvariantBroken(text)


def _containers(state: JobState) -> None:
    """A task and its container name each other; one task a container; an attempt has a container."""
    for name, data in state.tasks.items():
        if data.state in LIVE or data.state in (S.LAUNCHING, S.IDLE):
            _must(data.container_id is not None, f"{name} is {data.state.value} in no container")
        if data.state is S.WAITING:
            _must(data.container_id is None, f"{name} waits, but has {data.container_id}")
        if data.container_id is not None:
            container = state.containers.get(data.container_id)
            _must(container is not None, f"{name} is in {data.container_id}, which is gone")
            assert container is not None
            _must(
                container.task == data.task,
                f"{name} is in {data.container_id}, which is {container.task}'s",
            )
    for container in state.containers.values():
        if container.task is not None:
            data = state.tasks[str(container.task)]
            _must(
                data.container_id == container.container_id,
                f"{container.container_id} is {data.task}'s, which is in {data.container_id}",
            )


def _requests(state: JobState) -> None:
    """Every outstanding request is a waiting task's, and the other way round."""
    for request_id, task in state.requests.items():
        data = state.tasks[str(task)]
        _must(
            data.request_id == request_id and data.state is S.WAITING,
            f"request {request_id} is {task}'s, which is {data.state.value} with {data.request_id}",
        )
    for name, data in state.tasks.items():
        if data.request_id is not None:
            _must(data.request_id in state.requests, f"{name}'s request {data.request_id} is gone")


def _generations(state: JobState) -> None:
    """No task of two generations runs at once; a breaking gang has nobody running on."""
    plan = state.job
    for role in plan.roles:
        if role.stage != state.stage or role.tracking is Tracking.SIDECAR:
            continue
        for index in range(role.maximum):
            data = state.tasks[f"{role.name}:{index}"]
            if data.state in UP and plan.mode is Mode.GANG:
                _must(
                    data.generation == state.generation,
                    f"{data.task} runs in generation {data.generation} of {state.generation}",
                )
            if state.phase in (JobPhase.SETTLING, JobPhase.RESTARTING):
                _must(
                    data.state not in LIVE or data.state is S.STOPPING,
                    f"{data.task} is {data.state.value} while the job is {state.phase.value}",
                )


def _counts(state: JobState) -> None:
    """The running counts are those of the tasks."""
    fresh: dict[tuple[str, str], int] = {}
    for data in state.tasks.values():
        key = (data.task.role, data.state.value)
        fresh[key] = fresh.get(key, 0) + 1
    for role, counts in state.counts.items():
        for value, number in counts.items():
            _must(
                fresh.get((role, value), 0) == number,
                f"{number} tasks of {role} counted as {value}, {fresh.get((role, value), 0)} are",
            )
    awaited = sum(data.awaited for data in state.tasks.values())
    _must(state.missing == awaited, f"{state.missing} members counted missing, {awaited} are")


def _budgets(state: JobState) -> None:
    """Nobody lives more often than allowed."""
    plan = state.job
    allowed = max((role.attempts for role in plan.roles), default=1)
    _must(state.gang_charged <= allowed, f"{state.gang_charged} counted of {allowed} attempts")
    counted = sum(f.counted for f in state.failures)
    spent = state.gang_charged + sum(data.counted for data in state.tasks.values())
    _must(counted == spent, f"{counted} failures are counted, {spent} attempts were spent")
    for data in state.tasks.values():
        role = plan.role(data.task.role)
        _must(
            data.counted <= role.attempts,
            f"{data.task} spent {data.counted} of {role.attempts} attempts",
        )
        if role.restart is Restart.NEVER and role.tracking is not Tracking.SIDECAR:
            own = [f for f in state.failures if f.report.task == data.task]
            _must(len(own) <= 1, f"{data.task} failed {len(own)} times, but is never restarted")


def _outcome(state: JobState) -> None:
    """An outcome is decided once; success means the tracked tasks succeeded; nothing is kept."""
    deciding = state.phase in (JobPhase.FINISHING, JobPhase.FINISHED)
    _must(
        (state.outcome is not None) == deciding,
        f"outcome {state.outcome} while {state.phase.value}",
    )
    if state.phase is JobPhase.FINISHED:
        _must(not state.containers, f"containers kept: {sorted(state.containers)}")
        _must(not state.requests, f"requests kept: {sorted(state.requests)}")
        _must(not state.timers, f"timers kept: {sorted(state.timers)}")
    if state.outcome is not Outcome.SUCCEEDED:
        return
    plan = state.job
    chief = next((role for role in plan.roles if role.chief), None)
    for role in plan.roles:
        if role.tracking is not Tracking.TRACKED or role.name in state.released:
            continue
        if plan.completion is Completion.CHIEF and chief is not None:
            if role is chief:
                first = state.tasks[f"{role.name}:0"]
                _must(first.state is S.SUCCEEDED, f"succeeded, but {first.task} did not")
            continue
        tasks = [state.tasks[f"{role.name}:{index}"] for index in range(role.maximum)]
        succeeded = sum(data.state is S.SUCCEEDED for data in tasks)
        _must(
            succeeded >= role.minimum,
            f"succeeded with {succeeded} of at least {role.minimum} tasks of {role.name}",
        )
        for data in tasks:
            _must(
                data.state is S.SUCCEEDED or not data.member,
                f"succeeded, but {data.task} is {data.state.value}",
            )
