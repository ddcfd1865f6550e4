"""Commands that remove jobs: ``rm``, ``prune``."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from howdah.cli.arguments import (
    MOST,
    find_job,
    job_ids_argument,
    json_option,
    name_option,
    of_backend_option,
    say_left_out,
    say_passed_over,
    store_option,
    tags_option,
)
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.storage.jobdir import JobDirectory
    from howdah.wire.status import JobView


@click.command("rm")
@job_ids_argument
@store_option
@json_option
def rm_command(job_ids: tuple[str, ...], store: str | None, as_json: bool) -> int:
    """Remove jobs that have ended, with all that is in their directories.

    This removes their logs, their event logs, and the checkpoints and outputs in the job directory,
    here and on HDFS. Files that the job file sends elsewhere stay. A job that has not ended is not
    removed, and neither is one that a running job resumed from.

    Exits with 0 if all were removed. With --json: {"removed": [{"job_id", "bytes"}, …], "failed":
    [{"job_id", "reason"}, …]}.
    """
    removing = Removing(as_json)
    for job_id in dict.fromkeys(job_ids):
        removing.remove(job_id, lambda job_id=job_id: find_job(job_id, store))
    if as_json:
        echo_json(removing.document())
    elif len(job_ids) > 1:
        echo(removing.total())
    return removing.exit_code


OLDER_THAN = "30d"
"""As TonY keeps its history."""
ENDED = ("succeeded", "failed", "stopped", "timed-out")


def _span(_ctx: click.Context, _param: click.Parameter, text: str | None) -> float | None:
    return None if text is None else span_of(text)


def span_of(text: str) -> float:
    """Seconds of what an option says.

    Raises:
        click.BadParameter: it is no span of time.
    """
    from howdah.spec.units import span

    try:
        return span(text)
    except ValueError as error:
        raise click.BadParameter(f"{text[:40]!r} {error}, such as 12h or 30d") from error


def _size(_ctx: click.Context, _param: click.Parameter, text: str | None) -> int | None:
    return None if text is None else size_of(text)


def size_of(text: str) -> int:
    """Bytes of what an option says, in the units of job files.

    Raises:
        click.BadParameter: it is no size, or greater than any store.
    """
    from howdah.spec.units import octets

    try:
        return octets(text)
    except ValueError:
        raise click.BadParameter(
            f"{text[:40]!r} is no size up to 1024 TB; write it as 500m, 200g or 1.5t"
        ) from None


@click.command("prune")
@click.option("--yes", is_flag=True, help="Remove the jobs; by default they are only listed.")
@click.option(
    "--older-than",
    "older_than_s",
    callback=_span,
    metavar="TIME",
    help=f"Only jobs that ended longer ago than this, such as 12h. By default {OLDER_THAN}, unless you "
    "give --keep or --keep-size.",
)
@click.option(
    "--keep-size",
    "keep_bytes",
    callback=_size,
    metavar="SIZE",
    help="Only as many as needed until all jobs together take no more room than this, such as 200g. Jobs "
    "that ended first go first.",
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
    help="Only jobs in this state; repeatable. By default all but lost ones.",
)
@tags_option
@name_option
@of_backend_option
@store_option
@json_option
def prune_command(
    yes: bool,
    older_than_s: float | None,
    keep_bytes: int | None,
    keep: int,
    states: tuple[str, ...],
    tags: tuple[str, ...],
    name: str | None,
    backend: str | None,
    store: str | None,
    as_json: bool,
) -> int:
    """Remove jobs that ended long ago; without --yes, list them.

    Removes each job as 'howdah rm' does: with its logs, and with the checkpoints and outputs in its
    directory, here and on HDFS. Jobs that have not ended stay. Lost jobs stay too, because 'howdah
    attach --revive' can take them up again; --state lost removes them. Jobs that running jobs were
    begun from stay. 'howdah pack --clean' removes archives that were shipped to a cluster.

    --keep-size counts the room of all jobs that --name, --tag and --backend choose, running ones too.
    Jobs that --older-than, --keep or --state leave are not removed, even if they need more room.

    With --store hdfs://... it removes your jobs there, whichever machine submitted them.

    Jobs of which the cluster does not tell whether they have ended are named, and stay.

    Exits with 0 if all were removed. With --json: {"removed": [{"job_id", "bytes"}, …], "failed":
    [{"job_id", "reason"}, …]}; without --yes, {"would_remove": [{"job_id", "bytes"}, …]}.
    """
    from howdah.backends import registry
    from howdah.backends.base import BackendError
    from howdah.cli import leaving
    from howdah.client.lookup.find import base as base_of
    from howdah.client.lookup.find import ids_at
    from howdah.client.lookup.listing import JobFilter, views
    from howdah.client.removal import Retention, expired, oldest_beyond
    from howdah.spec.units import span
    from howdah.storage.jobdir import JobDirectory

    base = base_of(store)
    there = ids_at(store, say_left_out)
    if backend is not None and there is None:
        registry.jobs_elsewhere(backend, store, MOST, say_left_out)
    if older_than_s is None:
        older_than_s = 0.0 if keep or keep_bytes is not None else span(OLDER_THAN)

    unknown: list[JobView] = []
    found = leaving.run(
        views(
            base,
            backend=backend,
            wanted=JobFilter(tags=tags, name=name),
            passed_over=say_passed_over,
            unknown=unknown.append,
        )
    )
    if there is not None:
        found = [view for view in found if view.job_id in there]
    removing = Removing(as_json)
    for view in unknown:
        may_be_old = time.time() - (view.submitted or 0.0) > older_than_s
        if may_be_old and (there is None or view.job_id in there):
            removing.fail(
                view.job_id,
                BackendError(
                    f"whether {view.job_id} has ended is not known: {view.reason}. It stays; try again"
                ),
            )
    retention = Retention(states=states or ENDED, older_than_s=older_than_s, keep=keep)
    gone = expired(found, retention, time.time())
    if keep_bytes is not None:
        gone = oldest_beyond(found, gone, base, keep_bytes, _size_unknown)
    if not yes:
        _list(gone, base, as_json)
        return removing.exit_code
    for view in gone:
        removing.remove(view.job_id, lambda view=view: JobDirectory(base / view.job_id))
    if as_json:
        echo_json(removing.document())
    else:
        echo(removing.total())
    return removing.exit_code


def _size_unknown(job_id: str, why: Exception) -> None:
    echo(f"howdah: the size of {job_id} is not known: {why}", err=True)


def _list(gone: list[JobView], base: Path, as_json: bool) -> None:
    from howdah.backends.base import BackendError
    from howdah.cli.display.formatting import (
        Paint,
        TableColumn,
        counted,
        moment,
        render,
        wants_colour,
        window_width,
    )
    from howdah.client.removal import Names, size
    from howdah.packing.archives import quantity
    from howdah.storage.jobdir import JobDirectory, StorageError

    sizes: dict[str, int] = {}
    names: Names = {}
    for view in gone:
        try:
            sizes[view.job_id] = size(JobDirectory(base / view.job_id), names)
        except (BackendError, StorageError) as error:
            _size_unknown(view.job_id, error)
            sizes[view.job_id] = 0
    if as_json:
        would = [{"job_id": job_id, "bytes": freed} for job_id, freed in sizes.items()]
        echo_json({"would_remove": would})
        return
    if not gone:
        echo(f"There is nothing to remove in {base}")
        return
    columns = (
        TableColumn("ID"),
        TableColumn("STATE"),
        TableColumn("ENDED"),
        TableColumn("SIZE", right=True),
    )
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


class Removing:
    """Removes jobs; one that cannot be removed does not keep the others."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._removed: list[dict[str, object]] = []
        self._failed: list[dict[str, object]] = []
        self._freed = 0
        self.exit_code: int = 0

    def remove(self, job_id: str, find: Callable[[], JobDirectory]) -> None:
        """Remove the job that ``find`` finds, and print it."""
        from howdah.backends.base import BackendError
        from howdah.client.errors import HowdahError
        from howdah.client.removal import NotRemoved, remove
        from howdah.packing.archives import quantity
        from howdah.storage.jobdir import StorageError

        try:
            directory = find()
            job_id = directory.job_id
            removed = remove(directory)
        except (HowdahError, BackendError, StorageError) as error:
            if isinstance(error, NotRemoved):
                self._freed += error.freed
            self.fail(job_id, error)
            return
        self._freed += removed.freed
        self._removed.append({"job_id": job_id, "bytes": removed.freed})
        if not self._as_json:
            stays = f"; its {removed.stays} stay" if removed.stays else ""
            echo(f"{job_id} removed, {quantity(removed.freed)} freed{stays}")

    def fail(self, job_id: str, error: Exception) -> None:
        """Count the job as not removed, and say why."""
        from howdah.cli.failures import report

        self._failed.append({"job_id": job_id, "reason": str(error)})
        self.exit_code = max(self.exit_code, report(error))

    def total(self) -> str:
        """All in one line."""
        from howdah.cli.display.formatting import counted
        from howdah.packing.archives import quantity

        failed = f", {len(self._failed)} not removed" if self._failed else ""
        return (
            f"{counted(len(self._removed), 'job')} removed{failed}, {quantity(self._freed)} freed"
        )

    def document(self) -> dict[str, object]:
        """All, for ``--json``."""
        return {"removed": self._removed, "failed": self._failed}
