"""The local backend under the conformance suite: real daemons, forks and signals."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

from howdah.agent.launch import AgentLaunch
from howdah.backends.base import RoleResources
from howdah.backends.local.backend import LocalBackend
from howdah.backends.local.messages import NodeAddress
from howdah.backends.local.submit import NodeOptions, node_alive
from howdah.spec.model import Job, Role
from howdah.storage.jobdir import JobDirectory, new_job_id
from howdah.storage.layout import JobMeta
from tests.conformance.harness import Coordinator, Standins

ROOT = Path(__file__).parents[2]

STANDINS = NodeOptions(
    agent="tests.conformance.standin:main",
    # Started when the adopted coordinator, the test, is gone: there is nothing left to do.
    coordinator="tests.conformance.local:no_coordinator",
    paths=(str(ROOT),),
)


def no_coordinator(job_dir: str) -> int:
    """Stands in for a coordinator whose job is over."""
    return 0


def wait_gone(job_dir: Path, timeout_s: float) -> bool:
    """Wait until the job's daemon has cleaned up and ended. False if it has not in that time."""
    deadline = time.monotonic() + timeout_s
    while node_alive(job_dir):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def make_job(folder: Path, job: Job | None = None) -> JobDirectory:
    """A job directory as a client leaves it, without secrets."""
    directory = JobDirectory(folder / new_job_id("conformance"))
    meta = JobMeta(job_id=directory.job_id, user="somebody", backend="local", submitted=0.0)
    if job is None:
        job = Job(command="true", roles={"small": Role(instances="1..100", command="true")})
    directory.create(job, meta)
    return directory


class LocalHarness(Standins):
    """A job whose coordinators live in the test's process."""

    roles: Mapping[str, RoleResources] = {
        "small": RoleResources(),
        "big": RoleResources(memory_mb=1 << 30),
    }

    asks_again = True
    settling_s = 0.0
    sees_hidden = True

    def __init__(self, folder: Path) -> None:
        self.directory = make_job(folder)
        self.coordinators: list[Coordinator] = []
        self.options = STANDINS

    async def coordinator(self) -> Coordinator:
        backend = LocalBackend(self.directory, node=self.options)
        coordinator = Coordinator(backend)
        roles = {name: role for name, role in self.roles.items() if name != "big"}
        await coordinator.start(roles)
        self.coordinators.append(coordinator)
        return coordinator

    async def crash(self, coordinator: Coordinator) -> None:
        assert isinstance(coordinator.backend, LocalBackend)
        await coordinator.backend.disconnect()

    def pids_file(self, container_id: str) -> Path:
        return self.directory.container_path(container_id) / "pids"

    def launch_file(self, container_id: str, word: str) -> AgentLaunch:
        return msgspec.structs.replace(
            super().launch_file(container_id, word),
            work_dir=str(self.directory.container_path(container_id)),
            log_dir=str(self.directory.logs),
        )

    async def break_launches(self) -> None:
        # Its folder cannot be made where a file is in the way.
        shutil.rmtree(self.directory.containers)
        self.directory.containers.write_text("")

    def node_pid(self) -> int:
        raw = (self.directory.path / "node.json").read_bytes()
        return msgspec.json.decode(raw, type=NodeAddress).pid

    async def close(self) -> None:
        if self.directory.containers.is_file():
            self.directory.containers.unlink()
        for coordinator in self.coordinators:
            await self.crash(coordinator)
        if node_alive(self.directory.path):
            last = await self.coordinator()
            await last.backend.close()
        assert await asyncio.to_thread(wait_gone, self.directory.path, 20.0)
        left = [p for p in psutil.process_iter() if self.directory.job_id in _marker(p)]
        assert not left
        assert not self.directory.containers.exists()


def _marker(process: psutil.Process) -> str:
    try:
        return process.environ().get("HOWDAH_CONTAINER", "")
    except (psutil.Error, OSError):
        return ""
