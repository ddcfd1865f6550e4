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
