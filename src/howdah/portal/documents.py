"""Answers of the portal's own API."""

from __future__ import annotations

import msgspec

from howdah.portal.comparison import Difference
from howdah.portal.rows import Row


class SinceBefore(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between the job files of a run and of the one before."""

    job_id: str | None = None
    """The run before of that name, by that user; null without one."""
    differences: tuple[Difference, ...] = ()
    """Each with the value before and the value now."""
    same: int = 0
    """Keys that are the same."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that match, a page of them."""

    jobs: tuple[Row, ...]
    more: bool
    """There are others behind these: ask with the next ``page``."""
    total: int | None
    """How many match in all; null where they are more than are counted."""
    to_come: int | None
    """Jobs that were found and are still to be read; null while they are being looked for. The list is
    whole at 0."""
