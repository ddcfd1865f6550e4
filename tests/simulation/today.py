"""What differs between the core of today and the one that is being written. To be deleted with it."""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from howdah.core import invariants, messages
from howdah.core.machine import Machine
from howdah.core.messages import AnyCommand, AnyEvent
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import JobPhase

_CAUSE = "cause" in inspect.signature(Machine.handle).parameters
_NOW = "now" in inspect.signature(invariants.check).parameters
WINDOW = getattr(JobPhase, "FAILURE_WINDOW", None) or JobPhase.SETTLING  # type: ignore[attr-defined]


def ended(*, proven: bool, **fields: Any) -> AnyEvent:
    if "proven" in messages.ContainerEnded.__struct_fields__:
        fields["proven"] = proven
    return messages.ContainerEnded(**fields)


_FORMER = {"failure_window_s": "settle_s", "retry_limit": "uncharged_limit"}


def plan(**fields: Any) -> Plan:
    known = Plan.__struct_fields__
    named = {k if k in known else _FORMER.get(k, k): v for k, v in fields.items()}
    return Plan(**{k: v for k, v in named.items() if k in known})


def role(**fields: Any) -> RolePlan:
    return RolePlan(**{k: v for k, v in fields.items() if k in RolePlan.__struct_fields__})


def due(machine: Machine) -> float | None:
    next_due: Any = machine.next_due()
    return next_due[0] if isinstance(next_due, tuple) else next_due


def time_passed(machine: Machine) -> AnyEvent:
    next_due: Any = machine.next_due()
    if isinstance(next_due, tuple):
        return messages.TimerDue(timer=next_due[1])  # type: ignore[attr-defined]
    return messages.TimePassed()


def handle(machine: Machine, event: AnyEvent, now: float, cause: str) -> list[AnyCommand]:
    if not _CAUSE:
        return machine.handle(event, now)
    commands = machine.handle(event, now, cause)  # type: ignore[call-arg]
    for command in commands:
        if command.cause != cause:
            raise AssertionError(f"{command} does not name its cause, {cause}")
    return commands


def check(machine: Machine, now: float) -> None:
    if _NOW:
        invariants.check(machine.state, now)  # type: ignore[call-arg]
    else:
        invariants.check(machine.state)
    if (settled := getattr(invariants, "settled", None)) is not None:
        settled(machine, now)


def same(one: Machine, other: Machine) -> list[str]:
    """Fields in which two machines' states differ."""
    a, b = msgspec.to_builtins(one.state), msgspec.to_builtins(other.state)
    return [key for key in a if a[key] != b[key]]


def moves(data: Any) -> list[Any]:
    return data.moves if hasattr(data, "moves") else data.story


def checkpoint(**fields: Any) -> AnyEvent:
    return messages.CheckpointSaved(**fields)


def unsaved(state: Any) -> list[str]:
    return list(getattr(state, "unsaved", ()))
