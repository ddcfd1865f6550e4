"""What a look at a machine or a cluster finds: for ``howdah doctor``."""

from __future__ import annotations

import enum

import msgspec


class Health(enum.Enum):
    """How a finding is meant."""

    FINE = "fine"
    WARNING = "warning"
    """Jobs run, but something is missing or will trouble some."""
    PROBLEM = "problem"
    """Jobs cannot run there."""


class DoctorFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    what: str
    health: Health
    text: str
    hint: str | None = None
    """What to do about it."""


def fine(what: str, text: str) -> DoctorFinding:
    """It is as it should be."""
    return DoctorFinding(what=what, health=Health.FINE, text=text)


def warning(what: str, text: str, hint: str | None = None) -> DoctorFinding:
    """It will trouble some jobs."""
    return DoctorFinding(what=what, health=Health.WARNING, text=text, hint=hint)


def problem(what: str, text: str, hint: str | None = None) -> DoctorFinding:
    """Jobs cannot run because of it."""
    return DoctorFinding(what=what, health=Health.PROBLEM, text=text, hint=hint)
