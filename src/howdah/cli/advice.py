"""``howdah advice``: what a job wasted, and what to change."""

from __future__ import annotations

import sys

import click

from howdah.cli.jobs import find_job, json_option, optional_job_id, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("advice")
@optional_job_id
@store_option
@json_option
def command(job_id: str | None, store: str | None, as_json: bool) -> None:
    """Say what a job wasted, and what to change in its job file.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. Looks at what was
    measured so far: memory, cores and GPUs, slow tasks, the start, checkpoints and restarts. The worst
    comes first.

    With --json: a list of findings, each with its rule, severity (1 to 4), score, text, change and the
    figures that were used.
    """
    from howdah.cli.paint import Paint, wants_colour
    from howdah.cli.summary import advice_lines
    from howdah.cli.tables import window_width
    from howdah.client.evidence import findings

    directory = find_job(job_id, store)
    found = findings(directory)
    if as_json:
        import msgspec

        echo_json(msgspec.json.encode(found))
    elif found:
        width = window_width() if sys.stdout.isatty() else None
        echo("\n".join(advice_lines(found, Paint(wants_colour(sys.stdout)), width)))
    else:
        echo(f"Nothing that {directory.job_id} has shown so far asks for a change")
