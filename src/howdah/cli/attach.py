"""``howdah attach``: follow a running job."""

from __future__ import annotations

import click

from howdah.cli.jobs import find_job, job_id_argument, json_option, store_option

TAIL = 10


@click.command("attach")
@job_id_argument
@click.option(
    "--tail",
    default=str(TAIL),
    metavar="N|all",
    show_default=True,
    help="Begin with the last N lines of each log, or with all there is.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the start and end of every task too.")
@store_option
@json_option
def command(job_id: str, tail: str, verbose: bool, store: str | None, as_json: bool) -> int:
    """Follow a running job; Ctrl-C leaves it running.

    ID is a job's id, or enough of its beginning. Shows the same as 'howdah run' and exits with
    the same codes when the job ends; 0 if it is left before.

    With --json: one JSON object a line, as 'howdah run' has.
    """
    from howdah.cli.attached import View, follow
    from howdah.cli.interrupts import Tie

    view = View(as_json=as_json, all_records=verbose, tail=lines(tail))
    directory = find_job(job_id, store)
    return follow(lambda: directory, Tie.VIEW, view)


def lines(text: str) -> int | None:
    """A number of lines, or None for ``all``.

    Raises:
        click.BadParameter: it is neither.
    """
    if text == "all":
        return None
    if text.isdecimal():
        return int(text)
    raise click.BadParameter(f"{text!r} is neither a number of lines nor 'all'")
