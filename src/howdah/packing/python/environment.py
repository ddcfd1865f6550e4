"""The environment of the user's programs as an archive: what a job file's ``[environment]`` names.

All ways end in the same layout: an interpreter that runs wherever it is unpacked, with the packages
in its own ``site-packages`` and their commands in ``bin``. No virtual environment is left of it, so
nothing has to be linked anew on a node, and the node needs no Python. Conda environments and ready
archives are taken as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from howdah.packing import files
from howdah.packing.archives import Archive, ArchiveKind, PackingError, Progress, quiet
from howdah.packing.cache import Cache, tar_of
from howdah.packing.python import prebuilt_archives, uv
from howdah.spec.model import Job


def environment(
    job: Job, folder: Path, cache: Path, progress: Progress = quiet, *, fresh: bool = False
) -> Archive | None:
    """The job's environment; None if its programs use a Python of the nodes.

    Paths are relative to ``folder``, the job file's. ``fresh`` builds anew what is built from
    requirements (those that name no versions may have newer ones), and fetches an archive again.

    Raises:
        PackingError: what is wrong, and what to do.
    """
    wanted = job.environment
    for key, make in _KINDS.items():
        if (place := getattr(wanted, key)) is not None:
            return make(place, folder, cache, progress, fresh)
    return None


def _requirements(
    place: str, folder: Path, cache: Path, progress: Progress, fresh: bool
) -> Archive:
    path = files.path_of(place, folder)
    if not path.is_file():
        raise PackingError(f"[environment] requirements: there is no file {path}")
    return uv.packed(uv.of_requirements(path), cache, progress, fresh=fresh)


def _project(place: str, folder: Path, cache: Path, progress: Progress, fresh: bool) -> Archive:
    path = files.path_of(place, folder)
    if not (path / "pyproject.toml").is_file():
        raise PackingError(f"[environment] project: there is no pyproject.toml in {path}")
    return uv.packed(uv.of_project(path), cache, progress, fresh=fresh)


def _venv(place: str, folder: Path, cache: Path, progress: Progress, _fresh: bool) -> Archive:
    from howdah.packing.python import conda, venv

    path = files.path_of(place, folder)
    if not path.is_dir():
        raise PackingError(f"[environment] venv: there is no folder {path}")
    if (path / "conda-meta").is_dir():
        look = conda.look
    elif (path / "pyvenv.cfg").is_file():
        look = venv.look
    else:
        raise PackingError(
            f"[environment] venv: {path} is neither a virtual environment (no pyvenv.cfg) nor a "
            "conda one (no conda-meta)"
        )
    found = look(path, progress)

    def make(scratch: Path) -> Archive:
        return tar_of(ArchiveKind.ENVIRONMENT, found.content(scratch, progress), scratch, progress)

    return Cache(cache).get(ArchiveKind.ENVIRONMENT, (str(path), found.inputs), make)


def _archive(place: str, folder: Path, cache: Path, progress: Progress, fresh: bool) -> Archive:
    if place.startswith(files.READY):
        archive = files.elsewhere(place, ArchiveKind.ENVIRONMENT, prebuilt_archives.PYTHON)
        prebuilt_archives.check_ending(archive, place)
        return archive
    if files.is_url(place) and not place.startswith("file://"):
        archive = files.fetched(place, ArchiveKind.ENVIRONMENT, cache, progress, fresh=fresh)
    else:
        path = files.path_of(place, folder)
        if not path.is_file():
            raise PackingError(f"[environment] archive: there is no file {path}")
        archive = files.ready(path, ArchiveKind.ENVIRONMENT, cache)
    return prebuilt_archives.looked_into(archive, place, cache, progress)


_KINDS: dict[str, Callable[[str, Path, Path, Progress, bool], Archive]] = {
    "requirements": _requirements,
    "project": _project,
    "venv": _venv,
    "archive": _archive,
}
