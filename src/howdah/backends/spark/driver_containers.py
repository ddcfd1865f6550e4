"""Container processes on the driver's machine, which need no slot: the coordinator starts them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.spark import slot_task
from howdah.backends.spark.container_folder import PREFIX
from howdah.backends.spark.launch_bundle import LaunchBundle, agent_secrets, container_config
from howdah.backends.spark.messages import ON_DRIVER
from howdah.backends.spark.site import SparkSettings
from howdah.backends.spark.slot_task import NoContainer
from howdah.spec.model import Slots
from howdah.storage.jobdir import JobDirectory

log: logging.Logger = logging.getLogger(__name__)

WAIT_S = 60.0
"""For a process to register."""


class DriverContainers:
    """Those that have not registered yet."""

    def __init__(self, directory: JobDirectory, settings: SparkSettings) -> None:
        self._directory = directory
        self._settings = settings
        self._starting: set[asyncio.Task[None]] = set()
        self._started: set[str] = set()

    @property
    def pending(self) -> int:
        """How many were started and have not registered."""
        return len(self._starting) + len(self._started)

    def start(self, failed: Callable[[str], None]) -> None:
        """Start one more, in the background; ``failed`` is called with the reason if there is none."""
        task = asyncio.get_running_loop().create_task(self._start(failed))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def registered(self, name: str) -> None:
        self._started.discard(name)

    async def _start(self, failed: Callable[[str], None]) -> None:
        try:
            process, base = await asyncio.to_thread(self._start_process)
        except (NoContainer, BackendError, OSError, RuntimeError, tarfile.TarError) as error:
            log.error("no container process on this machine: %s", error)
            failed(str(error))
            return
        name = base.name.removeprefix(PREFIX)
        self._started.add(name)
        loop = asyncio.get_running_loop()

        def wait() -> None:
            problem = slot_task.wait_for_registration(process, base, WAIT_S)
            if problem:
                shutil.rmtree(base, ignore_errors=True)
            else:
                slot_task.detach(process)
            with contextlib.suppress(RuntimeError):  # the coordinator has ended meanwhile
                loop.call_soon_threadsafe(self._answered, name, problem, failed)

        # A daemon: the coordinator does not wait for it at its end, which the process sees.
        threading.Thread(target=wait, name=f"container process {name}", daemon=True).start()

    def _answered(self, name: str, problem: str, failed: Callable[[str], None]) -> None:
        self._started.discard(name)
        if problem:
            log.error("the container process %s on this machine has failed: %s", name, problem)
            failed(problem)

    def _start_process(self) -> tuple[subprocess.Popen[bytes], Path]:
        settings, directory = self._settings, self._directory
        everywhere = settings.bind == "0.0.0.0"  # noqa: S104 - compared, not bound
        coordinator = ("127.0.0.1" if everywhere else settings.bind, settings.port)
        # It has no Spark task, and outlives the coordinator that starts it.
        settings = msgspec.structs.replace(settings, slots=Slots.SHARED)
        config = container_config(directory, settings, coordinator, ON_DRIVER)
        bundle = LaunchBundle(config=config, secrets=agent_secrets(directory))
        return slot_task.start(bundle, ())
