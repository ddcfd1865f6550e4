"""``howdah status``: one job."""

from __future__ import annotations

import asyncio
import sys
import time

import click

from howdah.cli.jobs import handle_of, json_option, optional_job_id, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("status")
@optional_job_id
@store_option
@json_option
def command(job_id: str | None, store: str | None, as_json: bool) -> None:
    """Show one job: its tasks, failures and pages.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. The
    addresses of its pages are good once, for ten minutes.

    With --json: the status document, as in the job's final.json.
    """
    handle = handle_of(job_id, store)
    view = asyncio.run(handle.status())
    if as_json:
        import msgspec

        echo_json(msgspec.json.encode(view))
        return
    from howdah.cli.paint import Paint, wants_colour
    from howdah.cli.summary import may_advise, report
    from howdah.cli.tables import window_width
    from howdah.client.evidence import findings_if_known

    width = window_width() if sys.stdout.isatty() else None
    pages: dict[str, str] = {}
    if view.live:
        wanted = {"Page": "", **{link.name: link.href for link in view.links}}
        pages = {name: page for name, to in wanted.items() if (page := handle.page(to)) is not None}
    found = findings_if_known(handle.job_directory) if view.over and may_advise(view) else []
    paint = Paint(wants_colour(sys.stdout))
    now = time.time()
    echo("\n".join(report(view, paint, width=width, pages=pages, now=now, findings=found)))
