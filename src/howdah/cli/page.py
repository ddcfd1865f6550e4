"""``howdah page``: a job's page."""

from __future__ import annotations

import asyncio

import click

from howdah.cli.jobs import find_job, json_option, optional_job_id, port_option, store_option


@click.command("page")
@optional_job_id
@port_option
@store_option
@json_option
def command(job_id: str | None, port: int, store: str | None, as_json: bool) -> int:
    """Print the address of a job's page; that of a job that has ended is served until Ctrl-C.

    ID is a job's id, its name, or enough of its beginning; the newest job without it. The address
    works once, within ten minutes, and signs the browser in. With --port the page of a running job
    is served by this command as well.

    With --json: one JSON object, {"address": …}.
    """
    import json

    from howdah.cli.terminal import echo, echo_json
    from howdah.cli.ui import serve
    from howdah.client.exits import ExitCode
    from howdah.client.handle import AsyncJobHandle

    directory = find_job(job_id, store)
    handle = AsyncJobHandle(directory)
    view = asyncio.run(handle.status())
    if view.live and not port and (address := handle.page()) is not None:
        if as_json:
            echo_json(json.dumps({"address": address}))
        else:
            echo(address)
        return ExitCode.SUCCEEDED
    asyncio.run(serve(directory.path.parent, port, job_id=directory.job_id, as_json=as_json))
    return ExitCode.STOPPED
