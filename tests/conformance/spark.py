"""The Spark backend under the conformance suite: real container processes, and no Spark.

Spark's part, running a task in a slot, is a function call here; tests/spark has it with Spark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from howdah.backends.base import RoleResources
from howdah.backends.spark import slot_task
from howdah.backends.spark.backend import SparkBackend
from howdah.backends.spark.coordinator_process import DRIVER, LISTEN
from howdah.backends.spark.launch_bundle import NONCE as NONCE_FILE
from howdah.backends.spark.launch_bundle import ContainerConfig, LaunchBundle, agent_secrets
from howdah.backends.spark.messages import RequestSlots, SlotsCompleted, ToDriver
from howdah.backends.spark.site import SparkSettings, write_settings
from howdah.spec.model import Slots
from howdah.storage.jobdir import JobDirectory
from howdah.storage.layout import CoordinatorAddress
from howdah.wire import authority
from howdah.wire.frames import FrameDecoder, encode
from tests.conformance.harness import Coordinator, Standins, eventually
from tests.conformance.local import make_job

ROOT = Path(__file__).parents[2]
PIDS = "HOWDAH_STANDIN_PIDS"
NONCE = "a word"


class Driver:
    """Stands in for a program with a Spark session that has slots without end."""

    full = False
    """From now on there are no more."""
    lost = 0
    """So many tasks of the next request end without a container process while the others hold their slots."""
    far = False
    """From now on they do not see the job directory."""

    def __init__(self, directory: JobDirectory, port: int) -> None:
        self.agent = "tests.conformance.standin:main"
        self._directory = directory
        self._port = port
        self.link, self._own = socket.socketpair()
        self.bases: list[Path] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """As if the program had ended."""
        with contextlib.suppress(OSError):
            self._own.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._own.close()

    def _serve(self) -> None:
        decoder: FrameDecoder[ToDriver] = FrameDecoder(ToDriver)
        with contextlib.suppress(OSError):
            while data := self._own.recv(65536):
                for message in decoder.feed(data):
                    if isinstance(message, RequestSlots):
                        lost, self.lost = self.lost, 0
                        for _ in range(0 if self.full else message.count - lost):
                            self._start_container(message.spark_job)
                        if not lost:
                            self.say(SlotsCompleted(spark_job=message.spark_job, full=self.full))

    def say(self, message: SlotsCompleted) -> None:
        """To the coordinator."""
        self._own.sendall(encode(message))

    def _start_container(self, spark_job: int) -> None:
        config = ContainerConfig(
            job_id=self._directory.job_id,
            name="",
            spark_job=spark_job,
            host="",
            folder="",
            coordinator=("127.0.0.1", self._port),
            slots=Slots.SHARED,
            lease_s=10.0,
            job_dir=str(self._directory.path),
            nonce="another" if self.far else NONCE,
            python=sys.executable,
            agent=self.agent,
            paths=(str(ROOT),),
        )
        process, base = slot_task.start(
            LaunchBundle(config=config, secrets=agent_secrets(self._directory)), ()
        )
        self.bases.append(base)
        assert process.stdout is not None
        process.stdout.readline()  # as a Spark task, which ends when its container process is registered
        slot_task.detach(process)


class SparkHarness(Standins):
    """A job whose coordinators live in the test's process."""

    roles: Mapping[str, RoleResources] = {
        "small": RoleResources(),
        "big": RoleResources(gpus=64),
    }
    asks_again = True
    settling_s = 0.0
    sees_hidden = True

    def __init__(self, folder: Path) -> None:
        self._patched = os.environ.get(PIDS)
        self._pids = folder / "pids"
        self._pids.mkdir()
        os.environ[PIDS] = str(self._pids)
        self.directory = make_job(folder)
        authority.create(self.directory.job_id, self.directory.secrets)
        (self.directory.path / NONCE_FILE).write_text(NONCE)
        self._listener: socket.socket | None = None
        self._port = 0
        self.listen("127.0.0.1")
        settings = SparkSettings(
            slots=Slots.SHARED, host="127.0.0.1", bind="127.0.0.1", port=self._port, nonce=NONCE
        )
        write_settings(self.directory.path, settings)
        self.agent = ""
        self.drivers: list[Driver] = []
        self.coordinators: list[Coordinator] = []

    def listen(self, address: str) -> int:
        """Where containers connect to, from now on; returns the port."""
        if self._listener is not None:
            self._listener.close()
        self._listener = socket.create_server((address, 0))
        self._port = self._listener.getsockname()[1]
        return self._port

    async def coordinator(self) -> Coordinator:
        assert self._listener is not None
        driver = Driver(self.directory, self._port)
        driver.agent = self.agent or driver.agent
        self.drivers.append(driver)
        env = {DRIVER: str(driver.link.detach()), LISTEN: str(os.dup(self._listener.fileno()))}
        backend = SparkBackend(self.directory, env=env)
        address = CoordinatorAddress(
            incarnation=len(self.drivers), host="127.0.0.1", port=1, http_port=0, pid=os.getpid()
        )
        await backend.announce(address)
        coordinator = Coordinator(backend)
        await coordinator.start(self.roles)
        self.coordinators.append(coordinator)
        return coordinator

    async def crash(self, coordinator: Coordinator) -> None:
        assert isinstance(coordinator.backend, SparkBackend)
        await coordinator.backend.disconnect()
        await asyncio.to_thread(self.drivers[-1].close)

    def pids_file(self, container_id: str) -> Path:
        return self._pids / container_id

    async def break_launches(self) -> None:
        self.agent = "tests.conformance.nowhere:main"
        self.drivers[-1].agent = self.agent

    async def close(self) -> None:
        if self.coordinators:
            await self.coordinators[-1].backend.close()
        for driver in self.drivers:
            await asyncio.to_thread(driver.close)
        assert self._listener is not None
        self._listener.close()
        if self._patched is None:
            del os.environ[PIDS]
        else:
            os.environ[PIDS] = self._patched
        bases = [base for driver in self.drivers for base in driver.bases]
        await eventually(
            lambda: not any(base.exists() for base in bases),
            "no container process has left anything",
        )
        shutil.rmtree(self._pids)
