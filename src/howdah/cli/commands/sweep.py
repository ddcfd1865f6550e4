"""``howdah sweep``: one job file with many settings."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Coroutine, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from howdah.cli.arguments import MOST, JobCommand, job_source, json_option, load_job
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.client.sweep import Trial
    from howdah.spec.load import LoadedJob

MOST_VALUES = 4
"""Reported values that have a column when none is asked for by name."""


@click.command("sweep", cls=JobCommand)
@job_source
@click.option(
    "--at-once",
    type=click.IntRange(1, MOST),
    default=1,
    show_default=True,
    metavar="N",
    help="Trials that run at the same time.",
)
@click.option(
    "--random",
    "draws",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Choose N trials at random.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, MOST),
    metavar="N",
    help="Seed of the random choice; by default 0.",
)
@click.option(
    "--zip",
    "side_by_side",
    is_flag=True,
    help="Combine the first values of all keys, then the second values, and so on, instead of "
    "all combinations.",
)
@click.option(
    "--by",
    metavar="VALUE",
    help="Sort the trials by the reported VALUE, the lowest first; with -VALUE, the highest first.",
)
@click.option("--dry-run", is_flag=True, help="Show the trials; start nothing.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    job: Path | None,
    backend: str,
    at_once: int,
    draws: int | None,
    seed: int | None,
    side_by_side: bool,
    by: str | None,
    dry_run: bool,
    as_json: bool,
    overrides: tuple[str, ...],
    **source: Any,
) -> int:
    """Run a job once for each of many settings, and compare what came out.

    JOB and COMMAND are as for 'howdah run', but JOB is a file. Each --set with several values,
    separated by commas, is a parameter, and all combinations are tried. A single word that is no
    key of a job file is an environment variable of the programs:

    \b
        howdah sweep job.toml --set lr=0.1,0.01 --set batch=32,64 --at-once 2
        howdah sweep job.toml --set lr=log:1e-5..1e-1 --random 20 --by=-accuracy

    At the end, standard output shows the trials, their parameters, and the last values that their
    programs reported (from howdah import task; task.report(loss=0.3)). Each trial is a job with the
    sweep's tag: 'howdah list --tag' lists the trials, and 'howdah ui' compares them. If a trial
    fails, the others still run, and the command exits with 1; if all succeed and one could not save
    all that it made, with 5. Ctrl-C stops the running trials and starts no more.

    With --json: one document per line, when a trial has been submitted and when it has ended; with
    --dry-run, one for each trial.
    """
    from howdah.client.sweep import Sweep, new_variables, settings

    if job == Path("-"):
        raise click.UsageError(
            "a sweep reads its job file more than once: give a file, not standard input", ctx
        )
    if seed is not None and draws is None:
        raise click.UsageError("--seed is for a choice by --random N", ctx)
    if by is not None and not by.removeprefix("-").strip():
        raise click.UsageError("--by needs the name of a value that programs report", ctx)
    common, parameters = settings(overrides, draws=draws, seed=seed or 0, side_by_side=side_by_side)

    def load(chosen: Sequence[str]) -> LoadedJob:
        return load_job(ctx, job, overrides=tuple(chosen), **source)

    def tell(trial: Trial) -> None:
        if as_json:
            echo_json(trial)
        else:
            echo(_line(trial, len(parameters)), err=True)

    def note(text: str) -> None:
        echo(f"note: {text}", err=True)

    for text in new_variables(load, common, parameters[0]):
        note(text)
    sweep = Sweep(
        parameters,
        lambda chosen: load((*common, *chosen)),
        backend=backend,
        at_once=at_once,
        on_trial=tell,
        note=note,
    )
    if dry_run:
        if as_json:
            for trial in sweep.trials:
                echo_json(trial)
        else:
            echo("\n".join(_table(sweep.trials, by)))
        return 0
    return _run(sweep, by, as_json=as_json)


def _run(sweep: Any, by: str | None, *, as_json: bool) -> int:
    from howdah.client.errors import ExitCode

    if not as_json:
        echo(f"{len(sweep.trials)} trials, tag {sweep.tag}", err=True)
    stopped = asyncio.run(_until_the_end_or_a_signal(sweep.run()))
    if not as_json:
        echo("\n".join(_table(sweep.trials, by)))
        names = _reported(sweep.trials)
        if by is not None and by.removeprefix("-") not in names:
            told = f"; reported were {', '.join(names)}" if names else ""
            echo(f"note: no trial reported {by.removeprefix('-')!r}{told}", err=True)
    if stopped:
        return ExitCode.STOPPED
    if not all(map(_succeeded, sweep.trials)):
        return ExitCode.FAILED
    return ExitCode.UNSAVED if any(map(_unsaved, sweep.trials)) else ExitCode.SUCCEEDED


async def _until_the_end_or_a_signal(work: Coroutine[Any, Any, object]) -> bool:
    """Whether a signal has ended it; then it has been cancelled, and has come to its end all the same."""
    running = asyncio.ensure_future(work)
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        running.cancel()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # nohup
        asyncio.get_running_loop().add_signal_handler(number, stop)
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return stopped


def _succeeded(trial: Trial) -> bool:
    return trial.view is not None and trial.view.outcome == "succeeded"


def _unsaved(trial: Trial) -> bool:
    from howdah.client.errors import ExitCode, exit_code_of

    return trial.view is not None and exit_code_of(trial.view) is ExitCode.UNSAVED


def _reported(trials: Iterable[Trial]) -> list[str]:
    """Names of the values that programs reported."""
    return list(dict.fromkeys(name for trial in trials for name in trial.values))


def _state(trial: Trial) -> str:
    if _unsaved(trial):
        return "not saved"
    if trial.view is not None and trial.view.outcome is not None:
        return trial.view.outcome
    if trial.problem:
        return "failed" if trial.job_id is None else "lost"
    return "not begun" if trial.job_id is None else "running"


def _why(trial: Trial) -> str:
    if trial.view is not None and _unsaved(trial):
        return trial.view.unsaved[0]
    if trial.view is not None and trial.view.outcome != "succeeded":
        return trial.view.reason
    return " ".join(trial.problem.splitlines())


def _line(trial: Trial, of: int) -> str:
    """What has just become of a trial."""
    from howdah.client.sweep import shown

    chosen = " ".join(f"{shown(key)}={value}" for key, value in trial.parameters.items())
    state = {"running": "has begun"}.get(_state(trial), _state(trial))
    parts = [f"trial {trial.number} of {of} ({chosen}) {state}"]
    parts += [trial.job_id or "", _why(trial)]
    parts += [", ".join(f"{key} {value:.6g}" for key, value in trial.values.items())]
    return ": ".join(part for part in parts if part)


def _table(trials: Sequence[Trial], by: str | None) -> list[str]:
    from howdah.cli.display import formatting as human
    from howdah.cli.display.formatting import Paint, TableColumn, render, wants_colour, window_width
    from howdah.client.sweep import shown

    value = (by or "").removeprefix("-")
    names = _reported(trials)
    if by is not None:
        trials = _ordered(trials, value, descending=by.startswith("-"))
        names = [value, *(name for name in names if name != value)]
    names = names[:MOST_VALUES]
    keys = list(trials[0].parameters)
    columns = (
        TableColumn("TRIAL", right=True),
        *(TableColumn(shown(key).upper(), right=True) for key in keys),
        TableColumn("STATE"),
        *(TableColumn(name.upper(), right=True) for name in names),
        TableColumn("TOOK", right=True),
        TableColumn("ID"),
        TableColumn("WHY", gives=True),
    )
    paint = Paint(wants_colour(sys.stdout))
    rows: list[tuple[str, ...]] = []
    for trial in trials:
        view = trial.view
        took = None
        if view is not None and view.submitted is not None and view.finished is not None:
            took = view.finished - view.submitted
        told = [f"{trial.values[name]:.6g}" if name in trial.values else "-" for name in names]
        rows.append(
            (
                str(trial.number),
                *(trial.parameters[key] for key in keys),
                paint.state(_state(trial)),
                *told,
                human.duration(took),
                trial.job_id or "-",
                _why(trial),
            )
        )
    return render(columns, rows, paint, width=window_width() if sys.stdout.isatty() else None)


def _ordered(trials: Sequence[Trial], value: str, *, descending: bool) -> list[Trial]:
    """Those that succeeded and have the value, the best first; then the others."""
    good = [trial for trial in trials if _succeeded(trial) and value in trial.values]
    good.sort(key=lambda trial: trial.values[value], reverse=descending)
    return [*good, *(trial for trial in trials if trial not in good)]
