"""All that a job ships to a cluster, but for its job file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from howdah.packing.archives import Archive, Progress, quiet
from howdah.packing.files import Extra, files
from howdah.packing.python import runtime
from howdah.packing.python.environment import environment
from howdah.packing.source import source
from howdah.spec.model import Job


class JobArchives(msgspec.Struct, frozen=True, kw_only=True):
    """A job's archives, in the local cache."""

    runtime: tuple[Archive, ...]
    """Howdah's own: the interpreter with its packages unless the nodes have one, and Howdah's code."""
    environment: Archive | None
    """The programs' Python; None if they use one of the nodes'."""
    source: Archive | None
    files: dict[str, tuple[Extra, ...]]
    """By role; ``""`` for all."""

    def archives(self) -> Iterator[Archive]:
        """All of them."""
        yield from self.runtime
        if self.environment is not None:
            yield self.environment
        if self.source is not None:
            yield self.source
        for extras in self.files.values():
            yield from (extra.archive for extra in extras)


def pack(
    job: Job,
    folder: Path,
    source_folder: Path | None,
    cache: Path,
    progress: Progress = quiet,
    *,
    fresh: bool = False,
) -> JobArchives:
    """Pack what is not in the cache yet.

    ``folder`` is the job file's, which places in it are relative to. ``fresh`` builds the environment
    again, and fetches again what lies at URLs.

    Raises:
        PackingError: what is wrong, and what to do.
    """
    extras = {
        role: tuple(files(lines, folder, cache, progress, fresh=fresh))
        for role, lines in job.files_by_role.items()
    }
    base = runtime.of_job(job, folder, cache, progress)
    own = runtime.own_code(cache, progress)
    return JobArchives(
        source=source(source_folder, cache, progress, ignore=job.ignore)
        if source_folder is not None
        else None,
        files=extras,
        environment=environment(job, folder, cache, progress, fresh=fresh),
        runtime=(own,) if base is None else (base, own),
    )
