"""The YARN backend under the conformance suite: a real cluster, of which the test is a master."""

from __future__ import annotations

import asyncio
import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import psutil

import howdah
from howdah.agent.launch import AgentLaunch
from howdah.backends.base import RoleResources
from howdah.backends.yarn.container_launch import ContainerLaunch
from howdah.backends.yarn.local_resources import FILE, HOWDAH, LocalResource, LocalResources
from howdah.backends.yarn.master.backend import YarnBackend
from howdah.hadoop.configuration import Configuration
from howdah.hadoop.ids import ApplicationId
from howdah.packing.python.runtime import CODE
from howdah.storage.hdfs.files import Hdfs
from howdah.storage.jobdir import JobDirectory, new_job_id
from howdah.storage.layout import CoordinatorAddress
from howdah.wire import authority
from tests.conformance.harness import Coordinator, Standins, eventually
from tests.conformance.local import make_job
from tests.hadoop.cluster import Cluster
from tests.yarn import unmanaged

ROOT = Path(__file__).parents[2]
PIDS = "HOWDAH_STANDIN_PIDS"
_SHIPPED: dict[str, LocalResource] = {}
"""By cluster: our code and the stand-ins, uploaded once."""


class _Backend(YarnBackend):
    """Starts stand-ins."""

    pids: Path

    def container_launch(self, launch: AgentLaunch) -> ContainerLaunch:
        return msgspec.structs.replace(
            super().container_launch(launch),
            agent="tests.yarn.guarded:main",
            env={PIDS: str(self.pids)},
        )


class YarnHarness(Standins):
    """An application whose masters live in the test's process."""

    roles: Mapping[str, RoleResources] = {
        "small": RoleResources(memory_mb=128),
        "big": RoleResources(memory_mb=1 << 30),
    }
    asks_again = False
    """Which request a container was granted for, only the job's journal knows."""
    settling_s = 30.0
    sees_hidden = False
    """A program that drops its marker, leaves its session and outlives its agent is not found."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = folder
        self.directory: JobDirectory = make_job(folder)
        authority.create(self.directory.job_id, self.directory.secrets)
        self.pid_files = folder / "pids"
        self.pid_files.mkdir()
        self.coordinators: list[Coordinator] = []
        self.application: ApplicationId | None = None
        self._user = cluster.site.user
        self._python = sys.executable

    async def coordinator(self) -> Coordinator:
        if self.application is None:
            await self._submit()
        backend = _Backend(self.directory, env=self._env())
        backend.pids = self.pid_files
        address = CoordinatorAddress(incarnation=1, host="127.0.0.1", port=1, http_port=0, pid=1)
        await backend.announce(address)
        coordinator = Coordinator(backend)
        roles = {name: role for name, role in self.roles.items() if name != "big"}
        await coordinator.start(roles)
        self.coordinators.append(coordinator)
        return coordinator

    async def crash(self, coordinator: Coordinator) -> None:
        assert isinstance(coordinator.backend, YarnBackend)
        await coordinator.backend.disconnect()

    def pids_file(self, container_id: str) -> Path:
        return self.pid_files / container_id

    async def break_launches(self) -> None:
        for coordinator in self.coordinators:
            assert isinstance(coordinator.backend, YarnBackend)
            coordinator.backend.local_resources = msgspec.structs.replace(
                coordinator.backend.local_resources, runtime_python="/no/such/python"
            )

    async def close(self) -> None:
        for coordinator in self.coordinators[:-1]:
            await self.crash(coordinator)
        if self.coordinators:
            await self.coordinators[-1].backend.close()
        assert self.application is not None
        await eventually(
            lambda: self._cluster.rm(f"apps/{self.application}")["app"]["state"] == "FINISHED",
            "the application is over",
        )
        number = str(self.application).removeprefix("application_")
        await eventually(  # the last of them are guards
            lambda: not [p for p in psutil.process_iter() if number in _container(p)],
            "none of its processes is left",
        )

    async def _submit(self) -> None:
        configuration = Configuration.load(self._cluster.conf_dir)
        self.application, token = await unmanaged.submit(configuration, self._user, "conformance")
        unmanaged.write_credentials(token, self._folder / "tokens")
        local_resources = LocalResources(
            application_id=str(self.application),
            user=self._user,
            runtime=(await asyncio.to_thread(self._ship),),
            runtime_python=self._python,
        )
        (self.directory.path / FILE).write_bytes(msgspec.json.encode(local_resources))

    def _env(self) -> dict[str, str]:
        return {
            "HADOOP_CONF_DIR": str(self._cluster.conf_dir),
            "HADOOP_TOKEN_FILE_LOCATION": str(self._folder / "tokens"),
            "NM_HOST": "127.0.0.1",
        }

    def _ship(self) -> LocalResource:
        known = _SHIPPED.get(self._cluster.default_fs)
        if known is not None:
            return known
        archive = self._folder / "code.tar.gz"
        with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
            tar.add(Path(howdah.__file__).parent, f"{CODE}/howdah", filter=_sources)
            for name in ("tests/__init__.py", "tests/conformance", "tests/yarn"):
                tar.add(ROOT / name, f"{CODE}/{name}", filter=_sources)
            tar.addfile(tarfile.TarInfo("end"), io.BytesIO())
        hdfs = Hdfs(self._cluster.default_fs, conf_dir=str(self._cluster.conf_dir))
        place = f"/tmp/{new_job_id('conformance-code')}.tar.gz"
        stat = hdfs.put(archive, place)
        shipped = LocalResource(
            name=HOWDAH,
            url=f"{self._cluster.default_fs}{place}",
            size=stat.size,
            mtime_ms=stat.mtime_ms,
        )
        _SHIPPED[self._cluster.default_fs] = shipped
        return shipped


def _sources(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info


def _container(process: psutil.Process) -> str:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return process.environ().get("CONTAINER_ID", "")
    except (psutil.Error, OSError):
        return ""
