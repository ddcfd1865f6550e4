"""``howdah rerun``: the same job again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from howdah.cli.jobs import find_job, job_id_argument, json_option, store_option

if TYPE_CHECKING:
    from howdah.storage.jobdir import JobDirectory


@click.command("rerun")
@job_id_argument
@click.option("--resume", is_flag=True, help="Begin from the earlier job's newest checkpoint.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Put a value over the earlier job's, such as roles.worker.instances=4; repeatable.",
)
@click.option("--detach", is_flag=True, help="Leave it running, as 'howdah submit' does.")
@click.option("-v", "--verbose", is_flag=True, help="Show the start and end of every task too.")
@store_option
@json_option
def command(
    job_id: str,
    resume: bool,
    overrides: tuple[str, ...],
    detach: bool,
    verbose: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Run a job again, as it was submitted.

    ID is a job's id, its name, or enough of its beginning. The source folder is taken as it is
    now. Follows the new job as 'howdah run' does, and exits with the same codes.

    With --json: one JSON object a line, as 'howdah run' has.
    """
    from howdah.cli.progress import Progress
    from howdah.client.again import load, submit_again
    from howdah.client.early import begin

    before = find_job(job_id, store)
    submission = begin(before.meta().backend)
    try:
        loaded = load(before, overrides, resume=resume)

        def start() -> JobDirectory:
            with Progress(quiet=as_json) as progress:
                return submit_again(
                    before,
                    loaded,
                    resume=resume,
                    submission=submission,
                    progress=progress,
                    note=progress.note,
                )

        if detach:
            from howdah.cli.submit import all_or_nothing, say_submitted

            with all_or_nothing():
                directory = start()
            say_submitted(directory, as_json=as_json)
            return 0
        from howdah.cli.attached import View, follow
        from howdah.cli.interrupts import Tie

        view = View(as_json=as_json, all_records=verbose)
        return follow(start, Tie.JOB, view, cancel=submission.cancel)
    finally:
        submission.close()
