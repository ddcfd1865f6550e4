"""The launch bundle: what travels in a Spark task to start a container process.

It is put together on the driver's machine, and unpacked where the task runs.
"""

from __future__ import annotations

import io
import os
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from howdah.backends.spark.messages import LEASE_S
from howdah.packing.unpacking import unpack
from howdah.spec.model import Slots
from howdah.storage import layout
from howdah.storage.confined_paths import open_beneath
from howdah.storage.files import make_private_folder
from howdah.storage.jobdir import JobDirectory

if TYPE_CHECKING:
    from howdah.backends.spark.site import SparkSettings

NONCE = "spark.nonce"
"""In the job directory: a host that reads the bundle's nonce there sees the directory."""
AGENT_SECRETS = ("ca.pem", "agent.pem", "agent.key")
LARGEST = 64 << 20
"""Bytes that travel to each slot: they go through the driver's memory and every executor's."""


class ContainerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of a container process, ``container.json`` in its folder."""

    job_id: str
    name: str = ""
    """Of the container process."""
    spark_job: int
    host: str = ""
    folder: str = ""
    """Working folder of the executor."""
    gpus: tuple[str, ...] = ()
    coordinator: tuple[str, int]
    slots: Slots
    lease_s: float
    job_dir: str
    nonce: str
    python: str = ""
    other_python: bool = False
    """The job names an interpreter of its own for its programs."""
    source: str | None = None
    """The source folder on the submitter's machine."""
    keep: bool = False
    """Leave working folders where they are (HOWDAH_KEEP_WORK)."""
    agent: str = "howdah.backends.spark.container:run_agent"
    """``module:function`` an agent's process runs; another only in tests."""
    paths: tuple[str, ...] = ()
    """Folders to import that from."""


REGISTER_S = 60.0
"""See `LaunchBundle.wait_s`."""


class LaunchBundle(msgspec.Struct, frozen=True, kw_only=True):
    """What a Spark task gets in its closure (msgpack)."""

    config: ContainerConfig
    """Without what is known in the slot only: name, host, folder, gpus, python."""
    secrets: dict[str, bytes]
    """ca.pem, agent.pem, agent.key"""
    files: dict[str, bytes] = {}
    """For the container's job directory, where that of the job is not seen."""
    source: bytes = b""
    """The source folder as a tar file, if it travels."""
    wait_s: float = REGISTER_S
    """For the coordinator to register a container process."""


def container_config(
    directory: JobDirectory,
    settings: SparkSettings,
    coordinator: tuple[str, int],
    spark_job: int,
) -> ContainerConfig:
    """Configuration of a job's container processes, without what is known in the slot only.

    Raises:
        StorageError: the job's documents are missing or damaged.
    """
    return ContainerConfig(
        job_id=directory.job_id,
        spark_job=spark_job,
        coordinator=coordinator,
        slots=settings.slots,
        lease_s=LEASE_S,
        job_dir=str(directory.path),
        nonce=settings.nonce,
        other_python=directory.job().environment.python is not None,
        source=directory.meta().source,
        keep=bool(os.environ.get("HOWDAH_KEEP_WORK")),
    )


def agent_secrets(directory: JobDirectory) -> dict[str, bytes]:
    """The certificates and the key of the job's agents.

    Raises:
        OSError: the job has no authority.
    """
    return {name: (directory.secrets / name).read_bytes() for name in AGENT_SECRETS}


def job_files(directory: JobDirectory) -> dict[str, bytes]:
    """Files for the job directory of containers that do not see the job's, by relative path."""
    return {
        path.relative_to(directory.path).as_posix(): path.read_bytes()
        for path in sorted((directory.path / layout.FUNCTION).rglob("*"))
        if path.is_file()
    }


def pack_source(folder: Path, largest: int = LARGEST, *, ignore: Sequence[str] = ()) -> bytes:
    """The source folder as an archive, without what its ignore files or the job's ``ignore`` name, as on
    YARN.

    Raises:
        PackingError: it has more than ``largest`` bytes, or something that cannot travel.
        OSError: there is no room for the archive.
    """
    # Not on executors, which unpack only.
    from howdah.packing import folders, ignore_rules, tarball
    from howdah.packing.archives import PackingError
    from howdah.storage.jobdir import base_folder

    found = folders.look(
        folder, ignore_rules.rules(folder.resolve(), ignore), (base_folder().parent,)
    )
    if len(found.entries) > folders.MOST_FILES:
        raise folders.too_many_files(folder)
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


def unpack_source(data: bytes, folder: Path) -> None:
    """The opposite of `pack_source`."""
    make_private_folder(folder)
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        unpack(tar, folder)


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Write files below a folder, by relative path."""
    make_private_folder(folder)
    for name, data in files.items():
        with open(open_beneath(folder, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "wb") as file:
            file.write(data)
