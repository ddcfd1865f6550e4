"""What travels to a slot, put together where the job directory is."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from howdah.backends.spark.messages import LEASE_S, Order, Settings
from howdah.storage import layout
from howdah.storage.jobdir import JobDirectory

AGENT_SECRETS = ("ca.pem", "agent.pem", "agent.key")


def order_of(
    directory: JobDirectory,
    settings: Settings,
    coordinator: tuple[str, int],
    ticket: int,
    lease_s: float = LEASE_S,
) -> Order:
    """What a job's holders are told, without what only the slot knows.

    Raises:
        StorageError: the job's documents are missing or damaged.
    """
    return Order(
        job_id=directory.job_id,
        holder="",
        ticket=ticket,
        host="",
        folder="",
        coordinator=coordinator,
        slots=settings.slots,
        lease_s=lease_s,
        job_dir=str(directory.path),
        nonce=settings.nonce,
        python="",
        other_python=directory.job().environment.python is not None,
        source=directory.meta().source,
        keep=bool(os.environ.get("HOWDAH_KEEP_WORK")),
    )


def secrets_of(directory: JobDirectory) -> dict[str, bytes]:
    """What an agent shows and checks.

    Raises:
        OSError: the job has no authority.
    """
    return {name: (directory.secrets / name).read_bytes() for name in AGENT_SECRETS}


def files_of(directory: JobDirectory, more: Mapping[str, bytes]) -> dict[str, bytes]:
    """Files for ``home`` where the job directory is not seen, by relative path."""
    folder = directory.path / layout.FUNCTION
    found = {
        f"{layout.FUNCTION}/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in _files(folder)
    }
    return {**found, **more}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []
