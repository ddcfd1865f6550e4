"""Runs beside each other as a page. Works without JavaScript."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from starlette.responses import HTMLResponse, Response

from howdah.coordinator.web.app import environment
from howdah.coordinator.web.documents import Stage
from howdah.portal.comparison import ComparedRun, differences
from howdah.portal.pages import duration, moment, tone

STAGES = {
    Stage.WAIT: "Waiting for containers",
    Stage.PREPARE: "Preparing",
    Stage.JOIN: "Finding peers",
    Stage.RUN: "Running",
    Stage.RESTART: "After a failure",
    Stage.FINISH: "Finishing",
}
"""In the words of the job page (static/summary.js)."""


class Cell(msgspec.Struct, frozen=True):
    text: str
    tone: str = ""


class Group(msgspec.Struct, frozen=True):
    title: str
    rows: list[tuple[str, list[Cell]]]
    note: str = ""


def compare_page(runs: Sequence[ComparedRun], version: str) -> Response:
    """The page. ``version`` is that of the static files."""
    groups = [_outcome(runs), _time(runs), _used(runs), _reported(runs), _job_file(runs)]
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


def _time(runs: Sequence[ComparedRun]) -> Group:
    stages: dict[str, Callable[[ComparedRun], str]] = {
        word: lambda run, stage=stage: duration(run.stages.get(stage.value))
        for stage, word in STAGES.items()
    }
    return Group("Time", _rows(runs, {"In all": lambda run: duration(run.row.took), **stages}))


def _used(runs: Sequence[ComparedRun]) -> Group:
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
