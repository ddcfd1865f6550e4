"""Holders on the driver's own machine, for roles that need no slot: started by the coordinator."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from howdah.backends.base import BackendError
from howdah.backends.spark import luggage
from howdah.backends.spark.messages import ON_DRIVER, Settings, Shipment
from howdah.backends.spark.shipping import order_of, secrets_of
from howdah.spec.model import Slots
from howdah.storage.jobdir import JobDirectory

log = logging.getLogger(__name__)


class LocalHolders:
    """Those under way. Once one is there it is like any other."""

    def __init__(self, directory: JobDirectory, settings: Settings, lease_s: float) -> None:
        self._directory = directory
        self._settings = settings
        self._lease_s = lease_s
        self._starting: set[asyncio.Task[None]] = set()
        self._coming: set[str] = set()

    @property
    def starting(self) -> int:
        """How many were started and have not dialled."""
        return len(self._starting) + len(self._coming)

    def start(self, failed: Callable[[str], None]) -> None:
        """One more, in the background; ``failed`` is told why there will be none."""
        task = asyncio.get_running_loop().create_task(self._start(failed))
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    def arrived(self, holder: str) -> None:
        self._coming.discard(holder)

    async def _start(self, failed: Callable[[str], None]) -> None:
        try:
            name = await asyncio.to_thread(self._begin)
        except (BackendError, OSError, RuntimeError) as error:
            log.error("no holder on this machine: %s", error)
            failed(str(error))
            return
        self._coming.add(name)

    def _begin(self) -> str:
        from howdah.backends.spark import slots

        settings, directory = self._settings, self._directory
        coordinator = ("127.0.0.1", settings.port)
        # It has no Spark task, and outlives the coordinator that starts it.
        settings = msgspec.structs.replace(settings, slots=Slots.SHARED)
        order = order_of(directory, settings, coordinator, ON_DRIVER, self._lease_s)
        shipment = Shipment(order=order, secrets=secrets_of(directory))
        process, base = slots.start(shipment, ())
        slots.detach(process)
        return base.name.removeprefix(luggage.PREFIX)
