"""The web app of one job: every route, behind the gate.

The job page and the small pages around it. Static files are served under their own hash.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection
from importlib import resources
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from howdah.backends.base import PageReaders
from howdah.coordinator.clients.live_job import LiveJob
from howdah.coordinator.clients.task_pages import PageUnreachable
from howdah.coordinator.web import api, openapi, prometheus, proxy, stream
from howdah.coordinator.web.page_texts import PACKAGE, environment, texts
from howdah.coordinator.web.readers import ReadersJob
from howdah.coordinator.web.security import (
    LOGIN_PATH,
    MAY_STOP,
    PAGE_HEADERS,
    PROOF,
    Gate,
    GateMiddleware,
    Proof,
    Refusal,
)
from howdah.coordinator.web.stream import StatusChanges
from howdah.wire import tickets
from howdah.wire.status import JobView

TASK_PAGE: re.Pattern[str] = re.compile(r"proxy/[A-Za-z0-9_.-]+:\d+/", re.ASCII)
"""What a one-time link may go on to besides the job page: nothing that leads elsewhere."""


class JobApp(Starlette):
    """A Starlette app that knows how to end its streams."""

    gate: Gate
    watchers: stream.Watchers

    def websockets(self) -> proxy.WebSockets:
        """What the server gives connections to that ask for a websocket."""
        return proxy.WebSockets(self.gate)

    def close_streams(self) -> None:
        """Say goodbye to everybody who follows the job; the server is about to end."""
        self.watchers.close()


def create_app(
    source: LiveJob,
    *,
    hosts: Collection[str] = (),
    clock: Callable[[], float] = time.time,
    readers: PageReaders = PageReaders(),  # noqa: B008 - frozen
) -> JobApp:
    """The job's web app. All its links are relative, so it works below any path prefix.

    Args:
        source: the job.
        hosts: host names the page may be asked for by, besides localhost, ``*.localhost`` and
            addresses; give the advertised host and the machine's own name. ``*`` allows all.
        clock: seconds since the epoch.
        readers: who may read without the job's token.
    """
    gate = Gate(source, hosts, clock, readers)
    watchers = stream.Watchers(source)
    static = StaticFiles()
    environment()  # reads what it needs

    async def static_file(request: Request) -> Response:
        return static.answer(request.path_params["version"], request.path_params["name"])

    async def signed_in(request: Request) -> Response:
        return login(gate, request)

    async def described(request: Request) -> Response:
        return Response(msgspec.json.encode(openapi.document()), media_type="application/json")

    app = JobApp(
        routes=[
            *job_routes(source, gate, watchers, PageFrame(static=f"static/{static.version}")),
            Route(LOGIN_PATH, signed_in),
            Route("/static/{version}/{name:path}", static_file),
            Route(f"{api.ROOT}/openapi.json", described),
        ],
        middleware=[Middleware(GateMiddleware, gate=gate, refused=refused)],
        exception_handlers={HTTPException: _not_found},
    )
    app.router.redirect_slashes = False
    app.gate = gate
    app.watchers = watchers
    return app


class PageFrame(msgspec.Struct, frozen=True, kw_only=True):
    """What is around the job on its page."""

    static: str
    """Address of the static files, relative to the page."""
    jobs: str = ""
    """Address of the list of jobs, relative to the page; empty where the job is served alone."""
    note: str = ""
    """What a reader is to know of where the page comes from."""
    may_rerun: bool = False
    """Whether what serves the page runs a job again, at ``rerun`` beside it."""


def job_routes(
    source: LiveJob, gate: Gate, watchers: stream.Watchers, frame: PageFrame
) -> list[Route]:
    """Routes of one job: its page, its API, its measurements, the pages of its tasks."""
    changes = StatusChanges(source, gate.clock, time.monotonic)
    work = api.Api(source=source, changes=changes, watchers=watchers, gate=gate)
    looking = msgspec.structs.replace(work, source=ReadersJob(source))

    async def page(request: Request) -> Response:
        reads_only = request.scope[PROOF] is Proof.READER and not request.scope.get(MAY_STOP)
        return job_page(changes.view(), frame, reads_only=reads_only)

    return [
        Route("/", page),
        *(_operation(operation, work, looking) for operation in api.OPERATIONS),
        Route("/metrics", _scrape(source, changes)),
        Route("/proxy/{task}/{rest:path}", _Proxied(source)),
        Route("/proxy/{task}", _Proxied(source)),
    ]


def _operation(operation: api.Operation, work: api.Api, looking: api.Api) -> Route:
    """A route to an operation on the job; for readers on what they may know of it."""

    async def endpoint(request: Request) -> Response:
        reads_only = request.scope[PROOF] is Proof.READER
        return await operation.handler(looking if reads_only else work, request)

    return Route(
        api.ROOT + operation.path, endpoint, methods=[operation.method], name=operation.name
    )


async def _not_found(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = request.url.path[:200]
    if problem.status_code == 405:
        raise Refusal(405, f"{request.method} is not possible at {path!r}")
    raise Refusal(problem.status_code, f"there is nothing at {path!r}; the job page is at /")


def login(
    gate: Gate,
    request: Request,
    renew: str = "Run “howdah status” with the job's id",
    linked: re.Pattern[str] = TASK_PAGE,
) -> Response:
    """Take a ticket, give a cookie. ``renew``: how to get another link; ``linked``: addresses that
    it may lead to.

    The cookie names no path: the browser keeps it for the folder the page is in, whatever prefix
    that has. The answer is a page that goes on by itself, not a redirect: after a click in another
    site a browser would not send the strict cookie along with a redirect.
    """
    now = gate.clock()
    wanted = request.query_params.get("to", "")
    to = f"./{wanted}" if linked.fullmatch(wanted) else "./"
    # Programs that look at links before a person does (chats) ask for the head only.
    if request.method == "HEAD":
        return notice("A one-time link", "Open it in a browser.")
    if gate.tickets.take(request.query_params.get("ticket", ""), now):
        response = notice("Opening the page", "One moment.", to=to)
        response.set_cookie(
            tickets.session_cookie(gate.job_id),
            tickets.mint_session(gate.source.token, now),
            path=None,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response
    name = tickets.session_cookie(gate.job_id)
    if tickets.session_is_good(request.cookies.get(name, ""), gate.source.token, now):
        return notice("Opening the page", "You are signed in already.", to=to)
    return notice(
        "This link is used up",
        f"A link opens the page once, within ten minutes. {renew} for a new one.",
        401,
    )


def _scrape(source: LiveJob, changes: StatusChanges) -> Callable[[Request], Awaitable[Response]]:
    registry = None

    async def metrics(request: Request) -> Response:
        nonlocal registry
        if registry is None:
            registry = prometheus.registry(changes.view, prometheus.ReportedMetrics(source.metrics))
        return Response(prometheus.text(registry), media_type=prometheus.CONTENT_TYPE)

    return metrics


class _Proxied:
    """Answers below ``/proxy/<task>/`` with what the task's own program answers."""

    def __init__(self, source: LiveJob) -> None:
        self._source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        task: str = scope["path_params"]["task"]
        # Cut from what was sent, not from what was decoded: the program gets the same bytes.
        path = scope["raw_path"].decode("latin-1")
        rest = "/" + path.split("/", 3)[3] if path.count("/") > 2 else ""
        targets = self._source.web_targets()
        address = targets.get(task)
        if address is None:
            there = ", ".join(sorted(targets)) or "none yet"
            raise Refusal(
                404, f"{task[:100]!r} has not announced a web page; those that have: {there}"
            )
        if scope[PROOF] is Proof.READER and not address.viewable:
            raise Refusal(403, f"only the job's owner may open {address.name} of {task}")
        if not rest:
            # Relative links in the page need the slash.
            response = notice(address.name, "One moment.", to=f"./{task}/")
            await response(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            scope["howdah.proxied"] = True
            await send(message)

        try:
            await proxy.forward(scope, receive, marked, task=task, rest=rest, address=address)
        except PageUnreachable as problem:
            response = notice(
                f"{address.name} does not answer", f"{problem}.", 502, to="", after_s=3
            )
            await response(scope, receive, send)


_CSP = "Content-Security-Policy"

_MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class StaticFiles:
    """All static files, in memory: 200 kB in all, and a coordinator has no business on the disk.

    Args:
        more: a package with others, in its folder ``static``.
    """

    def __init__(self, more: str | None = None) -> None:
        self._files: dict[str, bytes] = {}
        for package in filter(None, (PACKAGE, more)):
            self._read(resources.files(package).joinpath("static"), "")
        digest = hashlib.sha256()
        for name, content in sorted(self._files.items()):
            digest.update(name.encode() + b"\0" + content)
        self.version: str = digest.hexdigest()[:12]
        """Part of the files' addresses: a browser may keep them for ever."""

    def answer(self, version: str, name: str) -> Response:
        """One file.

        Raises:
            Refusal: there is none of that name.
        """
        content = self._files.get(name)
        if content is None:
            raise Refusal(404, f"there is no file {name[:100]!r}")
        suffix = name[name.rfind(".") :]
        media = _MEDIA.get(suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
        keep = "private, max-age=31536000, immutable" if version == self.version else "no-cache"
        return Response(content, media_type=media, headers={"Cache-Control": keep})

    def _read(self, folder: Any, prefix: str) -> None:
        for entry in folder.iterdir():
            if entry.is_dir():
                self._read(entry, f"{prefix}{entry.name}/")
            else:
                self._files[prefix + entry.name] = entry.read_bytes()


def form_key() -> str:
    """What tells a form that is sent twice from two forms."""
    return secrets.token_urlsafe(12)


def job_page(view: JobView, frame: PageFrame, *, reads_only: bool = False) -> Response:
    """The page itself: what is known at once; its script does the rest.

    Args:
        view: the job now.
        frame: what is around it.
        reads_only: for a reader who may change nothing: without what they could not do.
    """
    page = environment().get_template("job.html")
    text = page.render(job=view, frame=frame, reads_only=reads_only, key=form_key())
    # Without a referrer a form's origin is "null".
    return HTMLResponse(text, headers={"Referrer-Policy": "same-origin"} if frame.may_rerun else {})


def notice(
    title: str, text: str, status: int = 200, *, to: str | None = None, after_s: int = 0
) -> Response:
    """A small page of its own, without any other file: a stranger sees no more than this.

    Args:
        title: in large letters.
        text: what happened, what to do.
        status: of the answer.
        to: a relative address the browser goes on to by itself.
        after_s: when.
    """
    style = texts()["notice.css"]
    page = environment().get_template("notice.html")
    body = page.render(title=title, text=text, style=style, to=to, after_s=after_s)
    # The style stands in the page itself; its hash is what the policy lets through.
    known = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = PAGE_HEADERS[_CSP].replace("style-src 'self'", f"style-src 'sha256-{known}'")
    return HTMLResponse(body, status, headers={_CSP: policy})


def refused(refusal: Refusal) -> Response:
    """What a person sees instead of the page they wanted."""
    if refusal.status == 401:
        return notice(
            "This page is private",
            "Run “howdah status” with the job's id: it prints a link that opens this page in your "
            "browser. A link works once, for ten minutes. If you have just followed a link to here "
            "from another site and were signed in before, continue below.",
            401,
            to="",
            after_s=-1,
        )
    titles = {403: "Not from there", 404: "Not found", 421: "Wrong name"}
    return notice(titles.get(refusal.status, "That did not work"), refusal.message, refusal.status)
