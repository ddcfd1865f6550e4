"""What was measured of a job's tasks, and what they reported, for programs and ``howdah metrics``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from howdah.client.lookup.site import site_of
from howdah.core.messages import Task
from howdah.storage import metrics
from howdah.storage.jobdir import JobDirectory
from howdah.wire.messages import Sample

MEASURED = ("cpu", "rss_mb", "gpu", "gpu_memory_mb", "io_read_mb", "io_write_mb")
"""What the agent measures, besides what the program reports."""


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of one attempt of a task at one moment."""

    task: str
    """``worker:1``"""
    attempt: int
    time: float
    """When the coordinator heard of it: seconds since the epoch, by the job's clock."""
    step: float | None = None
    """The newest step that the program had reported."""
    cpu: float | None = None
    """Cores in use since the measurement before (1.0 is one core)."""
    rss_mb: float | None = None
    """Resident memory of all the attempt's processes."""
    gpu: float | None = None
    """Mean utilisation of its GPUs, 0 to 1."""
    gpu_memory_mb: float | None = None
    io_read_mb: float | None = None
    """Since the attempt's start."""
    io_write_mb: float | None = None
    values: dict[str, float] = {}
    """What the program reported through `howdah.task.report` since the measurement before."""


def measurements(
    directory: JobDirectory, tasks: Iterable[Task] = (), since: float = float("-inf")
) -> Iterator[Measurement]:
    """Those of these tasks (none: all), in the order they came. May wait for a network.

    Raises:
        BackendError: those that are elsewhere cannot be brought.
        StorageError: the directory's documents are missing or damaged.
    """
    site = site_of(directory)
    if not site.at_hand:
        site.bring_metrics()
    wanted = set(tasks)
    for each in metrics.read(directory.path, since=since):
        if not wanted or each.task in wanted:
            yield _measurement(each.task, each.attempt, each.sample)


def _measurement(task: Task, attempt: int, sample: Sample) -> Measurement:
    fields = {name: getattr(sample, name) for name in ("time", "step", *MEASURED, "values")}
    return Measurement(task=str(task), attempt=attempt, **fields)


def last(found: Iterable[Measurement]) -> list[Measurement]:
    """For each task its newest attempt's last known values, in one measurement. Pure."""
    newest: dict[str, Measurement] = {}
    for each in found:
        before = newest.get(each.task)
        if before is None or each.attempt > before.attempt:
            newest[each.task] = each
        elif each.attempt == before.attempt:
            known = {
                name: value
                for name in ("step", *MEASURED)
                if (value := getattr(each, name)) is not None
            }
            newest[each.task] = msgspec.structs.replace(
                before, time=each.time, values={**before.values, **each.values}, **known
            )
    return list(newest.values())
