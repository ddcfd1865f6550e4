"""Runs beside each other: how they ended, where their time went, what they used and reported, and what
of their job files differs."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from howdah.backends.base import BackendError
from howdah.client.advice_inputs import evidence
from howdah.client.following import offline_job
from howdah.client.lookup.site import site_of
from howdah.client.measurements import last, measurements
from howdah.coordinator.web.documents import Timeline, brief
from howdah.portal.rows import Row
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import JournalError

MOST = 8
"""Runs that are compared at once."""
_HIDDEN, _OTHER = "(not shown)", "(not shown; another value)"


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the job file that is not the same in all runs."""

    key: str
    """With dots: ``roles.worker.memory``."""
    values: tuple[str, ...]
    """Of each run, as text; empty where it is as it is by default. Of environment variables whether
    they differ, not what they are."""


class ComparedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, ready to be compared."""

    row: Row
    job: Job | None
    """None where its job file cannot be read."""
    stages: Mapping[str, float]
    """Seconds by `howdah.coordinator.web.documents.Stage` value."""
    used: Mapping[str, str]
    """What of what, by role and resource."""
    reported: Mapping[str, tuple[float, float]]
    """The last values of what was reported: least and most of all tasks."""


def read(directory: JobDirectory, row: Row, now: float) -> ComparedRun:
    """A run as its directory tells it; what cannot be read of it is left out. May wait for a network."""
    troubles = (StorageError, JournalError, BackendError, OSError, ValueError)
    with contextlib.suppress(*troubles):
        site = site_of(directory)
        if not site.at_hand:
            site.bring_story()
    job, stages, used = None, {}, {}
    reported: dict[str, tuple[float, float]] = {}
    with contextlib.suppress(*troubles):
        job = directory.job()
    with contextlib.suppress(*troubles):
        stages = _stages(directory, row, now)
    with contextlib.suppress(*troubles):
        for each in last(measurements(directory)):
            for name, value in each.values.items():
                least, most = reported.get(name, (value, value))
                reported[name] = min(least, value), max(most, value)
    with contextlib.suppress(*troubles):
        used = _used(directory)  # of the measurements that were brought just now
    return ComparedRun(row=row, job=job, stages=stages, used=used, reported=reported)


def _stages(directory: JobDirectory, row: Row, now: float) -> dict[str, float]:
    timeline = Timeline(row.submitted)
    newest = row.submitted
    for update in offline_job.records(directory):
        timeline.add(update)
        newest = max(newest, update.time)
    end = row.finished or (newest if row.state == "lost" else now)
    found: defaultdict[str, float] = defaultdict(float)
    for span in timeline.spans:
        found[span.stage] += max((span.end or end) - span.start, 0.0)
    return dict(found)


def _used(directory: JobDirectory) -> dict[str, str]:
    found: dict[str, str] = {}
    for use in evidence(directory).roles:
        if use.peak_memory_mb is not None:
            of = f" of {use.memory_mb} MiB" if use.memory_mb is not None else ""
            found[f"{use.role}: memory, at most"] = f"{use.peak_memory_mb:.0f} MiB{of}"
        if use.busy_cores is not None:
            of = f" of {use.cores}" if use.cores is not None else ""
            found[f"{use.role}: cores, mean"] = f"{use.busy_cores:.2f}{of}"
        if use.busy_gpus is not None:
            found[f"{use.role}: GPUs, mean"] = f"{use.busy_gpus:.0%} of {use.gpus}"
    return found


def differences(jobs: Sequence[Job]) -> tuple[list[Difference], int]:
    """What differs between job files, and how many keys are the same. Pure."""
    flat = [_flat(brief(job)) for job in jobs]
    keys = dict.fromkeys(key for each in flat for key in each)
    # A table without keys in one run says nothing beside those of another.
    keys = [key for key in keys if not any(other.startswith(f"{key}.") for other in keys)]
    found: list[Difference] = []
    for key in keys:
        values = [each.get(key, "") for each in flat]
        if len(set(values)) > 1:
            if "env" in key.split(".")[:-1]:
                values = [_masked(value, values) for value in values]
            found.append(Difference(key=key, values=tuple(values)))
    return found, len(keys) - len(found)


def _masked(value: str, values: Sequence[str]) -> str:
    if not value:
        return ""
    return _HIDDEN if value == next(filter(None, values)) else _OTHER


def _flat(document: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(document, dict) and document:
        found: dict[str, str] = {}
        for key, value in document.items():
            found |= _flat(value, f"{prefix}.{key}" if prefix else str(key))
        return found
    if isinstance(document, str):
        return {prefix: document}
    return {prefix: json.dumps(msgspec.to_builtins(document))}
