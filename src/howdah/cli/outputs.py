"""``howdah outputs``: what was kept of a job's files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from howdah.cli.jobs import handle_of, json_option, optional_job_id, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("outputs")
@optional_job_id
@click.argument("name", metavar="[FILE]", required=False)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Copy FILE there: a folder, or a name that is not taken. The current folder when left out.",
)
@store_option
@json_option
def command(
    job_id: str | None, name: str | None, to: Path | None, store: str | None, as_json: bool
) -> None:
    """List the files that were kept of a job, or fetch one.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. FILE is the
    path of one as it is listed, or enough of its end: model/weights.pt of
    worker-0/model/weights.pt. It is copied from wherever it is, HDFS or an object store too.

    With --json: a list of files, each with its name, task, size in bytes and place; of one that is
    fetched also the path.
    """
    from howdah.client.outputs import chosen, fetch, outputs

    if to is not None and name is None:
        raise click.UsageError("--to says where one file goes: name the file too")
    handle = handle_of(job_id, store)
    found = outputs(handle.job_directory)
    if name is not None:
        output = chosen(found, name)
        path = fetch(output, to or Path())
        if as_json:
            import msgspec

            echo_json(msgspec.json.encode({**msgspec.to_builtins(output), "path": str(path)}))
        else:
            echo(str(path))
        return
    if as_json:
        import msgspec

        echo_json(msgspec.json.encode(found))
    elif found:
        from howdah.cli import paint as human
        from howdah.cli.paint import Paint, wants_colour
        from howdah.cli.tables import Column, render, window_width

        rows = [(f"{each.size:,}", each.name) for each in found]
        columns = (Column("BYTES", right=True), Column("FILE"))
        width = window_width() if sys.stdout.isatty() else None
        echo("\n".join(render(columns, rows, Paint(wants_colour(sys.stdout)), width=width)))
        total = human.mebibytes(sum(each.size for each in found) / 2**20)
        echo(f"{human.counted(len(found), 'file')}, {total}, in {found[0].place}", err=True)
    else:
        echo(f"Nothing has been kept of {handle.job_id}")
