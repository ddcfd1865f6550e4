"""What must hold after every step, whatever happened: `check`, and that nothing was missed: `settled`."""

from __future__ import annotations

import msgspec

from howdah.core.event_context import GANG, EventContext, StateIndex
from howdah.core.machine import Machine
from howdah.core.plan import Completion
from howdah.core.reconcile import reconcile
from howdah.core.state import (
    LIVE,
    UP,
    JobPhase,
    JobState,
    Outcome,
    TaskData,
    TaskState,
)
from howdah.spec.model import Mode, Restart, Tracking

S = TaskState


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(JobState).decode


class InvariantBroken(AssertionError):
    """A defect of the machine."""


def check(state: JobState, now: float) -> None:
    """Hold the state against every invariant.

    Raises:
        InvariantBroken: names the invariant and the values.
    """
    if state.plan is None:
        return
    _containers(state)
    _requests(state)
    _generations(state)
    _moving(state, now)
    _budgets(state)
    _outcome(state)


def settled(machine: Machine, now: float) -> None:
    """Nothing was missed: the index is what the state says, and looking at everything once more finds
    nothing to do.

    Raises:
        InvariantBroken: names what was missed.
    """
    if machine.state.plan is None:
        return
    _check_index(machine)
    state = _decode(_encode(machine.state))
    context = EventContext(state, StateIndex(state), now, "everything once more")
    reconcile(context, everything=True)
    _must(not context.commands, f"missed: {context.commands}")
    _must(state == machine.state, f"missed: {_differences(machine.state, state)}")


def _check_index(machine: Machine) -> None:
    """Hold the machine's index against its state."""
    fresh = StateIndex(machine.state)
    for name in ("by_state", "unrequested", "awaited", "joined", "given_up"):
        kept, made = getattr(machine._index, name), getattr(fresh, name)
        if name == "by_state":
            kept = {r: {s: n for s, n in by.items() if n} for r, by in kept.items()}
        if name == "unrequested":  # without those that are not wanted any more
            made = {
                r: {i for i in n if not machine.state.tasks[f"{r}:{i}"].retired}
                for r, n in made.items()
            }
        _must(kept == made, f"{name}: {kept} kept, {made} are")


def _differences(one: JobState, other: JobState) -> dict[str, object]:
    return {
        name: (getattr(one, name), getattr(other, name))
        for name in one.__struct_fields__
        if getattr(one, name) != getattr(other, name)
    }


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
            if state.phase in (JobPhase.FAILURE_WINDOW, JobPhase.RESTARTING):
                _must(
                    data.state not in LIVE or data.state is S.STOPPING,
                    f"{data.task} is {data.state.value} while the job is {state.phase.value}",
                )


def _moving(state: JobState, now: float) -> None:
    """Each unit is where it should be, or has an outstanding request, a live attempt, or a time that
    will move it."""
    plan = state.job
    if state.phase in (JobPhase.SUBMITTED, JobPhase.FINISHED):
        return
    for role in plan.roles:
        if role.stage > state.stage:
            continue
        gang = role.stage == state.stage and role.tracking is not Tracking.SIDECAR
        if role.stage < state.stage and role.tracking is Tracking.TRACKED:
            continue
        for index in range(role.maximum):
            data = state.tasks[f"{role.name}:{index}"]
            if data.retired or data.state in LIVE or data.state is S.SUCCEEDED:
                continue
            if role.name in state.released or state.phase is JobPhase.FINISHING:
                continue
            _must(
                _will_move(state, data, gang=gang, now=now),
                f"{data.task} is {data.state.value} in phase {state.phase.value}, and nothing will "
                "move it",
            )
    if state.phase is JobPhase.FINISHING:
        live = [d for d in state.tasks.values() if d.state in LIVE]
        stuck = [str(d.task) for d in live if d.deadline is None]
        _must(not stuck, f"the job ends, and nothing limits {stuck}")
        if not live:
            kept = [c.container_id for c in state.containers.values() if c.deadline is None]
            _must(not kept, f"the job ends, and nothing limits {kept}")


def _will_move(state: JobState, data: TaskData, *, gang: bool, now: float) -> bool:
    """Whether a task that does not run will, without an event that nothing makes come."""
    if data.request_id is not None or data.state is S.LAUNCHING:
        return True
    own = state.units.get(str(data.task))
    units = [unit for unit in (own, state.units[GANG] if gang else None) if unit is not None]
    times = [t for u in units for t in (u.window_until, u.explain_until, u.retry_at)]
    if any(time is not None and time > now for time in times):
        return True
    mine = [c for c in state.containers.values() if c.task is None and c.former is not None]
    if any(gang or c.former == data.task for c in mine):
        return True  # a container that is given up: its end, its silence or its lease comes
    if not gang:
        return False
    if state.phase is JobPhase.FAILURE_WINDOW:
        return any(other.state in LIVE for other in state.tasks.values())
    # Idle, or over: the rest of its gang is awaited, and moves.
    return (
        state.phase in (JobPhase.ALLOCATING, JobPhase.STARTING, JobPhase.RUNNING)
        and any(
            other.request_id is not None or other.state in LIVE or other.state is S.LAUNCHING
            for other in state.tasks.values()
        )
    ) or any(
        time is not None and time > now
        for time in (state.hold_until, state.elastic_until, state.growth and state.growth.at)
    )


def _budgets(state: JobState) -> None:
    """Nothing lives more often than allowed."""
    plan = state.job
    allowed = max((role.attempts for role in plan.roles), default=1)
    for unit in state.units.values():
        # Beyond the budget, an elastic gang goes on for as long as it can do with fewer.
        spare = sum(data.retired for data in state.tasks.values()) if unit.name == GANG else 0
        _must(
            unit.counted <= allowed + spare,
            f"{unit.counted} failures of {unit.name} counted, of {allowed} attempts",
        )
    counted = sum(f.counted for f in state.failures)
    spent = sum(unit.counted for unit in state.units.values())
    _must(counted == spent, f"{counted} failures count, {spent} were counted")
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
        if role.tolerated_from is not None:
            succeeded += sum(data.retired for data in tasks[role.tolerated_from :])
        _must(
            succeeded >= role.minimum,
            f"succeeded with {succeeded} of at least {role.minimum} tasks of {role.name}",
        )
        for data in tasks:
            _must(
                data.state is S.SUCCEEDED or data.retired or not data.member,
                f"succeeded, but {data.task} is {data.state.value}",
            )
