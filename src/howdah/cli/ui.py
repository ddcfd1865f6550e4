"""``howdah ui``: all jobs in the browser."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from pathlib import Path

import click

from howdah.cli.jobs import json_option, port_option, store_option
from howdah.cli.terminal import echo, echo_json


@click.command("ui")
@port_option
@store_option
@json_option
def command(port: int, store: str | None, as_json: bool) -> int:
    """Show all jobs in the browser, running and past, until Ctrl-C.

    Prints the address to open. It works once, for ten minutes, and signs the browser in. The pages
    are served to this machine only.

    With --json: one JSON object, {"address": …, "folder": …}, once it listens.
    """
    from howdah.client.exits import ExitCode
    from howdah.client.finding import base as base_of

    asyncio.run(serve(base_of(store), port, as_json=as_json))
    return ExitCode.STOPPED


def interrupted() -> asyncio.Event:
    """Set once the program is to end."""
    over = asyncio.Event()
    # Also where a shell started it in the background, with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    return over


async def serve(base: Path, port: int, *, job_id: str = "", as_json: bool) -> None:
    """Serve the jobs below ``base`` until Ctrl-C; the address that is printed leads to that job."""
    from howdah.client.links import local_base
    from howdah.client.tunnel import LOCAL
    from howdah.coordinator.web import server as web
    from howdah.portal.app import NAME, create_portal
    from howdah.portal.jobs import Jobs
    from howdah.storage.jobdir import base_folder, check_folder_of_jobs
    from howdah.wire.addresses import listening
    from howdah.wire.tickets import login_link

    check_folder_of_jobs(base)
    token = secrets.token_urlsafe(32)
    try:
        # That port or none: a saved link must not lead to something else.
        sock = listening(LOCAL, (port, port) if port else None)
    except OSError as error:
        raise click.UsageError(
            f"port {port} of this machine can't be used ({error.strerror or error}); give another one, "
            "or leave --port out"
        ) from None
    jobs = Jobs(base, base_folder().parent.parent / "portal")
    server = await web.serve(create_portal(jobs, token), sock)
    over = interrupted()
    try:
        to = f"jobs/{job_id}/" if job_id else ""
        address = login_link(local_base(NAME, server.port), token, time.time(), to)
        if as_json:
            echo_json(json.dumps({"address": address, "folder": os.fspath(base)}))
        else:
            echo(address)
        echo(f"shows {job_id or 'the jobs'} in {base}; Ctrl-C ends it", err=True)
        await over.wait()
    finally:
        await server.close()
        jobs.index.close()
