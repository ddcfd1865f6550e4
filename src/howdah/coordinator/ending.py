"""What surrounds the driving: folders before it, measurements meanwhile, and the end in order."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from howdah.coordinator import away, calling, memory
from howdah.storage import metrics
from howdah.storage.jobdir import JobDirectory
from howdah.wire.messages import Shutdown
from howdah.wire.status import JobView

if TYPE_CHECKING:
    from howdah.coordinator.service import Coordinator

log = logging.getLogger(__name__)

METRICS_S = 5.0
REMEMBERED_S = 1200.0
"""A new coordinator shows measurements this old."""
WATCHERS_S = 10.0
"""How long slow watchers are waited for at the job's end; the rest is in the job directory."""


def meanwhile(coordinator: Coordinator) -> Sequence[Coroutine[Any, Any, None]]:
    """What goes on beside the driving until it is cancelled."""
    agents = sum(role.maximum for role in coordinator.plan.roles)
    return (
        keep_metrics(coordinator),
        memory.keep_low(agents),
        calling.call_agents(coordinator),
        *away.meanwhile(coordinator),
    )


async def keep_metrics(coordinator: Coordinator) -> None:
    """Store measurements now and then, many at a time."""
    await asyncio.sleep(METRICS_S)
    if coordinator.incarnation > 1:
        # Not at once: taking the job over comes first.
        folder = coordinator.directory.path
        await asyncio.to_thread(away.bring_metrics, coordinator.meta, folder)
        since = coordinator.clock.now() - REMEMBERED_S
        stored = await asyncio.to_thread(_stored, folder, since)
        coordinator.metrics.remember(stored)
    while True:
        await store_metrics(coordinator)
        await asyncio.sleep(METRICS_S)


def _stored(folder: Path, since: float) -> list[metrics.TaskSample]:
    return list(metrics.read(folder, since=since))


async def store_metrics(coordinator: Coordinator) -> None:
    """Store what has not been stored. Without room for it the job goes on."""
    if samples := coordinator.metrics.unstored():
        try:
            await asyncio.to_thread(metrics.append, coordinator.directory.path, samples)
        except OSError as error:
            log.warning("%d measurements are lost: %s", len(samples), error)


async def end(coordinator: Coordinator) -> JobView:
    """The job has finished: write it down, tell everybody, tidy up."""
    directory = coordinator.directory
    await store_metrics(coordinator)
    coordinator.status.touch()
    final = coordinator.status.view()
    await asyncio.to_thread(
        away.publish_outputs, coordinator.job, coordinator.job_id, final.outcome
    )
    if coordinator.meta.url is not None:
        # However long that takes. Who finds final.json there finds all of the journal, too.
        await coordinator.journal.commit()
        await coordinator.journal.close()
    await asyncio.to_thread(directory.write_final, final)
    coordinator.finished.set()
    coordinator.status.touch()  # wakes the watchers
    await coordinator.clients.finish(WATCHERS_S)
    coordinator.agents.close_all(Shutdown())
    await coordinator.executor.close()
    await coordinator.backend.finished(final)
    await coordinator.backend.close()
    await coordinator.publisher.published()
    await asyncio.to_thread(tidy, directory)
    log.info("%s is over: %s", coordinator.job_id, final.outcome)
    return final


def tidy(directory: JobDirectory) -> None:
    """Remove what nobody needs after the job."""
    directory.remove_coordinator()
    if not os.environ.get("HOWDAH_KEEP_WORK"):
        shutil.rmtree(directory.containers, ignore_errors=True)
