"""What a container needs and where it lies: laid out by its holder.

A holder's folder (short, 0700)::

    order.json                 what it was told
    secrets/                   ca.pem, agent.pem, agent.key
    shipped/                   files for ``home``, where the job directory is not seen
    source/                    the job's source, where that is not seen
    holder.log
    <container id>/            the container's folder, HERE
      home                     the job directory: a link to it, or a folder of its own
      secrets, source          links
      python/howdah/task.py    the programs' PYTHONPATH
      bin/python               the programs' interpreter, where it has another name
      task/                    the programs' working folder
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from howdah.backends.interpreter import name as name_python
from howdah.backends.spark.messages import Order
from howdah.storage import layout
from howdah.storage.beneath import open_beneath
from howdah.storage.files import make_private_folder

READY = "ready"
"""What a holder says to its Spark task when it has been welcomed."""
GO = b"go\n"
"""The task's answer when it is about to end."""
ORDER = "order.json"
SECRETS = "secrets"
SHIPPED = "shipped"
SOURCE = "source"
HOME = "home"
LOCK = "lock"
PREFIX = "s-"
YOUNG_S = 60.0
"""A younger folder's holder may not have begun."""
LOG = "holder.log"
PYTHON_PATH = "python"
BIN = "bin"
NONCE = "spark.nonce"
"""In the job directory: who finds the right word there sees the directory."""

LARGEST = 64 << 20
"""Bytes that travel to each slot: they go through the driver's memory and every executor's."""


def sees(order: Order) -> bool:
    """Whether the job directory is a folder of this host, for this user."""
    try:
        return Path(order.job_dir, NONCE).read_text() == order.nonce and os.access(
            order.job_dir, os.W_OK
        )
    except (OSError, ValueError):
        return False


def claim(base: Path) -> int:
    """Mark a folder as somebody's: for as long as the descriptor is open.

    Raises:
        OSError: it cannot be marked.
    """
    descriptor = os.open(base / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def tidy(folder: Path) -> None:
    """Remove what holders that were killed have left in the folder."""
    for base in folder.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - base.stat().st_mtime < YOUNG_S:
                continue
            descriptor = claim(base)
            try:
                shutil.rmtree(base, ignore_errors=True)
            finally:
                os.close(descriptor)


def pack(folder: Path, largest: int = LARGEST) -> bytes:
    """The source folder as an archive, without what its ignore files name, as on YARN.

    Raises:
        PackingError: it has more than ``largest`` bytes, or something that cannot travel.
        OSError: there is no room for the archive.
    """
    # Not on executors, which unpack only.
    from howdah.packing import folders, ignoring, tarball
    from howdah.packing.archives import PackingError
    from howdah.storage.jobdir import base_folder

    found = folders.look(folder, ignoring.rules(folder.resolve()), (base_folder().parent,))
    if found.size > largest:
        raise PackingError(
            f"the source folder {folder} has more than {largest >> 20} MiB; what is larger does not "
            "travel in a Spark task. Put data elsewhere, name a smaller `source`, leave files out "
            "by a .howdahignore, or keep it on a file system that all hosts see"
        )
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch, "source.tar.gz")
        tarball.write(found.entries, archive)
        return archive.read_bytes()


def unpack(data: bytes, folder: Path) -> None:
    """The opposite of `pack`."""
    make_private_folder(folder)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.extractall(folder, filter="data")


def put(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files below a folder, by relative path."""
    make_private_folder(folder)
    for name, data in files.items():
        with open(open_beneath(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)


def lay_out(base: Path, container_id: str, order: Order, *, seen: bool) -> Path:
    """Make a container's folder; returns it.

    Raises:
        OSError: it cannot be made.
    """
    here = base / container_id
    make_private_folder(here)
    _link(here / SECRETS, base / SECRETS)
    _home(base, here / HOME, order, seen=seen)
    if (base / SOURCE).is_dir():
        _link(here / SOURCE, base / SOURCE)
    elif order.source is not None and seen and Path(order.source).is_dir():
        _link(here / SOURCE, Path(order.source))
    package = here / PYTHON_PATH / "howdah"
    package.mkdir(mode=0o700, parents=True, exist_ok=True)
    (package / "task.py").write_bytes(_own("task.py"))
    name_python(here / BIN, order.python)
    return here


def _home(base: Path, home: Path, order: Order, *, seen: bool) -> None:
    if seen:
        _link(home, Path(order.job_dir))
        return
    make_private_folder(home)
    for name in (
        layout.LOGS,
        layout.STACKS,
        layout.CHECKPOINTS,
        layout.OUTPUTS,
        layout.TENSORBOARD,
        layout.SHARED,
        layout.RESULTS,
    ):
        make_private_folder(home / name)
    if (base / SHIPPED).is_dir():
        shutil.copytree(base / SHIPPED, home, dirs_exist_ok=True)


def _link(place: Path, target: Path) -> None:
    with contextlib.suppress(FileExistsError):
        place.symlink_to(target)


def _own(name: str) -> bytes:
    """A module of ours, also where Howdah is in a zip file (``--py-files``)."""
    import importlib.resources

    return importlib.resources.files("howdah").joinpath(name).read_bytes()
