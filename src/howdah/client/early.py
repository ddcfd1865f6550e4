"""What can begin before a job is known. Imports little, so that it begins early."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.base import Submission


VARIABLE = "HOWDAH_BACKEND"
"""Environment variable: the backend of whoever does not say."""


def default_backend() -> str:
    """Where a job runs that nobody said it of: ``HOWDAH_BACKEND``, the site file's, this machine.

    Raises:
        JobFileError: the site file cannot be read.
    """
    import os

    if named := os.environ.get(VARIABLE):
        return named
    from howdah.spec import site

    return site.default_backend(os.environ) or "local"


def begin(backend: str | None = None) -> Submission:
    """Let the backend's processes or connections start up while the job is being loaded.

    Nothing has happened until `howdah.client.submit.submit` uses what this gives; ``close()`` takes
    it back.

    Raises:
        BadInput: there is no such backend.
        BackendError: it cannot be used.
    """
    from howdah.backends import registry

    try:
        return registry.submission(backend or default_backend())
    except Exception as error:
        from howdah.backends.base import NoSuchBackend
        from howdah.client.errors import BadInput

        if isinstance(error, NoSuchBackend):
            raise BadInput(str(error)) from error
        raise
