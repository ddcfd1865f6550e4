"""``howdah prune``: remove old jobs."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from howdah.cli.jobs import (
    MOST,
    json_option,
    name_option,
    of_backend_option,
    say_passed_over,
    store_option,
    tags_option,
)
from howdah.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.wire.status import JobView

OLDER_THAN = "30d"
"""As TonY keeps its history."""
ENDED = ("succeeded", "failed", "stopped", "timed-out")


def _span(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    from howdah.client.moments import span

    if text is None:
        return None
    try:
        return span(text)
    except ValueError as error:
        raise click.BadParameter(f"{text[:40]!r} {error}, such as 12h or 30d") from error


@click.command("prune")
@click.option("--yes", is_flag=True, help="Remove them. Without it they are only listed.")
@click.option(
    "--older-than",
    "older_than_s",
    callback=_span,
    metavar="TIME",
    help=f"Only jobs that ended longer ago, such as 12h. {OLDER_THAN} unless --keep is given.",
)
@click.option(
    "--keep",
    type=click.IntRange(0, MOST),
    default=0,
    metavar="N",
    help="Keep the newest N jobs of each name.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice((*ENDED, "lost")),
    help="Only jobs in this state; repeatable. All but lost ones when left out.",
)
@tags_option
@name_option
@of_backend_option
@store_option
@json_option
def command(
    yes: bool,
    older_than_s: float | None,
    keep: int,
    states: tuple[str, ...],
    tags: tuple[str, ...],
    name: str | None,
    backend: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Remove jobs that ended long ago; without --yes, list them.

    Each is removed as 'howdah rm' removes it: with its logs, and with the checkpoints and outputs that
    are kept in its directory, here and on HDFS. Jobs that have not ended stay, and so do lost ones,
    which 'howdah attach --revive' may take up again, unless --state lost asks for them. Archives that
    were shipped to a cluster are removed by 'howdah pack --clean'.

    Exits with 0 if all were removed. With --json: {"removed": [{"job_id", "bytes"}, …], "failed":
    [{"job_id", "reason"}, …]}; without --yes {"would_remove": [{"job_id", "bytes"}, …]}.
    """
    from howdah.backends import registry
    from howdah.cli.removing import Removing
    from howdah.client.finding import base as base_of
    from howdah.client.listing import Wanted, views
    from howdah.client.moments import span
    from howdah.client.removal import Retention, expired
    from howdah.storage.jobdir import JobDirectory

    base = base_of(store)
    if backend is not None:
        registry.jobs_elsewhere(backend, store, MOST)
    if older_than_s is None:
        older_than_s = 0.0 if keep else span(OLDER_THAN)

    found = asyncio.run(
        views(
            base,
            backend=backend,
            wanted=Wanted(tags=tags, name=name),
            passed_over=say_passed_over,
        )
    )
    retention = Retention(states=states or ENDED, older_than_s=older_than_s, keep=keep)
    gone = expired(found, retention, time.time())
    if not yes:
        return _list(gone, base, as_json)
    removing = Removing(as_json)
    for view in gone:
        removing.remove(view.job_id, lambda view=view: JobDirectory(base / view.job_id))
    if as_json:
        echo_json(removing.document())
    else:
        echo(removing.total())
    return removing.exit_code


def _list(gone: list[JobView], base: Path, as_json: bool) -> int:
    """Say what would be removed."""
    import msgspec

    from howdah.backends.base import BackendError
    from howdah.cli.paint import Paint, counted, moment, wants_colour
    from howdah.cli.tables import Column, render, window_width
    from howdah.client.removal import size
    from howdah.packing.archives import quantity
    from howdah.storage.jobdir import JobDirectory, StorageError

    sizes: dict[str, int] = {}
    for view in gone:
        try:
            sizes[view.job_id] = size(JobDirectory(base / view.job_id))
        except (BackendError, StorageError) as error:
            echo(f"howdah: the size of {view.job_id} is not known: {error}", err=True)
            sizes[view.job_id] = 0
    if as_json:
        would = [{"job_id": job_id, "bytes": freed} for job_id, freed in sizes.items()]
        echo_json(msgspec.json.encode({"would_remove": would}))
        return 0
    if not gone:
        echo(f"There is nothing to remove in {base}")
        return 0
    columns = (Column("ID"), Column("STATE"), Column("ENDED"), Column("SIZE", right=True))
    paint = Paint(wants_colour(sys.stdout))
    rows = [
        (
            view.job_id,
            paint.state("lost" if view.lost else str(view.outcome)),
            moment(view.finished),
            quantity(sizes[view.job_id]),
        )
        for view in gone
    ]
    width = window_width() if sys.stdout.isatty() else None
    echo("\n".join(render(columns, rows, paint, width=width)))
    freed = quantity(sum(sizes.values()))
    echo(f"{counted(len(gone), 'job')} would be removed, {freed} freed; to do it: --yes")
    return 0
