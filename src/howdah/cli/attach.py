"""``howdah attach``: follow a running job."""

from __future__ import annotations

import click

from howdah.cli.jobs import find_job, json_option, optional_job_id, store_option, tail_option


@click.command("attach")
@optional_job_id
@tail_option("10")
@click.option("-v", "--verbose", is_flag=True, help="Show the start and end of every task too.")
@click.option(
    "--revive", is_flag=True, help="If the job has no coordinator any more, run it again."
)
@store_option
@json_option
def command(
    job_id: str | None,
    tail: int | None,
    verbose: bool,
    revive: bool,
    store: str | None,
    as_json: bool,
) -> int:
    """Follow a running job; Ctrl-C leaves it running.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. Shows the
    same as 'howdah run' and exits with the same codes when the job ends; 0 if it is left before.

    A job is "lost" when its coordinator and its node daemon are both gone, as after a restart of
    the machine. With --revive it goes on where it was: what still runs is taken over, what is
    lost is started again, from the newest checkpoint. It keeps its id.

    With --json: one JSON object a line, as 'howdah run' has.
    """
    from howdah.cli.attached import View, follow
    from howdah.cli.interrupts import Tie

    view = View(as_json=as_json, all_records=verbose, tail=tail)
    directory = find_job(job_id, store)
    if revive:
        from howdah.client.again import go_on

        go_on(directory)
    return follow(lambda: directory, Tie.VIEW, view)
