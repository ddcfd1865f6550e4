"""Commands that print what is known of one job: ``status``, ``events``, ``advice``, ``metrics``, ``outputs``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from howdah.cli.arguments import (
    MOST,
    find_job,
    handle_of,
    json_option,
    optional_job_id,
    since_option,
    store_option,
    tasks_argument,
)
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.cli.display.formatting import Paint
    from howdah.client.measurements import Measurement


@click.command("status")
@optional_job_id
@store_option
@json_option
def status_command(job_id: str | None, store: str | None, as_json: bool) -> None:
    """Show one job: its tasks, failures and pages.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. The addresses
    of its pages work once, within ten minutes. FOR is how long a task has been in its state, LAST LINE
    the newest whole line that it has printed, cut to the window.

    With --json: the status document, as in the job's final.json.
    """
    from howdah.cli import leaving

    handle = handle_of(job_id, store)
    view = leaving.run(handle.status())
    if as_json:
        echo_json(view)
        return
    from howdah.cli.display.formatting import Paint, wants_colour, window_width
    from howdah.cli.display.summary import may_advise, report
    from howdah.client.advice_inputs import findings_if_known

    width = window_width() if sys.stdout.isatty() else None
    pages: dict[str, str] = {}
    if view.live:
        wanted = {"Page": "", **{link.name: link.href for link in view.links}}
        pages = {name: page for name, to in wanted.items() if (page := handle.page(to)) is not None}
    found = findings_if_known(handle.job_directory) if view.over and may_advise(view) else []
    paint = Paint(wants_colour(sys.stdout))
    now = handle.clock()
    echo("\n".join(report(view, paint, width=width, pages=pages, now=now, findings=found)))


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
def events_command(
    job_id: str | None,
    follow: bool,
    after: int,
    task: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Print a job's event log: what happened, when, and why.

    ID is a job's id, its name, or enough of its beginning; by default the newest job.

    With --json: one event per line, with its number ("seq"), time, level, kind, text, task,
    attempt, generation and data.
    """
    from howdah.cli import leaving
    from howdah.cli.display.formatting import Paint, clock, wants_colour

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
                echo_json(event)
                continue
            text = paint(event.text, colours.get(event.level))
            echo(f"{paint(clock(event.time), dim=True)}  {text}", color=paint.colour)

    leaving.run(tell())


@click.command("advice")
@optional_job_id
@store_option
@json_option
def advice_command(job_id: str | None, store: str | None, as_json: bool) -> None:
    """Say what a job wasted, and what to change in its job file.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. Looks at what
    was measured so far: memory, cores and GPUs, slow tasks, the start, checkpoints and restarts.
    The worst finding comes first.

    With --json: a list of findings, each with its rule, severity (1 to 4), score, text, change and the
    figures that were used.
    """
    from howdah.cli.display.formatting import Paint, wants_colour, window_width
    from howdah.cli.display.summary import advice_lines
    from howdah.client.advice_inputs import findings

    directory = find_job(job_id, store)
    found = findings(directory)
    if as_json:
        echo_json(found)
    elif found:
        width = window_width() if sys.stdout.isatty() else None
        echo("\n".join(advice_lines(found, Paint(wants_colour(sys.stdout)), width)))
    else:
        echo(f"Nothing that {directory.job_id} has shown so far asks for a change")


@click.command("metrics")
@tasks_argument
@since_option("Only what was measured since then")
@click.option("--csv", "as_csv", is_flag=True, help="Print every measurement as CSV.")
@store_option
@json_option
def metrics_command(
    job_id: str | None,
    tasks: tuple[str, ...],
    since: float | None,
    as_csv: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Print what was measured of a job's tasks, and what they reported.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. TASK is a
    task such as worker:1, or a role for all of its tasks; by default all tasks.

    The table has the last known values of each task's newest attempt: cores in use, memory, GPUs,
    megabytes read and written since its start, and what the program gave to howdah.task.report. The
    measurements of a running job are some seconds late.

    With --csv or --json: every measurement, one per line, with times in seconds since the epoch.
    """
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two formats: give one of them")
    from howdah.client.measurements import last, measurements

    handle = handle_of(job_id, store)
    floor = float("-inf") if since is None else since
    found = measurements(handle.job_directory, handle.tasks(*tasks), floor)
    if as_json:
        for each in found:
            echo_json(each)
        return
    known = list(found)
    if as_csv:
        sys.stdout.writelines(_csv(known))
    elif known:
        from howdah.cli.display.formatting import Paint, wants_colour

        order = {str(task): number for number, task in enumerate(handle.all_tasks())}
        shown = sorted(last(known), key=lambda each: order.get(each.task, len(order)))
        echo("\n".join(_table(shown, Paint(wants_colour(sys.stdout)))))
    else:
        such = f" of {', '.join(tasks)}" if tasks else ""
        late = " since then" if since is not None else ""
        echo(
            f"Nothing has been measured{such} in {handle.job_id}{late}; "
            "a task's first measurement comes some seconds after its start"
        )


def _csv(found: list[Measurement]) -> Iterator[str]:
    import csv
    import io

    from howdah.client.measurements import MEASURED

    values = _names(found)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("time", "task", "attempt", "step", *MEASURED, *values))
    for each in found:
        measured = (getattr(each, name) for name in MEASURED)
        reported = (each.values.get(name) for name in values)
        writer.writerow((each.time, each.task, each.attempt, each.step, *measured, *reported))
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _table(found: list[Measurement], paint: Paint) -> list[str]:
    from howdah.cli.display import formatting as human
    from howdah.cli.display.formatting import TableColumn, render, window_width

    values = _names(found)
    numbers = ("CPU", "MEMORY", "GPU", "GPU MEMORY", "READ", "WRITTEN")
    columns = [TableColumn("TASK"), TableColumn("ATTEMPT", right=True), TableColumn("AT")]
    columns += [TableColumn(title, right=True) for title in (*numbers, *values)]
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


@click.command("outputs")
@optional_job_id
@click.argument("name", metavar="[FILE]", required=False)
@click.option(
    "--to",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Copy FILE there: a folder, or the path of a file that does not exist. By default the "
    "current folder.",
)
@store_option
@json_option
def outputs_command(
    job_id: str | None, name: str | None, to: Path | None, store: str | None, as_json: bool
) -> None:
    """List the files that were kept of a job, or fetch one.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. FILE is the
    path of a file as it is listed, or enough of its end, such as model/weights.pt for
    worker-0/model/weights.pt. The file is copied from wherever it is, also from HDFS or an object
    store.

    With --json: a list of files, each with its name, task, size in bytes and place, and for a file
    that was fetched also its path.
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

            echo_json({**msgspec.to_builtins(output), "path": str(path)})
        else:
            echo(str(path))
        return
    if as_json:
        echo_json(found)
    elif found:
        from howdah.cli.display import formatting as human
        from howdah.cli.display.formatting import (
            Paint,
            TableColumn,
            render,
            wants_colour,
            window_width,
        )

        rows = [(f"{each.size:,}", each.name) for each in found]
        columns = (TableColumn("BYTES", right=True), TableColumn("FILE"))
        width = window_width() if sys.stdout.isatty() else None
        echo("\n".join(render(columns, rows, Paint(wants_colour(sys.stdout)), width=width)))
        total = human.mebibytes(sum(each.size for each in found) / 2**20)
        echo(f"{human.counted(len(found), 'file')}, {total}, in {found[0].place}", err=True)
    else:
        echo(f"Nothing has been kept of {handle.job_id}")
