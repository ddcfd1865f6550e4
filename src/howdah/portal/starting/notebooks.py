"""The page of notebooks, and what starts one from a portal of one's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from howdah.backends import registry
from howdah.client.lookup.states import GOING_ON
from howdah.coordinator.web.api import json_body
from howdah.coordinator.web.app import form_key
from howdah.coordinator.web.page_texts import environment
from howdah.coordinator.web.security import Refusal
from howdah.core.messages import Task
from howdah.frameworks.sidecars import NOTEBOOK
from howdah.portal.access_control import Reader
from howdah.portal.documents import NotebookRequest, StartedJob
from howdah.portal.index import PAGE_MAX, JobQuery
from howdah.portal.jobs import Jobs
from howdah.portal.pages import cells
from howdah.portal.starting import commands

ROOT = "/api/v1/notebooks"
FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(NotebookRequest))
NOT_FOR_OTHERS = (
    "a portal for a team starts no notebooks: it would run programs in the name of whomever its proxy names. "
    "Start one with “howdah notebook”, or from the pages that “howdah ui” opens; with --store, or “store” in "
    "the site file, at this portal's store, it is listed here"
)


class Shown(NamedTuple):
    """What the page shows besides the notebooks."""

    given: dict[str, str]
    """What stands in the form."""
    reader: str = ""
    """Who reads; empty for the user."""
    problem: str = ""
    """Why nothing was started."""


async def page(
    jobs: Jobs, reader: Reader | None, shown: Shown, *, version: str, now: float
) -> Response:
    """The notebooks that wait or run, and a form that starts one.

    Args:
        jobs: which are listed.
        reader: who reads; None for the user.
        shown: what else.
        version: of the static files.
        now: seconds since the epoch.
    """
    wanted = JobQuery(states=GOING_ON, tag=NOTEBOOK, limit=PAGE_MAX)
    found = await asyncio.to_thread(jobs.index.find, wanted, reader)
    ids = [row.job_id for row in found.rows]
    template = environment("howdah.portal").get_template("notebooks.html")
    text = template.render(
        rows=[cells(row, now) for row in found.rows],
        may_stop=await asyncio.to_thread(jobs.index.may_stop, ids, reader),
        backends=registry.names(),
        folder=_folder(),
        task=str(Task(NOTEBOOK, 0)),
        shown=shown,
        refused="" if reader is None else NOT_FOR_OTHERS,
        place=jobs.place,
        version=version,
        key=form_key(),
    )
    # As for the list: without a referrer a form's origin is "null".
    return HTMLResponse(text, 400 if shown.problem else 200, {"Referrer-Policy": "same-origin"})


async def document_of(request: Request) -> dict[str, str]:
    """The options that a body in JSON gives.

    Raises:
        Refusal: it is not what is asked for.
    """
    wanted = await json_body(request, NotebookRequest, commands.NOT_SAID)
    given = msgspec.structs.asdict(wanted)
    return {name: str(value) for name, value in given.items() if value is not None}


async def start(jobs: Jobs, given: dict[str, str]) -> StartedJob:
    """Start one, as ``howdah notebook --detach`` with these options does.

    Raises:
        Refusal: nothing was started; the text says why, as the command does.
    """
    given = {name: text for name, text in given.items() if name in FIELDS}
    if "source" in given:
        try:
            given = {**given, "source": str(Path(given["source"]).expanduser())}
        except RuntimeError as error:
            raise Refusal(400, f"source: {given['source']!r}: {error}") from None
    options = [f"--{name.replace('_', '-')}={text}" for name, text in given.items()]
    return await commands.start(jobs, "notebook", options)


def _folder() -> str:
    """Which the portal was started in, while it is there."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""
