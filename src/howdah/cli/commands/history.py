"""``howdah history``: what many jobs held, and what came of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from howdah.cli import leaving
from howdah.cli.arguments import json_option, say_left_out, since_option, store_option
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.client.accounting import JobUsage, Usage

F = TypeVar("F", bound=Callable[..., Any])

GROUPS = ("user", "queue", "name", "framework", "week", "node", "tag")


def _options(command: F) -> F:
    for option in (
        json_option,
        click.option(
            "--parquet",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Write a Parquet file instead; needs pyarrow.",
        ),
        click.option("--csv", "as_csv", is_flag=True, help="Print CSV."),
        click.option(
            "--all-users",
            is_flag=True,
            help="Count the jobs of all users below --store; needs an account that can read them.",
        ),
        store_option,
        since_option("Only jobs submitted since then"),
    ):
        command = option(command)
    return command


@click.group("history", invoke_without_command=True, subcommand_metavar="[query SQL]")
@click.option(
    "--by",
    type=click.Choice(GROUPS),
    help="Print one row for each of these, and one for all; by default only one row for all jobs.",
)
@_options
@click.pass_context
def command(
    ctx: click.Context,
    by: str | None,
    since: float | None,
    store: str | None,
    all_users: bool,
    as_csv: bool,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Add up what jobs held, and how much of it was useful.

    This counts all hours of ended and running jobs. GPU-, core- and GiB-hours are what the job
    files ask for, from the grant of each container to its end. GOODPUT is the part of these hours
    that went into work that was kept. The rest went into preparing and waiting for peers, was lost
    to failures, or was idle. A job that cannot be read is left out, with a line on standard error.

    With --json: a list of rows. With --csv: the same as CSV.
    """
    if ctx.invoked_subcommand is not None:
        given = [name for name, value in ctx.params.items() if value not in (None, False)]
        if given:
            raise click.UsageError("options of a query go behind it: history query SQL --csv")
        return
    form = _Form(as_json, as_csv, parquet)
    from howdah.client.accounting import Usage, totals

    jobs = _jobs(since, store, all_users)
    rows = totals(jobs, by)
    if form.is_data:
        names = Usage.__struct_fields__
        form.write(names, [tuple(getattr(row, name) for name in names) for row in rows])
    elif jobs:
        if by is not None and len(rows) > 1:
            rows += totals(jobs)
        echo("\n".join(_table(by, rows)))
    else:
        echo("There are no such jobs")


@command.command("query")
@click.argument("sql", metavar="SQL")
@_options
def query_command(
    sql: str,
    since: float | None,
    store: str | None,
    all_users: bool,
    as_csv: bool,
    parquet: Path | None,
    as_json: bool,
) -> None:
    """Ask the tables jobs, containers and failures in SQL, as SQLite has it.

    A query can only read, such as "select user, sum(gpu_hours) from jobs group by user". The
    message about a wrong query lists the tables and columns.

    With --json: a list of objects, one per row. With --csv: the same as CSV.
    """
    form = _Form(as_json, as_csv, parquet)
    from howdah.client.usage_tables import query

    query((), sql)  # before jobs are read, which may take long
    columns, rows = query(_jobs(since, store, all_users), sql)
    if form.is_data:
        form.write(columns, rows)
    elif rows:
        from howdah.cli.display.formatting import Paint, TableColumn, render, wants_colour

        numbers = [
            all(isinstance(row[i], (int, float, type(None))) for row in rows)
            for i in range(len(columns))
        ]
        titles = [
            TableColumn(name, right=right) for name, right in zip(columns, numbers, strict=True)
        ]
        cells = [tuple(map(_cell, row)) for row in rows]
        echo("\n".join(render(titles, cells, Paint(wants_colour(sys.stdout)))))
    else:
        echo("No rows")


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    text = f"{value:.6f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return " ".join(text.split()) or " "


class _Form:
    """How rows are given out."""

    def __init__(self, as_json: bool, as_csv: bool, parquet: Path | None) -> None:
        if as_json + as_csv + (parquet is not None) > 1:
            raise click.UsageError(
                "--json, --csv and --parquet are three formats: give one of them"
            )
        if parquet is not None:
            try:
                import pyarrow.parquet  # noqa: F401
            except ImportError:
                raise click.UsageError(
                    "--parquet needs pyarrow, which is not installed here: pip install pyarrow"
                ) from None
        self._json, self._csv, self._parquet = as_json, as_csv, parquet
        self.is_data: bool = as_json or as_csv or parquet is not None

    def write(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        """Print the rows, or write them to the file."""
        if self._csv:
            import csv
            import io

            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows([columns, *rows])
            echo(text.getvalue(), nl=False)
            return
        if twice := {name for name in columns if list(columns).count(name) > 1}:
            raise click.UsageError(
                f"two columns are called {twice.pop()!r}: give one a name with AS"
            )
        if self._parquet is not None:
            _write_parquet(self._parquet, columns, rows)
            echo(f"{len(rows)} rows written to {self._parquet}", err=True)
            return
        echo_json([dict(zip(columns, row, strict=True)) for row in rows])


def _write_parquet(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    import pyarrow
    from pyarrow import parquet

    from howdah.storage.files import write_atomically

    try:
        arrays = {name: pyarrow.array([row[i] for row in rows]) for i, name in enumerate(columns)}
    except pyarrow.ArrowInvalid as error:
        raise click.UsageError(f"a column has values of several types: {error}; use cast") from None
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(arrays), sink)
    write_atomically(path, sink.getvalue().to_pybytes())


def _jobs(since: float | None, store: str | None, all_users: bool) -> list[JobUsage]:
    from howdah.client.lookup.find import base, ids_at
    from howdah.client.usage import usages

    if not all_users:
        there = ids_at(store, say_left_out)
        return leaving.run(usages(base(store), since=since, only=there, left_out=say_left_out))
    if store is None:
        raise click.UsageError(
            "--all-users needs --store: the folder or URL with the users' folders"
        )
    from howdah.cli.commands.portal import store_of
    from howdah.portal.copies import Copies, InUse
    from howdah.portal.jobs import list_folder

    try:
        copies = Copies(store_of(store), list_folder() / "history")
    except InUse:
        raise click.UsageError(
            f"another howdah history of this account reads {store} just now; try again after it"
        ) from None
    try:
        copies.bring(lambda: False)
        for folder, why in copies.unread.items():
            say_left_out(f"{folder}: {why}")
        return leaving.run(usages(copies.base, since=since, left_out=say_left_out))
    finally:
        copies.close()


def _table(by: str | None, rows: Sequence[Usage]) -> list[str]:
    from howdah.cli.display.formatting import Paint, TableColumn, render, wants_colour

    counts = ("jobs", "succeeded", "failed", "stopped", "unended", "failures")
    amounts = ("gpu_hours", "core_hours", "memory_gib_hours", "held_hours")
    waste = ("preparing_hours", "lost_hours", "idle_hours")
    titles = (
        *("JOBS", "SUCCEEDED", "FAILED", "STOPPED", "UNENDED", "FAILURES"),
        *("GPU-H", "CORE-H", "GIB-H", "HELD-H", "GOODPUT", "PREPARING-H", "LOST-H", "IDLE-H"),
    )
    columns = [
        TableColumn((by or "").upper()),
        *(TableColumn(title, right=True) for title in titles),
    ]
    cells = [
        (
            " ".join(row.group.split()) or ("all" if by else ""),
            *(f"{value:,}" if (value := getattr(row, name)) else "" for name in counts),
            *(_hours(getattr(row, name)) for name in amounts),
            "" if row.goodput is None else f"{row.goodput:.0%}",
            *(_hours(getattr(row, name)) for name in waste),
        )
        for row in rows
    ]
    return render(columns, cells, Paint(wants_colour(sys.stdout)))


def _hours(value: float) -> str:
    """Two decimals; so little that they would be none reads ``<0.01``."""
    if not value:
        return ""
    return "<0.01" if value < 0.01 else f"{value:,.2f}"
