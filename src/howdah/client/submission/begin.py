"""What can begin before a job is known. Imports little, so that it begins early."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from howdah.backends.base import Submission


VARIABLE = "HOWDAH_BACKEND"
"""Environment variable: the default backend."""


def default_backend() -> str:
    """The backend of a job that names none: ``HOWDAH_BACKEND``, else the site file's, else this machine.

    Raises:
        JobFileError: the site file cannot be read, or is wrong: all its problems.
    """
    import os

    return os.environ.get(VARIABLE) or backend_of_site() or "local"


def backend_of_site() -> str | None:
    """The backend that the site file names, if there is one and it does.

    Raises:
        JobFileError: the site file cannot be read, or is wrong: all its problems.
    """
    import os

    from howdah.backends import registry
    from howdah.spec import site

    path = site.find(os.environ)
    return site.read(path, os.environ, registry.unknown).table.get(site.BACKEND) if path else None


def begin(backend: str | None = None) -> Submission:
    """Let the backend's processes or connections start up while the job is being loaded.

    Nothing has happened until `howdah.client.submission.submit.submit` uses what this gives; ``close()`` takes
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
