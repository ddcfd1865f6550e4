"""``howdah tunnel``: a port of this machine that leads to a page of a job."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from howdah.cli.jobs import handle_of, job_id_argument, json_option, port_option, store_option
from howdah.cli.terminal import echo, echo_json

if TYPE_CHECKING:
    from howdah.client.handle import AsyncJobHandle
    from howdah.core.messages import Task


@click.command("tunnel")
@job_id_argument
@click.argument("task", required=False)
@port_option
@store_option
@json_option
def command(job_id: str, task: str | None, port: int, store: str | None, as_json: bool) -> None:
    """Open a port of this machine that leads to a page of a job, until Ctrl-C.

    TASK is a task that serves a page, such as notebook:0 or tensorboard:0; without it, the job's
    own page. The way goes through the coordinator, encrypted, under the job's own certificate, so
    it is enough to reach that one port of the cluster. Prints the address to open; whoever has it
    may open the page, so keep it to yourself.

    With --json: one JSON object, {"job_id": …, "task": …, "address": …}, once it listens.
    """
    handle = handle_of(job_id, store)
    asyncio.run(_serve(handle, handle.task(task) if task else None, port, as_json=as_json))


async def _serve(handle: AsyncJobHandle, task: Task | None, port: int, *, as_json: bool) -> None:
    from howdah.client.links import local_base
    from howdah.client.tunnel import check, tunnel
    from howdah.storage.jobdir import JobDirectory

    directory = JobDirectory(handle.directory)
    path = await check(directory, task)
    if task is None:
        page = urlsplit(handle.page() or "/")
        path = page.path + (f"?{page.query}" if page.query else "")
    async with tunnel(directory, task, port) as own:
        address = local_base(handle.job_id, own) + path
        if as_json:
            said = {"job_id": handle.job_id, "task": task and str(task), "address": address}
            echo_json(json.dumps(said))
        else:
            echo(address)
        what = str(task) if task else "the job page"
        echo(f"leads to {what} of {handle.job_id}; Ctrl-C ends it", err=True)
        await asyncio.Event().wait()
