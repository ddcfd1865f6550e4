"""The folder of a container process, and of each container in it.

A container process's folder (short, 0700)::

    container.json             its configuration
    secrets/                   ca.pem, agent.pem, agent.key
    shipped/                   files for ``job``, where the job directory is not seen
    source/                    the job's source, where that is not seen
    container.log
    <container id>/            the container's folder, HERE
      job                      the job directory: a link to it, or a folder of its own
      secrets, source          links
      python/howdah/task.py    the programs' PYTHONPATH
      bin/python               the programs' interpreter, where it has another name
      task/                    the programs' working folder
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from functools import partial
from pathlib import Path

import msgspec

from howdah.agent.launch import HERE, AgentLaunch
from howdah.backends.base import Places
from howdah.backends.interpreter import name as name_python
from howdah.backends.job_paths import tensorboard_folder
from howdah.backends.local import runtime_paths as local_places
from howdah.backends.spark.artifacts import FOLDERS
from howdah.backends.spark.launch_bundle import (
    NONCE,
    ContainerConfig,
    LaunchBundle,
    unpack_source,
    write_files,
)
from howdah.backends.spark.messages import Register
from howdah.spec.model import Job
from howdah.storage import layout, runtime
from howdah.storage.files import make_private_folder, write_private

CONFIG = "container.json"
SECRETS = "secrets"
SHIPPED = "shipped"
SOURCE = "source"
JOB = "job"
LOCK = "lock"
LOG = "container.log"
PYTHON_PATH = "python"
BIN = "bin"
PREFIX = "s-"
YOUNG_S = 60.0
"""The process of a younger folder may not have begun."""

JOB_DIR = f"{HERE}/{JOB}"
"""The job directory as programs see it: the job's own, or a folder whose files are uploaded."""


# -- as the coordinator names it (pure) ----------------------------------------------------------


def places(job: Job, source: str | None, path: str) -> Places:
    """See `howdah.backends.base.Backend.places`; ``path`` is PATH."""
    return Places(
        python=job.environment.python or f"{HERE}/{BIN}/python",
        bin="" if job.environment.python else f"{HERE}/{BIN}",
        path=path,
        python_path=f"{HERE}/{PYTHON_PATH}",
        helpers=None,
        source=f"{HERE}/{SOURCE}" if source is not None else None,
        container_env=job.hadoop.container_env,
        shared_dir=f"{JOB_DIR}/{layout.SHARED}",
        home=JOB_DIR,
        tensorboard_dir=tensorboard_folder(job, JOB_DIR),
    )


def complete_launch(
    launch: AgentLaunch,
    registration: Register,
    coordinator: tuple[str, int],
    gpus: tuple[str, ...],
) -> AgentLaunch:
    """The launch with the folders of a container in that process."""
    secrets = f"{HERE}/{SECRETS}"
    return msgspec.structs.replace(
        launch,
        coordinator_file=f"{JOB_DIR}/{layout.COORDINATOR}",
        coordinators=(coordinator,),
        ca=f"{secrets}/ca.pem",
        certificate=f"{secrets}/agent.pem",
        key=f"{secrets}/agent.key",
        work_dir=f"{registration.base}/{launch.container_id}",
        log_dir=f"{JOB_DIR}/{layout.LOGS}",
        gpus=gpus,
        last_lines=not registration.sees_job_dir,
    )


# -- on the host of the container ----------------------------------------------------------------


def sees_job_dir(config: ContainerConfig) -> bool:
    """Whether the job directory is a folder of this host, for this user."""
    try:
        return Path(config.job_dir, NONCE).read_text("utf-8") == config.nonce and os.access(
            config.job_dir, os.W_OK
        )
    except (OSError, ValueError):
        return False


def make_base(name: str) -> Path:
    """The folder of a new container process: private, with a short path.

    Raises:
        BackendError: the folder for sockets cannot be used.
        OSError: it cannot be made.
    """
    folder = local_places.runtime_folder()
    remove_abandoned(folder)
    base = folder / f"{PREFIX}{name}"
    runtime.retry_with_folder(partial(base.mkdir, mode=0o700))
    return base


def populate(base: Path, bundle: LaunchBundle, config: ContainerConfig) -> None:
    """Write what a container process needs into its folder.

    Raises:
        OSError: it cannot be written.
        tarfile.TarError: the source folder cannot be unpacked here.
    """
    write_files(bundle.secrets, base / SECRETS)
    if not sees_job_dir(config):
        write_files(bundle.files, base / SHIPPED)
        if bundle.source:
            unpack_source(bundle.source, base / SOURCE)
    write_private(base / CONFIG, msgspec.json.encode(config))


def lock(base: Path) -> int:
    """Mark a folder as in use: for as long as the descriptor is open.

    Raises:
        OSError: it cannot be marked.
    """
    descriptor = os.open(base / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def remove_abandoned(folder: Path) -> None:
    """Remove the folders of container processes that were killed."""
    for base in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - base.stat().st_mtime < YOUNG_S:
                continue
            descriptor = lock(base)
            try:
                shutil.rmtree(base, ignore_errors=True)
            finally:
                os.close(descriptor)


def make_container(base: Path, container_id: str, config: ContainerConfig, *, seen: bool) -> Path:
    """Make a container's folder; returns it. ``seen``: the job directory is.

    Raises:
        OSError: it cannot be made.
    """
    import importlib.resources

    folder = base / container_id
    make_private_folder(folder)
    _link(folder / SECRETS, base / SECRETS)
    _make_job_dir(base, folder / JOB, config, seen=seen)
    if (base / SOURCE).is_dir():
        _link(folder / SOURCE, base / SOURCE)
    elif config.source is not None and seen and Path(config.source).is_dir():
        _link(folder / SOURCE, Path(config.source))
    package = folder / PYTHON_PATH / "howdah"
    package.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Howdah may be in a zip file (``--py-files``).
    task = importlib.resources.files("howdah").joinpath("task.py")
    (package / "task.py").write_bytes(task.read_bytes())
    name_python(folder / BIN, config.python)
    return folder


def _make_job_dir(base: Path, job_dir: Path, config: ContainerConfig, *, seen: bool) -> None:
    if seen:
        _link(job_dir, Path(config.job_dir))
        return
    make_private_folder(job_dir)
    for name in (*FOLDERS, layout.CHECKPOINTS):
        make_private_folder(job_dir / name)
    if (base / SHIPPED).is_dir():
        shutil.copytree(base / SHIPPED, job_dir, dirs_exist_ok=True)


def _link(path: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):
        path.symlink_to(target)
