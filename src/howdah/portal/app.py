"""The portal: all jobs of a folder in one web app, behind the same gate as a job's page."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from howdah.client.lookup.states import GOING_ON
from howdah.coordinator.web import app as web
from howdah.coordinator.web.app import JobApp, StaticFiles, notice
from howdah.coordinator.web.page_texts import environment
from howdah.coordinator.web.security import (
    LOGIN_PATH,
    Gate,
    GateMiddleware,
    Refusal,
    headers_of,
)
from howdah.portal import openapi, prometheus, query
from howdah.portal.access_control import Reader, Team, TeamGate
from howdah.portal.comparison import MOST, compare_page, read
from howdah.portal.documents import JobList
from howdah.portal.index import PAGE_MAX, FoundJobs, JobQuery
from howdah.portal.job_pages import JobPages, within
from howdah.portal.jobs import Jobs
from howdah.portal.pages import Shown, list_page
from howdah.portal.pruning import PruneSchedule
from howdah.portal.query import BadQuery
from howdah.portal.starting import commands, notebooks
from howdah.portal.task_pages.page_origin import PageOrigin
from howdah.portal.task_pages.server import TaskPages, TaskPagesGate
from howdah.spec.model import Job
from howdah.storage.jobdir import NotYours
from howdah.wire.messages import WebAddress
from howdah.wire.status import JobView

NAME = "ui"
"""Takes a job id's place in the cookie and in the host name; no job id is so short."""
LINKED = re.compile(r"jobs/[a-z0-9][a-z0-9-]*/")
"""What a one-time link may lead to besides the list: a job."""
RENEW = "Start “howdah ui” again"
PROOFS = "open the link that `howdah ui` prints when it starts"


class PortalIdentity:
    """What the gate asks of a job, for the portal itself."""

    def __init__(self, token: str) -> None:
        self.token = token

    def view(self) -> JobView:
        """Its life is never its first: tickets of an earlier one are not good."""
        return JobView(
            job_id=NAME, name="", framework="", user="", backend="", phase="", incarnation=2
        )

    def web_targets(self) -> dict[str, WebAddress]:
        """None: it has no tasks."""
        return {}

    def job(self) -> Job:
        """One without secrets."""
        return Job()


class PortalApp(JobApp):
    """Knows how to end what it has begun, and the prefix of its addresses."""

    jobs: Jobs
    pages: JobPages
    task_pages: TaskPages | None = None
    """What serves pages of jobs' tasks, at a port of its own."""
    prefix: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is below the prefix."""
        if self.prefix and scope["type"] == "http":
            begin = f"{self.prefix}/"
            if scope["path"] == self.prefix:
                name = self.prefix.rpartition("/")[2]
                await notice("Jobs", "One moment.", to=f"./{name}/")(scope, receive, send)
                return
            if not scope["path"].startswith(begin):
                text = f"the portal is at {begin}"
                await web.refused(Refusal(404, text))(scope, receive, send)
                return
            scope = {
                **scope,
                "path": scope["path"].removeprefix(self.prefix),
                "raw_path": scope["raw_path"].removeprefix(self.prefix.encode()),
            }
        await super().__call__(scope, receive, send)

    def close_streams(self) -> None:
        """End what follows jobs, and let go of the list; the server is about to end."""
        self.pages.close()
        self.jobs.close()


def create_portal(
    jobs: Jobs,
    token: str,
    *,
    hosts: Collection[str] = (),
    clock: Callable[[], float] = time.time,
    team: Team | None = None,
    prefix: str = "",
    pruning: PruneSchedule | None = None,
    origin: PageOrigin | None = None,
) -> PortalApp:
    """The portal's web app. All its links are relative, so it works below any path prefix.

    Args:
        jobs: what it shows.
        token: lets in who has it.
        hosts: as of `howdah.coordinator.web.app.create_app`.
        clock: seconds since the epoch.
        team: how readers are known, each of whom sees what they may; without it the token lets in the
            user, who sees all.
        prefix: what all paths begin with, where a proxy leaves it there: ``/howdah``.
        pruning: what removes old jobs, for the list to tell administrators of it.
        origin: where pages of jobs' tasks are shown, those of running ones to a team alone; by default
            they are not.
    """
    identity: Any = PortalIdentity(token)
    if team is None:
        gate = Gate(identity, hosts, clock, proofs=PROOFS)
    else:
        gate = TeamGate(identity, clock, team, None if origin is None else origin.owns)
    static = StaticFiles("howdah.portal")
    environment("howdah.portal")  # reads what it needs
    environment()  # also of the job page, whose notices are the portal's too
    pages = JobPages(jobs, gate, static.version, team, origin)

    def reader_of(request: Request) -> Reader | None:
        return None if team is None else team.reader(headers_of(request.scope["headers"]))

    async def catch_up() -> None:
        try:
            await jobs.catch_up()
        except NotYours as problem:
            raise Refusal(503, str(problem)) from problem

    async def found(wanted: JobQuery, reader: Reader | None) -> FoundJobs:
        await catch_up()
        return await asyncio.to_thread(jobs.index.find, wanted, reader)

    def to_come(reader: Reader | None) -> int | None:
        """How many jobs others have is not everybody's to know."""
        left = jobs.index.to_come
        return left if reader is None or reader.is_admin or not left else None

    async def page(request: Request) -> Response:
        asked = query.asked(request.query_params.multi_items())
        number, problem, reader = 1, "", reader_of(request)
        try:
            wanted = query.read(asked, clock())
            number = wanted.skip // wanted.limit + 1
            answer = await found(wanted, reader)
        except BadQuery as error:
            await catch_up()
            problem, answer = str(error), FoundJobs(rows=(), more=False, total=0)
        shown = Shown(
            folder=jobs.place,
            choices=await asyncio.to_thread(jobs.index.choices, reader),
            left_out=jobs.index.left_out,
            to_come=to_come(reader),
            problem=problem,
            reader="" if reader is None else reader.name,
            may_stop=await asyncio.to_thread(
                jobs.index.may_stop, [row.job_id for row in answer.rows], reader
            ),
            unread=jobs.copies.unread if jobs.copies and reader and reader.is_admin else {},
            pruning=pruning if reader and reader.is_admin else None,
            may_rerun=team is None,
        )
        response = list_page(asked, answer, shown, page=number, version=static.version, now=clock())
        response.status_code = 400 if problem else 200
        return response

    async def listed(request: Request) -> Response:
        try:
            wanted = query.read(query.asked(request.query_params.multi_items()), clock())
        except BadQuery as error:
            raise Refusal(400, str(error)) from None
        reader = reader_of(request)
        answer = await found(wanted, reader)
        document = JobList(
            jobs=answer.rows, more=answer.more, total=answer.total, to_come=to_come(reader)
        )
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def compared(request: Request) -> Response:
        ids = list(dict.fromkeys(request.query_params.getlist("job")))
        if not 2 <= len(ids) <= MOST:
            raise Refusal(
                400, f"choose from 2 to {MOST} jobs in the list, not {len(ids)}; the list is at ./"
            )
        reader = reader_of(request)
        found = [await pages.find(job_id, reader) for job_id in ids]
        now = clock()
        reading = (asyncio.to_thread(read, *each, now) for each in found)
        return compare_page(await asyncio.gather(*reading), static.version)

    async def notebook_page(request: Request) -> Response:
        reader = reader_of(request)
        await catch_up()
        shown = notebooks.Shown({}, "" if reader is None else reader.name)
        return await notebooks.page(jobs, reader, shown, version=static.version, now=clock())

    async def notebook_asked(request: Request) -> Response:
        if team is not None:
            raise Refusal(403, notebooks.NOT_FOR_OTHERS)
        given = await commands.form_of(request)
        try:
            started = await pages.starts.once(
                request.url.path, given, lambda: notebooks.start(jobs, given)
            )
        except Refusal as refusal:
            shown = notebooks.Shown(given, problem=refusal.message)
            return await notebooks.page(jobs, None, shown, version=static.version, now=clock())
        return commands.page_of(jobs, started, "jobs/")

    async def notebook_started(request: Request) -> Response:
        if team is not None:
            raise Refusal(403, notebooks.NOT_FOR_OTHERS)
        started = await notebooks.start(jobs, await notebooks.document_of(request))
        return Response(msgspec.json.encode(started), 201, media_type="application/json")

    async def scraped(request: Request) -> Response:
        reader = reader_of(request)
        unended = await found(JobQuery(states=GOING_ON, limit=PAGE_MAX), reader)
        choices = await asyncio.to_thread(jobs.index.choices, reader)
        body = prometheus.text(choices.states, unended)
        return Response(body, media_type=prometheus.CONTENT_TYPE)

    async def described(request: Request) -> Response:
        document = openapi.document(team.user_header if team else "")
        return Response(msgspec.json.encode(document), media_type="application/json")

    async def static_file(request: Request) -> Response:
        return static.answer(request.path_params["version"], request.path_params["name"])

    async def signed_in(request: Request) -> Response:
        return web.login(gate, request, RENEW, LINKED)

    app = PortalApp(
        routes=[
            Route("/", page),
            *([Route(LOGIN_PATH, signed_in)] if team is None else []),
            Route("/static/{version}/{name:path}", static_file),
            Route("/compare", compared),
            Route("/notebooks", notebook_page),
            Route("/notebooks", notebook_asked, methods=["POST"]),
            Route(notebooks.ROOT, notebook_started, methods=["POST"]),
            Route("/metrics", scraped),
            Route("/api/v1/jobs", listed),
            Route("/api/v1/openapi.json", described),
            Mount("/jobs/{job_id}", app=pages),
        ],
        middleware=[
            Middleware(
                GateMiddleware,
                gate=gate,
                refused=refused if team is None else refused_to_team,
                within=within,
            )
        ],
        exception_handlers={HTTPException: _not_found},
    )
    app.router.redirect_slashes = False
    app.gate = gate
    app.jobs = jobs
    app.pages = pages
    app.prefix = prefix
    if origin is not None:
        page_gate = TaskPagesGate(identity, team, origin)
        app.task_pages = TaskPages(jobs, pages, page_gate, origin)
    return app


async def _not_found(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = request.url.path[:200]
    if problem.status_code == 405:
        raise Refusal(405, f"{request.method} is not possible at {path!r}")
    raise Refusal(problem.status_code, f"there is nothing at {path!r}; the list of jobs is at /")


def refused(refusal: Refusal) -> Response:
    """What a person sees instead of the page they wanted."""
    if refusal.status == 401:
        return notice(
            "This page is private",
            f"{RENEW}: it prints a link that opens this page in your browser. If you have just "
            "followed a link to here from another site and were signed in before, continue below.",
            401,
            to="",
            after_s=-1,
        )
    return web.refused(refusal)


def refused_to_team(refusal: Refusal) -> Response:
    """The same of a team's portal."""
    if refusal.status == 401:
        return notice("Who are you?", f"{refusal.message[:1].upper()}{refusal.message[1:]}.", 401)
    return web.refused(refusal)
