"""Commands that lead to pages in the browser: ``ui``, ``page``, ``tunnel``."""

from __future__ import annotations

import contextlib
import html
import importlib
import os
import secrets
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

from howdah.cli.arguments import (
    find_job,
    handle_of,
    job_id_argument,
    json_option,
    optional_job_id,
    port_option,
    store_option,
)
from howdah.cli.display.terminal import echo, echo_json

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from socket import socket

    from howdah.client.handle import AsyncJobHandle
    from howdah.coordinator.web.server import WebServer
    from howdah.core.messages import Task
    from howdah.portal.app import PortalApp

NEEDED_LATER = (
    "howdah.backends.copied_site",
    "howdah.backends.yarn.client.aggregated",
    "howdah.hadoop.security.gss",
    "howdah.hadoop.security.kerberos",
    "howdah.storage.hdfs.files",
    "howdah.wire.authority",
)
"""What only some questions to a portal need, besides backends' parts; it runs for months, and may be upgraded
meanwhile."""


@click.command("ui")
@port_option
@store_option
@json_option
def ui_command(port: int, store: str | None, as_json: bool) -> int:
    """Show all jobs in the browser, running and past, until Ctrl-C.

    Prints the address to open. It works once, within ten minutes, and signs the browser in. The
    pages are served to this machine only.

    With --json: one JSON object, {"address": …, "folder": …, "pages_port": …}, once it listens.
    TensorBoard of jobs that have ended is at "pages_port".
    """
    import asyncio

    from howdah.client.errors import ExitCode
    from howdah.client.lookup.find import base as base_of

    asyncio.run(serve(base_of(store), port, as_json=as_json))
    return ExitCode.STOPPED


def interrupted() -> asyncio.Event:
    """Set once the program is to end."""
    import asyncio

    over = asyncio.Event()
    # Also where a shell started it in the background, with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    return over


async def show(
    app: PortalApp,
    sock: socket,
    address: Callable[[WebServer], str],
    *,
    folder: str,
    told: str,
    as_json: bool,
    pages: socket | None = None,
) -> None:
    """Serve a portal until Ctrl-C: where, on standard output, and ``told`` on standard error.

    ``pages``: where the pages of its jobs' tasks listen.
    """
    from howdah.backends.registry import client_modules
    from howdah.coordinator.web import server as web

    for name in (*NEEDED_LATER, *client_modules()):
        importlib.import_module(name)
    server = await web.serve(app, sock)
    others: WebServer | None = None
    if pages is not None and app.task_pages is not None:
        others = await web.serve(app.task_pages, pages)
    over = interrupted()
    try:
        if as_json:
            said: dict[str, object] = {"address": address(server), "folder": folder}
            echo_json(said if others is None else said | {"pages_port": others.port})
        else:
            echo(address(server))
        echo(f"{told}; Ctrl-C ends it", err=True)
        await over.wait()
    finally:
        if others is not None:
            await others.close()
        await server.close()
        app.jobs.index.close()


async def serve(base: Path, port: int, *, job_id: str = "", as_json: bool) -> None:
    """Serve the jobs below ``base`` until Ctrl-C; the address that is printed leads to that job."""
    from howdah.client.following.tunnel import LOCAL, local_base
    from howdah.portal.app import NAME, create_portal
    from howdah.portal.jobs import Jobs, list_folder
    from howdah.portal.task_pages.page_origin import PageOrigin
    from howdah.storage.jobdir import check_folder_of_jobs
    from howdah.wire.addresses import listening
    from howdah.wire.tickets import login_link

    check_folder_of_jobs(base)
    token = secrets.token_urlsafe(32)
    try:
        # That port or none: a saved link must not lead to something else.
        sock = listening(LOCAL, (port, port) if port else None)
    except OSError as error:
        raise _port_error(port, error) from None
    beside = listening(LOCAL, None)
    origin = PageOrigin(f"http://localhost:{beside.getsockname()[1]}")
    to = f"jobs/{job_id}/" if job_id else ""
    await show(
        create_portal(Jobs(base, list_folder()), token, origin=origin),
        sock,
        lambda server: login_link(local_base(NAME, server.port), token, time.time(), to),
        folder=os.fspath(base),
        told=f"shows {job_id or 'the jobs'} in {base}",
        as_json=as_json,
        pages=beside,
    )


def _port_error(port: int, error: OSError) -> click.UsageError:
    return click.UsageError(
        f"port {port} of this machine can't be used ({error.strerror or error}); give another one, "
        "or leave --port out"
    )


@click.command("page")
@optional_job_id
@port_option
@store_option
@json_option
def page_command(job_id: str | None, port: int, store: str | None, as_json: bool) -> int:
    """Print the address of a job's page; that of a job that has ended is served until Ctrl-C.

    ID is a job's id, its name, or enough of its beginning; by default the newest job. The address
    works once, within ten minutes, and signs the browser in. With --port, this command also serves
    the page of a running job.

    With --json: one JSON object, {"address": …}.
    """
    import asyncio

    from howdah.client.errors import ExitCode
    from howdah.client.handle import AsyncJobHandle

    directory = find_job(job_id, store)
    handle = AsyncJobHandle(directory)
    view = asyncio.run(handle.status())
    if view.live and not port and (address := handle.page()) is not None:
        if as_json:
            echo_json({"address": address})
        else:
            echo(address)
        return ExitCode.SUCCEEDED
    asyncio.run(serve(directory.path.parent, port, job_id=directory.job_id, as_json=as_json))
    return ExitCode.STOPPED


@click.command("tunnel")
@job_id_argument
@click.argument("task", required=False)
@port_option
@store_option
@json_option
def tunnel_command(
    job_id: str, task: str | None, port: int, store: str | None, as_json: bool
) -> None:
    """Open a port of this machine that leads to a page of a job, until Ctrl-C.

    TASK is a task that serves a page, such as notebook:0 or tensorboard:0; by default it is the
    job's own page. The connection goes through the coordinator, encrypted with the job's own
    certificate, so you need to reach only that one port of the cluster. Prints the address to open.
    Everyone who has the address may open the page, so keep it to yourself.

    With --json: one JSON object, {"job_id": …, "task": …, "address": …}, once it listens.
    """
    import asyncio

    handle = handle_of(job_id, store)
    asyncio.run(_serve(handle, handle.task(task) if task else None, port, as_json=as_json))


async def _serve(handle: AsyncJobHandle, task: Task | None, port: int, *, as_json: bool) -> None:
    import asyncio

    from howdah.client.errors import Unreachable
    from howdah.client.following.tunnel import check, local_base, tunnel
    from howdah.storage.jobdir import JobDirectory

    directory = JobDirectory(handle.directory)
    try:
        path = await check(directory, task)
    except OSError as error:
        why = str(error) or "no answer in time"
        raise Unreachable(
            f"the coordinator of {handle.job_id} does not answer: {why}; try again"
        ) from error
    if task is None:
        page = urlsplit(handle.page() or "/")
        path = page.path + (f"?{page.query}" if page.query else "")
    async with contextlib.AsyncExitStack() as stack:
        try:
            own = await stack.enter_async_context(tunnel(directory, task, port))
        except OSError as error:
            raise _port_error(port, error) from None
        address = local_base(handle.job_id, own) + path
        if as_json:
            said = {"job_id": handle.job_id, "task": task and str(task), "address": address}
            echo_json(said)
        else:
            echo(address)
        what = str(task) if task else "the job page"
        echo(f"leads to {what} of {handle.job_id}; Ctrl-C ends it", err=True)
        await asyncio.Event().wait()


def open_page(address: str, folder: Path) -> Path:
    """Open the address without showing it to others; returns the file that sends the browser there,
    for the caller to remove.

    What stands in an argument list can be read by every user of the machine, and a one-time link
    opens the page for whoever uses it first. So the browser is given the name of a file, which only
    its owner can read and which sends it on.

    ``folder`` must be its owner's alone.

    Raises:
        OSError: the file cannot be written.
    """
    import webbrowser

    path = folder / f"open-{secrets.token_hex(8)}.html"
    place = html.escape(address)
    text = (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">\n'
        f'<meta http-equiv="refresh" content="0; url={place}">\n'
        f'<title>Opening the job page</title><a href="{place}">Open the job page</a>\n'
    )
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    webbrowser.open(path.as_uri())
    return path
