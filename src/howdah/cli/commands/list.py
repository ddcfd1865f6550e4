"""``howdah list``: all jobs."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from howdah.cli import leaving
from howdah.cli.arguments import (
    MOST,
    json_option,
    name_option,
    of_backend_option,
    say_left_out,
    say_passed_over,
    since_option,
    store_option,
    tags_option,
)
from howdah.cli.display.terminal import echo, echo_json
from howdah.client.lookup.states import STATES, state

if TYPE_CHECKING:
    from howdah.wire.status import JobView


@click.command("list")
@click.option(
    "-n", "--limit", type=click.IntRange(1, MOST), metavar="N", help="At most the newest N jobs."
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    help="Only jobs in this state; repeatable.",
)
@of_backend_option
@tags_option
@name_option
@click.option("--user", metavar="USER", help="Only jobs that this user submitted.")
@since_option("Only jobs submitted since then")
@store_option
@json_option
def command(
    limit: int | None,
    states: tuple[str, ...],
    backend: str | None,
    tags: tuple[str, ...],
    name: str | None,
    user: str | None,
    since: float | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List jobs, newest first.

    A job is "lost" if it has not ended but no longer has a coordinator: the machine restarted, or
    the client was killed before it had submitted the job. A job is "unreadable" if its directory
    cannot be read. A job that someone else has made, or could have made, is left out with a
    warning; so is one on a cluster that cannot be copied to this machine.

    With --json: a list of status documents.
    """
    from howdah.backends import registry
    from howdah.client.errors import BadInput
    from howdah.client.lookup.find import base as base_of
    from howdah.client.lookup.find import ids_at
    from howdah.client.lookup.listing import JobFilter, views
    from howdah.plugins import not_known

    base = base_of(store)
    there = ids_at(store, say_left_out)
    wanted = JobFilter(tags=tags, name=name, user=user, since=since)
    if backend is not None and there is None:
        # Which of them are wanted, only their copies tell.
        newest = limit if limit is not None and not states and wanted == JobFilter() else MOST
        registry.jobs_elsewhere(backend, store, newest, say_left_out)
    found = leaving.run(
        views(
            base,
            limit=None if states or there is not None else limit,
            backend=backend,
            wanted=wanted,
            passed_over=say_passed_over,
        )
    )
    if there is not None:
        found = [view for view in found if view.job_id in there]
    found = [view for view in found if not states or state(view) in states][:limit]
    filtered = wanted != JobFilter() or backend is not None
    if as_json:
        echo_json(found)
    elif found:
        echo("\n".join(_table(found)))
    elif backend is not None and (known := registry.unknown(backend)):
        raise BadInput(f"There is no backend {not_known(backend, known)}")
    else:
        such = "such " if filtered else ""
        echo(
            f"There are no {such}{' or '.join(states) + ' ' if states else ''}jobs in {base if there is None else store}"
        )


def _table(views: list[JobView]) -> list[str]:
    from howdah.cli.display import formatting as human
    from howdah.cli.display.formatting import Paint, TableColumn, render, wants_colour, window_width

    columns = (
        TableColumn("ID"),
        TableColumn("STATE"),
        TableColumn("FRAMEWORK"),
        TableColumn("TASKS", right=True),
        TableColumn("SUBMITTED"),
        TableColumn("TOOK", right=True),
        TableColumn("RESTARTS", right=True),
        TableColumn("WHY", gives=True),
    )
    paint = Paint(wants_colour(sys.stdout))
    now = time.time()
    rows: list[tuple[str, ...]] = []
    for view in views:
        took = None
        if view.submitted is not None and not view.lost:
            took = (view.finished or now) - view.submitted
        rows.append(
            (
                view.job_id,
                paint.state(state(view)),
                view.framework,
                str(len(view.tasks)) if view.tasks else "",
                human.moment(view.submitted),
                human.duration(took),
                str(view.restarts) if view.restarts else "",
                "" if view.outcome == "succeeded" else view.reason,
            )
        )
    return render(columns, rows, paint, width=window_width() if sys.stdout.isatty() else None)
