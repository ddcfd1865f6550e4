"""What can be known of a job before anything of it is started, beyond its file's own rules."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from howdah.agent import other_launchers
from howdah.backends import registry, support
from howdah.backends.registry import LOCAL
from howdah.client.errors import BadInput
from howdah.client.submission import scripts, secret_values, stores
from howdah.frameworks.overridden_variables import overridden_variables
from howdah.plugins import not_known
from howdah.spec import site
from howdah.spec.load import LoadedJob
from howdah.spec.model import Docker, Job
from howdah.spec.problems import JobFileError, JobFileProblem, dotted
from howdah.spec.units import instance_range
from howdah.spec.urls import url_problem
from howdah.storage.jobdir import base_folder, may_be_made


def check(
    loaded: LoadedJob,
    job: Job,
    backend: str,
    *,
    probe: bool = True,
    earlier: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Refuse a job that the backend would not run as its file says, or whose parts are missing.

    ``job`` is the loaded one with its id put in. Without ``probe`` nothing but this machine is
    asked. ``earlier`` are values of ``[secrets]`` that an earlier run had.

    Returns:
        What a user should know all the same, a line each.

    Raises:
        BadInput: there is no such backend.
        JobFileError: with all problems.
    """
    if names := registry.unknown(backend):
        raise BadInput(f"There is no backend {not_known(backend, names)}")
    site_file = site.find(os.environ)
    found, notes = support.look(loaded, backend, str(site_file) if site_file else None)
    unwritable, more = stores.look(loaded, job, backend, probe=probe)
    _, unset = secret_values.look(loaded, earlier)
    problems = [*found, *_missing(loaded, backend), *unset, *unwritable]
    if problems:
        raise JobFileError(problems)
    return (
        *notes,
        *more,
        *_shared_folder(job),
        *_overridden_variables(job),
        *_other_launchers(job, backend),
        *_no_image(loaded, site_file),
        *_more_than_the_machine(job, backend),
    )


def refused_here(loaded: LoadedJob, backend: str) -> tuple[str, ...]:
    """Why this machine would not run or submit the job. Only for commands that look: the file may be meant for
    another one."""
    unbuilt = tuple(_without_uv(loaded.job))
    if backend != LOCAL:
        return unbuilt
    from howdah.backends.base import BackendError
    from howdah.backends.local import machine
    from howdah.frameworks import planning

    found: list[str] = []
    try:
        machine.check(
            planning.expand(loaded.job), source=str(loaded.source) if loaded.source else None
        )
    except BackendError as error:
        found.append(str(error))
    base = base_folder(loaded.job.store)
    if not may_be_made(base):
        found.append(
            f"store: no job directory can be made in {base}: it, or a folder above, is closed to you"
        )
    return (*found, *unbuilt, *scripts.unknown_programs(loaded.job, loaded.source))


def _without_uv(job: Job) -> Iterator[str]:
    key = next((k for k in ("requirements", "project") if getattr(job.environment, k)), None)
    if key is None:  # most jobs: nothing to import
        return
    from howdah.packing.archives import PackingError
    from howdah.packing.python import uv

    try:
        uv.find()
    except PackingError as error:
        yield f"environment.{key}: {error}"


def _no_image(loaded: LoadedJob, site_file: Path | None) -> Iterator[str]:
    job, key = loaded.job, "hadoop.docker"
    used = job.hadoop.docker != Docker() and not any(role.image for role in job.roles.values())
    # What a site writes is for jobs that have one.
    if used and loaded.problem(key, "").file != (str(site_file) if site_file else None):
        yield f"{key}: no role has an image, so nothing of it is used"


def _overridden_variables(job: Job) -> Iterator[str]:
    for key, roles in overridden_variables(job).items():
        yield (
            f"{dotted(key)}: Howdah sets it for the programs of {', '.join(roles)}, which do not get this value"
        )


def _other_launchers(job: Job, backend: str) -> Iterator[str]:
    """Only programs on this machine would have had its variables."""
    given = {*job.env, *(name for role in job.roles.values() for name in role.env)}
    found = [name for name in other_launchers.theirs(os.environ) if name not in given]
    if backend == LOCAL and found:
        several = f" and {len(found) - 3} more" if len(found) > 3 else ""
        yield (
            f"programs do not get {', '.join(found[:3])}{several}, which another launcher has set here; [env] can name "
            "what they need"
        )


def _shared_folder(job: Job) -> Iterator[str]:
    tasks = sum(instance_range(role.instances)[1] for role in job.roles.values())
    if job.in_place and tasks > 1:
        yield f"in-place: {tasks} tasks write to one folder, each over what the others have written"


def _more_than_the_machine(job: Job, backend: str) -> Iterator[str]:
    if backend != LOCAL or not any(r.cores or r.memory for r in job.roles.values()):
        return  # most jobs: nothing to import
    from howdah.backends.local import machine
    from howdah.frameworks import planning

    yield from machine.shared(planning.expand(job))


def _missing(loaded: LoadedJob, backend: str) -> Iterator[JobFileProblem]:
    """Files and folders that the job names and this machine does not have, and programs it cannot start."""
    job, environment = loaded.job, loaded.job.environment
    if backend == LOCAL:  # elsewhere, an absolute path is one of the nodes'
        for key, message in scripts.missing(job, loaded.source, absolute=True):
            yield loaded.problem(key, message)
    for key, message in scripts.not_executable(job, loaded.source):
        yield loaded.problem(key, message)
    keytab = job.hadoop.keytab
    unsupported = (rule.key for rule in support.unsupported().get(backend, ()))
    if keytab is not None and "hadoop.keytab" not in unsupported:
        file = Path(loaded.folder, keytab).expanduser()
        if not file.is_file():
            yield loaded.problem("hadoop.keytab", f"there is no file {file}")
    if not environment.is_made and not job.files_by_role:
        return  # most jobs: nothing to import
    from howdah.packing.archives import PackingError
    from howdah.packing.files import READY, is_url, path_of, understand

    def local(place: str) -> Path | None:
        url = is_url(place.removeprefix("file://"))
        return None if url else path_of(place, loaded.folder)

    def not_taken(place: str) -> str:
        url = is_url(place) and not place.startswith(READY)
        return url_problem(place, written=False) if url else ""

    for name, (is_there, what) in _PARTS.items():
        place = getattr(environment, name)
        path = local(place) if place is not None else None
        if place is not None and (why := not_taken(place)):
            yield loaded.problem(f"environment.{name}", f"{place[:200]}: {why}")
        elif path is not None and not is_there(path):
            yield loaded.problem(f"environment.{name}", f"there is no {what} {path}")
    for role, lines in job.files_by_role.items():
        key = dotted(("roles", role, "files") if role else ("files",))
        try:
            wanted = understand(lines)
        except PackingError as error:
            yield loaded.problem(key, str(error).removeprefix("files: "))
            continue
        for one in wanted:
            path = local(one.place)
            if why := not_taken(one.place):
                yield loaded.problem(key, f"{one.place[:200]}: {why}")
            elif path is not None and not path.exists():
                yield loaded.problem(key, f"there is no file or folder {path}")


_PARTS = {
    "requirements": (Path.is_file, "file"),
    "project": (lambda path: (path / "pyproject.toml").is_file(), "pyproject.toml in"),
    "venv": (Path.is_dir, "folder"),
    "archive": (Path.is_file, "file"),
}
"""Of ``[environment]``: what must be there."""
