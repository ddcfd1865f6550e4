"""Container processes on the driver's machine, which need no slot: the coordinator starts them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.spark import slot_task
from howdah.backends.spark.container_folder import PREFIX
from howdah.backends.spark.launch_bundle import LaunchBundle, agent_secrets, container_config
from howdah.backends.spark.messages import ON_DRIVER
from howdah.backends.spark.settings import SparkSettings
from howdah.spec.model import Slots
from howdah.storage.jobdir import JobDirectory

log: logging.Logger = logging.getLogger(__name__)


class DriverContainers:
    """Those that have not registered yet."""

    def __init__(self, directory: JobDirectory, settings: SparkSettings, lease_s: float) -> None:
        self._directory = directory
        self._settings = settings
        self._lease_s = lease_s
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
            name = await asyncio.to_thread(self._start_process)
        except (BackendError, OSError, RuntimeError) as error:
            log.error("no container process on this machine: %s", error)
            failed(str(error))
            return
        self._started.add(name)

    def _start_process(self) -> str:
        settings, directory = self._settings, self._directory
        coordinator = ("127.0.0.1", settings.port)
        # It has no Spark task, and outlives the coordinator that starts it.
        settings = msgspec.structs.replace(settings, slots=Slots.SHARED)
        config = container_config(directory, settings, coordinator, ON_DRIVER, self._lease_s)
        bundle = LaunchBundle(config=config, secrets=agent_secrets(directory))
        process, base = slot_task.start(bundle, ())
        slot_task.detach(process)
        return base.name.removeprefix(PREFIX)
