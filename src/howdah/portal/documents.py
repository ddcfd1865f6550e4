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


class NotebookRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of ``howdah notebook``; those that are null are as there without them."""

    name: str | None = None
    backend: str | None = None
    source: str | None = None
    """Folder to work in; by default the one that ``howdah ui`` was started in."""
    memory: str | None = None
    cores: int | None = None
    gpus: int | None = None
    queue: str | None = None
    label: str | None = None
    python: str | None = None
    requirements: str | None = None
    venv: str | None = None
    timeout: str | None = None
    idle_timeout: str | None = None


class RerunRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a job is run again."""

    resume: bool = False
    """Start from its newest checkpoint."""
    backend: str | None = None
    """By default the one where it ran before."""


class StartedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was started; its page is at ``jobs/<job id>/``."""

    job_id: str
    directory: str
    notes: tuple[str, ...] = ()
    """What the command said of it: a key that has no effect, say."""
