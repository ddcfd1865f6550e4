"""A job as people are given it who may only look: of ``[env]`` the names alone.

Values of ``[secrets]`` are in no job file. Not guaranteed: what a program prints, reports or is called is shown
as it is.
"""

from __future__ import annotations

from typing import Any

import msgspec

from howdah.spec.model import Job

HIDDEN = "(not shown)"


class ReadersJob:
    """A job whose file has no values of environment variables; the rest is as it is."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def job(self) -> Job:
        """The job file without values of environment variables."""
        return without_values(self._source.job())


def without_values(job: Job) -> Job:
    """The job file with the names of its environment variables alone."""

    def hidden(table: Any) -> Any:
        return msgspec.structs.replace(table, env=dict.fromkeys(table.env, HIDDEN))

    roles = {name: hidden(role) for name, role in job.roles.items()}
    preprocess = None if job.preprocess is None else hidden(job.preprocess)
    return msgspec.structs.replace(hidden(job), roles=roles, preprocess=preprocess)
