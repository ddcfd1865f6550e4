"""Jobs started from a portal of one's own: by the commands themselves, so whatever they refuse is refused
here in their words."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from howdah.client.lookup.states import UNREADABLE
from howdah.coordinator.web.app import notice
from howdah.coordinator.web.security import Refusal
from howdah.portal.as_owner import kill
from howdah.portal.documents import RerunRequest, StartedJob
from howdah.portal.jobs import Jobs
from howdah.portal.rows import Row
from howdah.storage.jobdir import JobDirectory

LONGEST_S = 600.0
"""A cluster's job starts once its environment is packed and uploaded."""
NOT_FOR_OTHERS = (
    "a portal for a team runs no job again: it would run programs in the name of whomever its proxy names. "
    "Use “howdah rerun”, or the pages that “howdah ui” opens"
)
NOT_SAID = "the body does not say what to start"
_BAD_INPUT = 2
_END_S = 10.0
"""For a command to take back what it has begun."""
_SAME_S = 10.0
"""A form that is sent again so soon after its job has started is the same press of a button."""
_FIELDS_MAX = 50
_READ_S = 15
"""For somebody to read what a command has said."""

_Form = tuple[str, frozenset[tuple[str, str]]]


class FormStarts:
    """Jobs that are started by forms. A form that is sent again, unchanged, starts no second job."""

    def __init__(self) -> None:
        self._by_form: dict[_Form, asyncio.Task[StartedJob]] = {}

    async def once(
        self,
        path: str,
        fields: Mapping[str, str],
        start: Callable[[], Coroutine[Any, Any, StartedJob]],
    ) -> StartedJob:
        """What ``start`` gives, or has given a short time ago for these fields.

        Args:
            path: that the form is sent to.
            fields: the form's; without a ``key``, which each shown form has of its own, it is always
                another one.
            start: starts a job.

        Raises:
            Refusal: nothing was started.
        """
        if "key" not in fields:
            return await start()
        form = path, frozenset(fields.items())
        starting = self._by_form.get(form)
        if starting is None:
            starting = self._by_form[form] = asyncio.ensure_future(start())
            starting.add_done_callback(functools.partial(self._done, form))
        return await asyncio.shield(starting)  # a browser that sends it again gives up the first

    def close(self) -> None:
        """End what is being started."""
        for starting in self._by_form.values():
            starting.cancel()

    def _done(self, form: _Form, starting: asyncio.Task[StartedJob]) -> None:
        failed = starting.cancelled() or starting.exception() is not None
        # Somebody who goes back to the form later wants another job.
        asyncio.get_running_loop().call_later(
            0 if failed else _SAME_S, self._by_form.pop, form, None
        )


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent, those that are filled in.

    Raises:
        Refusal: it is no form.
    """
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        raise Refusal(415, "the body must be a form of this page")
    body = (await request.body()).decode("utf-8", "replace")
    try:
        given = parse_qsl(body, max_num_fields=_FIELDS_MAX)
    except ValueError as problem:
        raise Refusal(400, f"the body is no form of this page: {problem}") from None
    return {name: text.strip() for name, text in given if text.strip()}


async def start(jobs: Jobs, command: str, arguments: list[str]) -> StartedJob:
    """Start a job, as ``howdah <command> --detach`` with these arguments does.

    Raises:
        Refusal: nothing was started; the text says why, as the command does.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "howdah", command, "--detach", "--json", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:  # a zero byte is in no argument
        text = f"howdah {command} cannot be run with {arguments}: {error}"
        raise Refusal(400, text) from None
    try:
        async with asyncio.timeout(LONGEST_S):
            said, told = await process.communicate()
    except TimeoutError:
        text = f"howdah {command} started nothing within {LONGEST_S:.0f} s, and was ended"
        raise Refusal(503, text) from None
    finally:
        if process.returncode is None:  # which takes back what it has begun
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                async with asyncio.timeout(_END_S):
                    await process.wait()
            except TimeoutError:
                kill(process)
                await process.wait()
    text = told.decode("utf-8", "replace")
    if process.returncode:
        status = 400 if process.returncode == _BAD_INPUT else 409
        raise Refusal(status, _reason(command, text))
    started = msgspec.json.decode(said, type=StartedJob)
    notes = (*started.notes, *text.splitlines())
    started = msgspec.structs.replace(started, notes=notes)
    if Path(started.directory).parent == jobs.base:
        await jobs.look(JobDirectory(started.directory))  # for its page to be there at once
    return started


async def run_again(jobs: Jobs, row: Row, wanted: RerunRequest) -> StartedJob:
    """Run a job of the list again, as ``howdah rerun --detach`` does.

    Raises:
        Refusal: nothing was started; the text says why.
    """
    if row.state == UNREADABLE:  # the command might find another one that is called so
        raise Refusal(404, f"{row.job_id} cannot be read: {row.reason}")
    arguments = [f"--store={jobs.base.parent}"]
    if wanted.resume:
        arguments.append("--resume")
    if wanted.backend is not None:
        arguments.append(f"--backend={wanted.backend}")
    return await start(jobs, "rerun", [*arguments, "--", row.job_id])


def page_of(jobs: Jobs, started: StartedJob, folder: str) -> Response:
    """To the page of one that was started, after what its command has said.

    Args:
        jobs: the portal's.
        started: the job.
        folder: address that the pages of jobs are below, relative to the form's.
    """
    is_here = Path(started.directory).parent == jobs.base
    page = f"{folder}{started.job_id}/"
    if is_here and not started.notes:
        return RedirectResponse(page, 303)
    if is_here:
        return notice("The job starts", " ".join(started.notes), to=page, after_s=_READ_S)
    text = " ".join(started.notes) + (
        f" {started.job_id} is in {started.directory}, and this portal shows the jobs in {jobs.place}. "
        f"“howdah page {started.job_id}” opens its page."
    )
    return notice("The job starts", text.strip())


def _reason(command: str, told: str) -> str:
    """What the command said last, without its usage."""
    for mark in ("howdah: ", "Error: "):
        _, found, text = f"\n{told}".rpartition(f"\n{mark}")
        if found:
            return text.strip()
    return told.strip() or f"howdah {command} failed, and said nothing"
