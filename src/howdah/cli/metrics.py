"""``howdah metrics``: what was measured of a job's tasks, and what they reported."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from howdah.cli.jobs import handle_of, json_option, since_option, store_option, tasks_argument
from howdah.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.cli.paint import Paint
    from howdah.client.measurements import Measurement


@click.command("metrics")
@tasks_argument
@since_option("Only what was measured since then")
@click.option("--csv", "as_csv", is_flag=True, help="Print every measurement as CSV.")
@store_option
@json_option
def command(
    job_id: str | None,
    tasks: tuple[str, ...],
    since: float | None,
    as_csv: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Print what was measured of a job's tasks, and what they reported.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. TASK is a
    task such as worker:1, or a role for all of its tasks; all tasks without it.

    The table has the last known values of each task's newest attempt: cores in use, memory, GPUs,
    megabytes read and written since its start, and what was given to howdah.task.report. A running
    job's measurements come some seconds late.

    With --csv or --json: every measurement, a line each, with times in seconds since the epoch.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two formats: give one of them")
    from howdah.client.measurements import last, measurements

    handle = handle_of(job_id, store)
    floor = float("-inf") if since is None else since
    found = measurements(handle.job_directory, handle.tasks(*tasks), floor)
    if as_json:
        import msgspec

        for each in found:
            echo_json(msgspec.json.encode(each))
        return
    known = list(found)
    if as_csv:
        sys.stdout.writelines(_csv(known))
    elif known:
        from howdah.cli.paint import Paint, wants_colour

        order = {str(task): number for number, task in enumerate(handle.all_tasks())}
        shown = sorted(last(known), key=lambda each: order.get(each.task, len(order)))
        echo("\n".join(_table(shown, Paint(wants_colour(sys.stdout)))))
    else:
        such = f" of {', '.join(tasks)}" if tasks else ""
        late = " since then" if since is not None else " yet"
        echo(f"Nothing has been measured{such} in {handle.job_id}{late}")


def _csv(found: list[Measurement]) -> Iterator[str]:
    import csv
    import io

    from howdah.client.measurements import MEASURED

    values = _names(found)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("time", "task", "attempt", *MEASURED, *values))
    for each in found:
        measured = (getattr(each, name) for name in MEASURED)
        reported = (each.values.get(name) for name in values)
        writer.writerow((each.time, each.task, each.attempt, *measured, *reported))
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _table(found: list[Measurement], paint: Paint) -> list[str]:
    from howdah.cli import paint as human
    from howdah.cli.tables import Column, render, window_width

    values = _names(found)
    numbers = ("CPU", "MEMORY", "GPU", "GPU MEMORY", "READ", "WRITTEN")
    columns = [Column("TASK"), Column("ATTEMPT", right=True), Column("AT")]
    columns += [Column(title, right=True) for title in (*numbers, *values)]
    rows = [
        (
            each.task,
            str(each.attempt),
            human.moment(each.time),
            "" if each.cpu is None else f"{each.cpu:.1f}",
            human.mebibytes(each.rss_mb),
            "" if each.gpu is None else f"{each.gpu:.0%}",
            human.mebibytes(each.gpu_memory_mb),
            human.mebibytes(each.io_read_mb),
            human.mebibytes(each.io_write_mb),
            *(
                "" if (value := each.values.get(name)) is None else f"{value:.6g}"
                for name in values
            ),
        )
        for each in found
    ]
    return render(columns, rows, paint, width=window_width() if sys.stdout.isatty() else None)


def _names(found: Iterable[Measurement]) -> list[str]:
    """What was reported."""
    return list(dict.fromkeys(name for each in found for name in each.values))
