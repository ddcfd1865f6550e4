"""``howdah run``: start a job and follow it until it ends."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from howdah.cli.jobs import JobCommand, dry_run_option, job_source, json_option, load_job

if TYPE_CHECKING:
    from howdah.storage.jobdir import JobDirectory


@click.command("run", cls=JobCommand)
@job_source
@dry_run_option
@click.option("--open", "open_page", is_flag=True, help="Open the job page in a browser.")
@click.option("-v", "--verbose", is_flag=True, help="Show the start and end of every task too.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    job: Path | None,
    backend: str,
    dry_run: bool,
    open_page: bool,
    verbose: bool,
    as_json: bool,
    **source: Any,
) -> int:
    """Run a job and follow it until it ends.

    JOB is a job file (TOML, YAML or JSON; job.toml here if there is one), or - for standard input
    (TOML or JSON; its paths are relative to this folder). Without a file, the command behind two
    dashes is run:

    \b
        howdah run job.toml --set roles.worker.instances=4
        howdah run --framework pytorch --role worker=4 -- python train.py --lr 0.1

    Shown are the logs of all tasks as they are printed (standard output), what happens to the job
    (standard error), and a summary at the end.

    The job is tied to this command: Ctrl-C stops it cleanly, Ctrl-C again at once, and so do
    SIGTERM and closing the terminal. If this command is killed (SIGKILL) the job goes on, and
    'howdah attach' finds it. 'howdah submit' starts a job that is not tied to anything.

    With --json: one JSON object a line, the last with type "summary"; with --dry-run one document.
    """
    from howdah.client.early import begin

    if dry_run:
        from howdah.cli.dryrun import show

        return show(load_job(ctx, job, **source), backend, as_json=as_json)
    submission = begin(backend)  # it gets ready while the job is being loaded
    try:
        loaded = load_job(ctx, job, **source)
        from howdah.cli.attached import View, follow
        from howdah.cli.interrupts import Tie
        from howdah.cli.progress import Progress
        from howdah.client.submit import submit

        def start() -> JobDirectory:
            with Progress(quiet=as_json) as progress:
                return submit(
                    loaded,
                    backend=backend,
                    submission=submission,
                    progress=progress,
                    note=progress.note,
                )

        view = View(as_json=as_json, all_records=verbose, open_page=open_page)
        return follow(start, Tie.JOB, view, cancel=submission.cancel)
    finally:
        submission.close()
