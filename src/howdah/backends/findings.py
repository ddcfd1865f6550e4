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


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    what: str
    health: Health
    text: str
    hint: str | None = None
    """What to do about it."""


def fine(what: str, text: str) -> Finding:
    """It is as it should be."""
    return Finding(what=what, health=Health.FINE, text=text)


def warning(what: str, text: str, hint: str | None = None) -> Finding:
    """It will trouble some jobs."""
    return Finding(what=what, health=Health.WARNING, text=text, hint=hint)


def problem(what: str, text: str, hint: str | None = None) -> Finding:
    """Jobs cannot run because of it."""
    return Finding(what=what, health=Health.PROBLEM, text=text, hint=hint)
