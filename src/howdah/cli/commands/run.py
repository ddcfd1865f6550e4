"""Commands that start a job or follow it: ``run``, ``submit``, ``rerun``, ``attach``."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from howdah.cli.arguments import (
    JobCommand,
    dry_run_option,
    find_job,
    job_id_argument,
    job_source,
    json_option,
    load_job,
    optional_job_id,
    set_option,
    store_option,
    tail_option,
)
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.storage.jobdir import JobDirectory


_verbose_option = click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also show the start and end of every task, and everything that TensorFlow prints at "
    "its start.",
)


@click.command("run", cls=JobCommand)
@job_source
@dry_run_option
@click.option("--open", "open_page", is_flag=True, help="Open the job page in a browser.")
@_verbose_option
@json_option
@click.pass_context
def run_command(
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

    JOB is a job file (TOML, YAML or JSON), or - for standard input (TOML or JSON, with paths
    relative to this folder). By default it is job.toml in this folder. You can also run a command
    without a job file, after two dashes:

    \b
        howdah run job.toml --set roles.worker.instances=4
        howdah run --framework pytorch --role worker=4 -- python train.py --lr 0.1

    Shows the logs of all tasks as they are printed (on standard output), what happens to the job
    (on standard error), and a summary at the end.

    The job is tied to this command. Ctrl-C stops it cleanly, and so do SIGTERM and closing the
    terminal; a second Ctrl-C stops it at once. If this command is killed (SIGKILL), the job goes
    on, and 'howdah attach' finds it. 'howdah submit' starts a job that is not tied to a command.

    With --json: one JSON object per line, the last with type "summary"; with --dry-run, one
    document.
    """
    from howdah.client.submission.begin import begin

    if dry_run:
        from howdah.cli.commands.dryrun import show

        return show(load_job(ctx, job, **source), backend, as_json=as_json)
    # It gets ready while the job is being loaded.
    with contextlib.closing(begin(backend)) as submission:
        loaded = load_job(ctx, job, **source)
        from howdah.cli.display.attached import Tie, View, follow
        from howdah.cli.display.progress import SubmissionProgress
        from howdah.client.submission.submit import submit

        progress = SubmissionProgress(quiet=as_json)

        def start() -> JobDirectory:
            with progress:
                return submit(loaded, backend=backend, submission=submission, progress=progress)

        view = View(as_json=as_json, all_records=verbose, open_page=open_page)
        return follow(start, Tie.JOB, view, cancel=submission.cancel, notes=progress.notes)


@click.command("submit", cls=JobCommand)
@job_source
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the job has ended, and exit as 'howdah run' does; the logs of its tasks "
    "are not shown.",
)
@dry_run_option
@json_option
@click.pass_context
def submit_command(
    ctx: click.Context,
    job: Path | None,
    backend: str,
    wait: bool,
    dry_run: bool,
    as_json: bool,
    **source: Any,
) -> int:
    """Start a job and leave it running.

    JOB and COMMAND are as for 'howdah run'. Prints the job's id. Nothing that happens to this
    terminal affects the job.

    With --wait, this command lasts as long as the job. If you interrupt it, it exits with 130, and
    the job goes on.

    With --json: one JSON object, {"type": "submitted", "job_id": …, "directory": …, "notes": […]}. With --wait,
    those of 'howdah run' follow, without "log", the last with type "summary". With --dry-run, one
    document, as for 'howdah run'.
    """
    if dry_run:
        from howdah.cli.commands.dryrun import show

        return show(load_job(ctx, job, **source), backend, as_json=as_json)
    from howdah.client.submission.begin import begin

    with contextlib.closing(begin(backend)) as submission:
        from howdah.cli.display.progress import SubmissionProgress
        from howdah.client.submission.submit import submit

        progress = SubmissionProgress(quiet=as_json)

        def start() -> JobDirectory:
            with progress:
                loaded = load_job(ctx, job, **source)
                return submit(loaded, backend=backend, submission=submission, progress=progress)

        directory = detached(start, progress.notes, as_json=as_json)
    if not wait:
        return 0
    from howdah.cli.display.attached import Tie, View, follow

    return follow(lambda: directory, Tie.WAIT, View(as_json=as_json, logs=False))


def detached(
    start: Callable[[], JobDirectory], notes: Sequence[str], *, as_json: bool
) -> JobDirectory:
    """The job that ``start`` submits, once its id has been printed, with ``notes`` in JSON.

    Until then SIGTERM and SIGHUP interrupt like Ctrl-C, and what was begun is taken back: nobody would
    know which job goes on.
    """
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    directory = None
    try:
        directory = start()
        _say_submitted(directory, notes, as_json=as_json)
    except KeyboardInterrupt:
        if directory is not None:
            from howdah.backends.base import BackendError
            from howdah.client.errors import HowdahError
            from howdah.client.sync import JobHandle
            from howdah.storage.jobdir import StorageError

            try:
                JobHandle(directory).stop("its submission was interrupted")
            except (HowdahError, BackendError, StorageError, OSError) as error:
                echo(f"{directory.job_id} goes on, as it could not be stopped: {error}", err=True)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return directory


def _say_submitted(directory: JobDirectory, notes: Sequence[str], *, as_json: bool) -> None:
    """Print a detached job's id, and how to come back to it."""
    if as_json:
        from howdah.client.following.items import submitted

        echo_json(submitted(directory, notes))
        return
    echo(directory.job_id)
    echo(
        f"howdah attach {directory.job_id} follows it, howdah status shows it, howdah stop ends it",
        err=True,
    )


@click.command("rerun")
@job_id_argument
@click.option("--resume", is_flag=True, help="Start from the earlier job's newest checkpoint.")
@click.option(
    "--backend",
    metavar="NAME",
    help="Run it there: 'local', 'yarn' or 'spark'. Default: where it ran before.",
)
@set_option("Override a value of the earlier job, such as roles.worker.instances=4; repeatable.")
@click.option("--detach", is_flag=True, help="Leave it running, as 'howdah submit' does.")
@_verbose_option
@store_option
@json_option
def rerun_command(
    job_id: str,
    resume: bool,
    backend: str | None,
    overrides: tuple[str, ...],
    detach: bool,
    verbose: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Run a job again, as it was submitted.

    ID is a job's id, its name, or enough of its beginning. The new job gets the source folder as it
    is now. With --resume and --backend a job goes on elsewhere: its newest checkpoint is copied
    there. Follows the new job as 'howdah run' does, and exits with the same codes.

    With --json: one JSON object per line, as for 'howdah run'.
    """
    from howdah.cli.display.progress import SubmissionProgress
    from howdah.client.submission.begin import begin
    from howdah.client.submission.resubmission import load, submit_again

    before = find_job(job_id, store)
    backend = backend or before.meta().backend
    with contextlib.closing(begin(backend)) as submission:
        loaded = load(before, overrides, resume=resume)
        progress = SubmissionProgress(quiet=as_json)

        def start() -> JobDirectory:
            with progress:
                return submit_again(
                    before,
                    loaded,
                    resume=resume,
                    backend=backend,
                    submission=submission,
                    progress=progress,
                )

        if detach:
            detached(start, progress.notes, as_json=as_json)
            return 0
        from howdah.cli.display.attached import Tie, View, follow

        view = View(as_json=as_json, all_records=verbose)
        return follow(start, Tie.JOB, view, cancel=submission.cancel, notes=progress.notes)


@click.command("attach")
@optional_job_id
@tail_option("10")
@_verbose_option
@click.option(
    "--revive", is_flag=True, help="If the job no longer has a coordinator, run it again."
)
@store_option
@json_option
def attach_command(
    job_id: str | None,
    tail: int | None,
    verbose: bool,
    revive: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Follow a running job; Ctrl-C leaves it running.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. Shows the
    same as 'howdah run', and exits with the same codes when the job ends. If you leave it before,
    it exits with 0.

    A job is "lost" if its coordinator and its node daemon are both gone, for example after a
    restart of the machine. With --revive it goes on where it was. Programs that still run are taken
    over; the others are started again from the newest checkpoint. The job keeps its id.

    With --json: one JSON object per line, as for 'howdah run'.
    """
    from howdah.cli.display.attached import Tie, View, follow

    view = View(as_json=as_json, all_records=verbose, tail=tail)
    directory = find_job(job_id, store)
    if revive:
        from howdah.client.submission.resubmission import go_on

        go_on(directory)
    return follow(lambda: directory, Tie.VIEW, view)
