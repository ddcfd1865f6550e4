"""``howdah submit``: start a job and leave it running."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from howdah.cli.jobs import JobCommand, dry_run_option, job_source, json_option, load_job
from howdah.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.storage.jobdir import JobDirectory


@click.command("submit", cls=JobCommand)
@job_source
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the job has ended and exit as 'howdah run' does; what its tasks print is not "
    "shown.",
)
@dry_run_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    job: Path | None,
    backend: str,
    wait: bool,
    dry_run: bool,
    as_json: bool,
    **source: Any,
) -> int:
    """Start a job and leave it running.

    JOB and COMMAND are as for 'howdah run'. Prints the job's id; nothing that happens to this
    terminal changes the job.

    With --wait this command lasts as long as the job. It exits with 130 if it is interrupted; the
    job goes on all the same.

    With --json: one JSON object, {"type": "submitted", "job_id": …, "directory": …}; with --wait
    those of 'howdah run' follow, without "log", the last with type "summary". With --dry-run: one
    document, as 'howdah run' has.
    """
    if dry_run:
        from howdah.cli.dryrun import show

        return show(load_job(ctx, job, **source), backend, as_json=as_json)
    from howdah.client.early import begin

    submission = begin(backend)
    try:
        from howdah.cli.progress import Progress
        from howdah.client.submit import submit

        with all_or_nothing(), Progress(quiet=as_json) as progress:
            loaded = load_job(ctx, job, **source)
            directory = submit(
                loaded,
                backend=backend,
                submission=submission,
                progress=progress,
                note=progress.note,
            )
    finally:
        submission.close()
    say_submitted(directory, as_json=as_json)
    if not wait:
        return 0
    from howdah.cli.attached import View, follow
    from howdah.cli.interrupts import Tie

    return follow(lambda: directory, Tie.WAIT, View(as_json=as_json, logs=False))


@contextlib.contextmanager
def all_or_nothing() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP interrupt like Ctrl-C, so that what was begun is taken back."""
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def say_submitted(directory: JobDirectory, *, as_json: bool) -> None:
    """Print a detached job's id, and how to come back to it."""
    if as_json:
        import msgspec

        from howdah.client.items import Submitted

        item = Submitted(job_id=directory.job_id, directory=str(directory.path))
        echo_json(msgspec.json.encode(item))
        return
    echo(directory.job_id)
    echo(
        f"howdah attach {directory.job_id} follows it, howdah status shows it, howdah stop ends it",
        err=True,
    )
