"""``howdah logs``: what a job's tasks wrote."""

from __future__ import annotations

import re
import sys

import click

from howdah.cli import leaving
from howdah.cli.arguments import (
    MOST,
    handle_of,
    json_option,
    since_option,
    store_option,
    tail_option,
    tasks_argument,
)


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
@tasks_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--attempt",
    type=click.IntRange(1, MOST),
    metavar="N",
    help="Only this attempt; by default every attempt.",
)
@since_option("Only lines written since then")
@click.option(
    "--grep",
    callback=_pattern,
    metavar="REGEX",
    help="Only lines that match this regular expression.",
)
@tail_option("all")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--no-prefix", is_flag=True, help="Print no task names before the lines.")
@store_option
@json_option
def command(
    job_id: str | None,
    tasks: tuple[str, ...],
    follow: bool,
    attempt: int | None,
    since: float | None,
    grep: re.Pattern[bytes] | None,
    tail: int | None,
    timestamps: bool,
    no_prefix: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Print what a job's tasks wrote, merged in the order of time.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. TASK is a
    task such as worker:1, or a role for all of its tasks; by default all tasks.

    Times are those of the tasks' hosts. They are accurate to a tenth of a second, in very long logs
    to 20 seconds. Lines that only YARN has kept have no time: they come first, and --since shows
    all of them.

    With --json: one object per line of a log, with its task, attempt, offset, text and time (in
    seconds since the epoch).
    """
    import msgspec

    from howdah.cli.display.formatting import Paint, moment, wants_colour
    from howdah.cli.display.screen import Prefixes
    from howdah.cli.display.terminal import echo, is_terminal, tame_json, tame_line
    from howdah.client.following.items import log_line
    from howdah.client.following.log_lines import LogBlock

    handle = handle_of(job_id, store)
    terminal = is_terminal(sys.stdout)
    paint = Paint(wants_colour(sys.stdout))
    prefixes = Prefixes(paint, attempts=True, terminal=terminal)
    out = sys.stdout.buffer
    notes: list[str] = []

    def time_of(block: LogBlock) -> bytes:
        if not timestamps:
            return b""
        if block.time is None:
            text = "-".ljust(21)
        else:
            text = f"{moment(block.time)}.{int(block.time * 10) % 10}"
        return f"{paint(text, dim=True)} ".encode()

    empty = True

    def show(block: LogBlock) -> None:
        nonlocal empty
        empty = False
        found = block.lines
        if grep is not None:
            found = [(offset, line) for offset, line in found if grep.search(line)]
        if as_json:
            items = [log_line(block.stream, *line, time=block.time) for line in found]
            out.write(tame_json(b"".join(msgspec.json.encode(item) + b"\n" for item in items)))
        elif no_prefix:
            lines = (tame_line(line) if terminal else line for _, line in found)
            before = time_of(block)
            out.write(b"".join(before + line + b"\n" for line in lines))
        else:
            lines = [line for _, line in found]
            out.write(prefixes.before(block.stream, lines, time_of(block)))
        if follow:
            out.flush()

    async def tell() -> None:
        async for block in handle.log_blocks(
            *tasks, attempt=attempt, follow=follow, tail=tail, since=since, note=notes.append
        ):
            show(block)

    leaving.run(tell())
    if empty and not notes and since is None and tail != 0 and not as_json:
        what = ", ".join(map(str, tasks)) if tasks else handle.job_id
        which = "" if attempt is None else f"attempt {attempt} of "
        echo(f"howdah: {which}{what} has written nothing", err=True)
    for text in notes:
        echo(f"howdah: {text}", err=True)
