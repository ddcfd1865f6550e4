"""Runs beside each other: how they ended, where their time went, what they used and reported, and what
of their job files differs. As a page it works without JavaScript."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import HTMLResponse, Response

from howdah.backends.base import BackendError
from howdah.client.advice_inputs import evidence
from howdah.client.following import offline_job
from howdah.client.lookup.site import site_of
from howdah.client.measurements import last, measurements
from howdah.coordinator.web.documents import Stage, Timeline, brief
from howdah.coordinator.web.page_texts import environment
from howdah.portal.pages import duration, moment, tone
from howdah.portal.rows import Row
from howdah.spec.model import Job
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.storage.journal import JournalError

MOST = 8
"""Runs that are compared at once."""
_HIDDEN, _OTHER = "(not shown)", "(not shown; another value)"
STAGES = {
    Stage.WAIT: "Waiting for containers",
    Stage.PREPARE: "Preparing",
    Stage.JOIN: "Finding peers",
    Stage.RUN: "Running",
    Stage.RESTART: "After a failure",
    Stage.FINISH: "Finishing",
}
"""In the words of the job page (static/summary.js)."""


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


class Cell(msgspec.Struct, frozen=True):
    text: str
    tone: str = ""


class Group(msgspec.Struct, frozen=True):
    title: str
    rows: list[tuple[str, list[Cell]]]
    note: str = ""


def compare_page(runs: Sequence[ComparedRun], version: str) -> Response:
    """The page. ``version`` is that of the static files."""
    groups = [
        _outcome(runs),
        _time_group(runs),
        _used_group(runs),
        _reported(runs),
        _job_file(runs),
    ]
    text = environment("howdah.portal").get_template("compare.html").render(
        runs=[{"job": run.row, "readable": run.job is not None} for run in runs],
        groups=[group for group in groups if group.rows or group.note],
        version=version,
    )  # fmt: skip
    return HTMLResponse(text)


def _rows(
    runs: Sequence[ComparedRun], facts: dict[str, Callable[[ComparedRun], str]]
) -> list[tuple[str, list[Cell]]]:
    """A row for each fact that any of them has."""
    found = [(label, [Cell(of(run)) for run in runs]) for label, of in facts.items()]
    return [(label, cells) for label, cells in found if any(cell.text for cell in cells)]


def _outcome(runs: Sequence[ComparedRun]) -> Group:
    states = [Cell(run.row.state.replace("-", " "), tone(run.row.state)) for run in runs]
    rest = _rows(
        runs,
        {
            "Why": lambda run: "" if run.row.state == "succeeded" else run.row.reason,
            "Submitted": lambda run: moment(run.row.submitted),
            "By": lambda run: run.row.user,
            "Backend": lambda run: f"{run.row.backend} {run.row.queue}".strip(),
            "Tasks": lambda run: str(run.row.tasks or ""),
            "Restarts": lambda run: str(run.row.restarts or ""),
        },
    )
    return Group("Outcome", [("State", states), *rest])


def _time_group(runs: Sequence[ComparedRun]) -> Group:
    stages: dict[str, Callable[[ComparedRun], str]] = {
        word: lambda run, stage=stage: duration(run.stages.get(stage.value))
        for stage, word in STAGES.items()
    }
    return Group("Time", _rows(runs, {"In all": lambda run: duration(run.row.took), **stages}))


def _used_group(runs: Sequence[ComparedRun]) -> Group:
    names = dict.fromkeys(name for run in runs for name in run.used)
    used = {name: lambda run, name=name: run.used.get(name, "") for name in names}
    return Group("Resources", _rows(runs, used))


def _reported(runs: Sequence[ComparedRun]) -> Group:
    names = dict.fromkeys(name for run in runs for name in run.reported)

    def told(run: ComparedRun, name: str) -> str:
        if name not in run.reported:
            return ""
        least, most = run.reported[name]
        return f"{least:.6g}" if least == most else f"{least:.6g} to {most:.6g}"

    reported = {name: lambda run, name=name: told(run, name) for name in names}
    return Group("Last values reported", _rows(runs, reported))


def _job_file(runs: Sequence[ComparedRun]) -> Group:
    jobs = [run.job for run in runs]
    known = [job for job in jobs if job is not None]
    if len(known) < len(jobs):
        return Group("Job file", [], "of one of them it cannot be read")
    found, same = differences(known)
    rows = [(each.key, [Cell(value or "as by default") for value in each.values]) for each in found]
    note = f"{same} other key{' is' if same == 1 else 's are'} the same" if same else ""
    return Group("Job file", rows, note if rows else "the same in all of them")
