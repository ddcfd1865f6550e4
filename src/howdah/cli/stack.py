"""``howdah stack``: where a running task's threads are."""

from __future__ import annotations

import asyncio

import click

from howdah.cli.jobs import handle_of, job_id_argument, json_option, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("stack")
@job_id_argument
@click.option("--task", required=True, metavar="NAME", help="The task, such as worker:1.")
@store_option
@json_option
def command(job_id: str, task: str, store: str | None, as_json: bool) -> None:
    """Show where a running task's Python threads are (by py-spy).

    The program is stopped for some milliseconds meanwhile, and notices nothing.

    With --json: one JSON object, {"task": …, "text": …}.
    """
    text = asyncio.run(handle_of(job_id, store).stacks(task))
    if as_json:
        import msgspec

        echo_json(msgspec.json.encode({"task": task, "text": text}))
    else:
        echo(text)
