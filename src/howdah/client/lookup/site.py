"""Where a job is, and whether it has a coordinator, as its backend tells."""

from __future__ import annotations

from howdah.backends import registry
from howdah.backends.base import Running, Site
from howdah.storage.copies.local_copy import SCHEME
from howdah.storage.jobdir import JobDirectory


def site_of(directory: JobDirectory) -> Site:
    """The job of that directory as its backend finds it.

    Raises:
        BackendError: its backend is none that is installed here.
        StorageError: the directory's documents are missing or damaged.
    """
    meta = directory.meta()
    if meta.url is not None and meta.url.startswith(SCHEME):
        from howdah.backends.copied_site import CopiedSite

        return CopiedSite(directory)
    return registry.site(meta.backend, directory)


def running(directory: JobDirectory) -> Running:
    """Whether the job has a coordinator. May wait for a network: see `howdah.backends.base.Site.at_hand`."""
    return site_of(directory).running()


def programs_left(site: Site, job_id: str, *, thorough: bool = False) -> str:
    """Why nothing is done to a job that nobody runs, and what to do, if something of it still runs; else empty."""
    left = site.left_running(thorough=thorough) if site.final() is None else ""
    return left and (
        f"nobody runs it any more, but {left}. Then try again, or go on with it: howdah attach --revive {job_id}"
    )
