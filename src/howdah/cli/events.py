"""``howdah events``: a job's event log."""

from __future__ import annotations

import asyncio
import sys

import click

from howdah.cli.jobs import MOST, handle_of, json_option, optional_job_id, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("events")
@optional_job_id
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--after",
    type=click.IntRange(0, MOST),
    default=0,
    metavar="SEQ",
    help="Only events after this number (see --json).",
)
@click.option("--task", metavar="NAME", help="Only events of this task, such as worker:1.")
@store_option
@json_option
def command(
    job_id: str | None,
    follow: bool,
    after: int,
    task: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Print a job's event log: what happened, when, and why.

    ID is a job's id, its name, or enough of its beginning; the newest job without it.

    With --json: one event a line, with its number ("seq"), time, level, kind, text, task,
    attempt, generation and data.
    """
    import msgspec

    from howdah.cli.paint import Paint, clock, wants_colour

    handle = handle_of(job_id, store)
    if task is not None:
        handle.task(task)
    paint = Paint(wants_colour(sys.stdout))
    colours = {"error": "red", "warning": "yellow"}

    async def tell() -> None:
        async for event in handle.events(after=after, follow=follow):
            if task is not None and event.task != task:
                continue
            if as_json:
                echo_json(msgspec.json.encode(event))
                continue
            text = paint(event.text, colours.get(event.level))
            echo(f"{paint(clock(event.time), dim=True)}  {text}", color=paint.colour)

    asyncio.run(tell())
