"""``howdah logs``: what a job's tasks wrote."""

from __future__ import annotations

import asyncio
import re
import sys

import click

from howdah.cli.jobs import MOST, handle_of, json_option, optional_job_id, store_option, tail_option


def _pattern(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> re.Pattern[bytes] | None:
    if value is None:
        return None
    try:
        return re.compile(value.encode())
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}") from error


@click.command("logs")
@optional_job_id
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("--task", metavar="NAME", help="Only this task, such as worker:1.")
@click.option(
    "--attempt",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Only this attempt; without it every attempt, oldest first.",
)
@click.option(
    "--grep",
    callback=_pattern,
    metavar="REGEX",
    help="Only lines in which this regular expression is found.",
)
@tail_option("all")
@click.option("--no-prefix", is_flag=True, help="Without task names in front of the lines.")
@store_option
@json_option
def command(
    job_id: str | None,
    follow: bool,
    task: str | None,
    attempt: int | None,
    grep: re.Pattern[bytes] | None,
    tail: int | None,
    no_prefix: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Print what a job's tasks wrote.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. Without
    --follow tasks come one after the other, with it as they write.

    With --json: one line of log a line, with its task, attempt, offset and text.
    """
    import msgspec

    from howdah.cli.paint import Paint, wants_colour
    from howdah.cli.screen import Prefixes
    from howdah.cli.terminal import echo, is_terminal, tame_json, tame_line
    from howdah.client.items import log_line
    from howdah.client.merge import Lines, Stream

    handle = handle_of(job_id, store)
    terminal = is_terminal(sys.stdout)
    prefixes = Prefixes(Paint(wants_colour(sys.stdout)), attempts=True, terminal=terminal)
    out = sys.stdout.buffer
    notes: list[str] = []

    def show(stream: Stream, found: list[tuple[int, bytes]]) -> None:
        if grep is not None:
            found = [(offset, line) for offset, line in found if grep.search(line)]
        if as_json:
            items = [log_line(stream, offset, line) for offset, line in found]
            out.write(tame_json(b"".join(msgspec.json.encode(item) + b"\n" for item in items)))
        elif no_prefix:
            lines = (tame_line(line) if terminal else line for _, line in found)
            out.write(b"".join(line + b"\n" for line in lines))
        else:
            out.write(prefixes.before(stream, [line for _, line in found]))
        if follow:
            out.flush()

    async def tell() -> None:
        cut = Lines()
        before: Stream | None = None
        updates = handle.log_bytes(
            task, attempt=attempt, follow=follow, tail=tail, note=notes.append
        )
        async for update in updates:
            stream = Stream(update.task, update.attempt)
            if before is not None and before != stream and not follow:
                show(before, cut.finish(before))  # one log after the other: that one is at its end
            before = stream
            show(stream, cut.feed(stream, update.offset, update.data))
        for stream, offset, line in cut.finish_all():
            show(stream, [(offset, line)])

    asyncio.run(tell())
    for text in notes:
        echo(f"howdah: {text}", err=True)
