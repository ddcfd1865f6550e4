"""The web app of one job: every route, behind the gate."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Collection

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from howdah.backends.base import PageReaders
from howdah.coordinator.source import JobSource
from howdah.coordinator.web import api, handlers, pages, proxy, stream, tickets
from howdah.coordinator.web.board import Board
from howdah.coordinator.web.gate import LOGIN_PATH, PROOF, Gate, GateMiddleware
from howdah.coordinator.web.security import Proof, Refusal

_TASK_PAGE = re.compile(r"proxy/[A-Za-z0-9_.-]+:\d+/", re.ASCII)
"""What a one-time link may go on to besides the job page: nothing that leads elsewhere."""


class JobApp(Starlette):
    """A Starlette app that knows how to end its streams."""

    gate: Gate
    watchers: stream.Watchers

    def close_streams(self) -> None:
        """Say goodbye to everybody who follows the job; the server is about to end."""
        self.watchers.close()


def create_app(
    source: JobSource,
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
    board = Board(source, clock, time.monotonic)
    watchers = stream.Watchers(source)
    static = pages.StaticFiles()
    work = handlers.Api(source=source, board=board, watchers=watchers, gate=gate)

    async def job_page(request: Request) -> Response:
        reads_only = request.scope[PROOF] is Proof.READER
        return pages.job_page(board.view(), static.version, reads_only=reads_only)

    async def static_file(request: Request) -> Response:
        return static.answer(request.path_params["version"], request.path_params["name"])

    async def login(request: Request) -> Response:
        return _login(gate, request)

    async def described(request: Request) -> Response:
        from howdah.coordinator.web import openapi

        return Response(msgspec.json.encode(openapi.document()), media_type="application/json")

    app = JobApp(
        routes=[
            Route("/", job_page),
            Route(LOGIN_PATH, login),
            Route("/static/{version}/{name:path}", static_file),
            *(_operation(operation, work) for operation in api.OPERATIONS),
            Route(f"{api.ROOT}/openapi.json", described),
            Route("/metrics", _scrape(source, board)),
            Route("/proxy/{task}/{rest:path}", _Proxied(source)),
            Route("/proxy/{task}", _Proxied(source)),
        ],
        middleware=[Middleware(GateMiddleware, gate=gate, refused=pages.refused)],
        exception_handlers={HTTPException: _not_found},
    )
    app.router.redirect_slashes = False
    app.gate = gate
    app.watchers = watchers
    return app


def _operation(operation: api.Operation, work: handlers.Api) -> Route:
    async def endpoint(request: Request) -> Response:
        return await operation.handler(work, request)

    return Route(
        api.ROOT + operation.path, endpoint, methods=[operation.method], name=operation.name
    )


async def _not_found(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    path = request.url.path[:200]
    if problem.status_code == 405:
        raise Refusal(405, f"{request.method} is not possible at {path!r}")
    raise Refusal(problem.status_code, f"there is nothing at {path!r}; the job page is at /")


def _login(gate: Gate, request: Request) -> Response:
    """Take a ticket, give a cookie.

    The cookie names no path: the browser keeps it for the folder the page is in, whatever prefix
    that has. The answer is a page that goes on by itself, not a redirect: after a click in another
    site a browser would not send the strict cookie along with a redirect.
    """
    now = gate.clock()
    wanted = request.query_params.get("to", "")
    to = f"./{wanted}" if _TASK_PAGE.fullmatch(wanted) else "./"
    # Programs that look at links before a person does (chats) ask for the head only.
    if request.method == "HEAD":
        return pages.notice("A one-time link", "Open it in a browser.")
    if gate.desk.take(request.query_params.get("ticket", ""), now):
        response = pages.notice("Opening the job page", "One moment.", to=to)
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
        return pages.notice("Opening the job page", "You are signed in already.", to=to)
    return pages.notice(
        "This link is used up",
        "A link opens the page once, within ten minutes. Run “howdah status” with the job's id for "
        "a new one.",
        401,
    )


def _scrape(source: JobSource, board: Board) -> Callable[[Request], Awaitable[Response]]:
    registry = None

    async def metrics(request: Request) -> Response:
        # Imported at the first scrape: most jobs are never scraped.
        from howdah.coordinator.web import prometheus

        nonlocal registry
        if registry is None:
            registry = prometheus.registry(board.view, prometheus.Reported(source.metrics))
        return Response(prometheus.text(registry), media_type=prometheus.CONTENT_TYPE)

    return metrics


class _Proxied:
    """Answers below ``/proxy/<task>/`` with what the task's own program answers."""

    def __init__(self, source: JobSource) -> None:
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
        if not rest:
            # Relative links in the page need the slash.
            response = pages.notice(address.name, "One moment.", to=f"./{task}/")
            await response(scope, receive, send)
            return

        async def marked(message: Message) -> None:
            scope["howdah.proxied"] = True
            await send(message)

        try:
            await proxy.forward(scope, receive, marked, task=task, rest=rest, address=address)
        except proxy.Unreachable as problem:
            response = pages.notice(
                f"{address.name} does not answer", f"{problem}.", 502, to="", after_s=3
            )
            await response(scope, receive, send)
