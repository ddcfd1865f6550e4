"""The server of jobs' pages beside a portal: in a team's TensorBoard, notebooks and dashboards of running
jobs, in everybody's own TensorBoard of ended ones.

It passes requests on to the job's coordinator, and so to the program: as the owner for the job's owner,
and with a reader's pass for everybody else, so the coordinator decides what others may open.

A program gets of a request what is named here. It gets no cookie, and sets none: a sign-in proxy's cookies
and headers are not for the programs of other users, whatever they are called.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Message, Receive, Scope, Send

from howdah.coordinator.clients.task_pages import PageUnreachable
from howdah.coordinator.web import app as web
from howdah.coordinator.web import proxy
from howdah.coordinator.web.app import TASK_PAGE, JobApp, notice
from howdah.coordinator.web.security import (
    LOGIN_PATH,
    PROXY_ROOT,
    SAFE_METHODS,
    Gate,
    GateMiddleware,
    Proof,
    RawHeaders,
    Refusal,
    headers_of,
    is_same_origin,
)
from howdah.portal.access_control import Reader, Team
from howdah.portal.job_pages import JobPages
from howdah.portal.jobs import Jobs
from howdah.portal.live_answers import coordinator_at
from howdah.portal.task_pages.page_origin import PageOrigin
from howdah.portal.task_pages.past_boards import TASK
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire import tickets
from howdah.wire.messages import WebAddress

_UP = frozenset(
    b"accept accept-encoding accept-language cache-control connection content-encoding content-language "
    b"content-length content-type if-match if-modified-since if-none-match if-range if-unmodified-since "
    b"pragma range sec-websocket-extensions sec-websocket-key sec-websocket-protocol "
    b"sec-websocket-version transfer-encoding upgrade user-agent x-requested-with x-xsrftoken".split()
)
_WITHHELD = frozenset({"set-cookie", "alt-svc", "strict-transport-security"})
_PATH = re.compile(rf"{PROXY_ROOT}([A-Za-z0-9_.-]+(?::|%3[Aa])\d+)(/.*)?", re.ASCII)
"""A page of a task as it is sent: nothing else of the job is asked for here."""
_LOOKING = ("GET", "HEAD", "POST")
ENDED = "{} has ended, and this page with it"
AGAIN = "open the page from the job's own page in the portal"


class Upstream(NamedTuple):
    """Where a request goes, as of `proxy.forward`."""

    what: str
    """The job whose coordinator is asked, or the task itself, for messages."""
    rest: str
    address: WebAddress
    is_live: bool


class TaskPagesGate(Gate):
    """Lets in whom the portal has sent, with the cookie that they got for it."""

    def __init__(self, identity: Any, team: Team | None, origin: PageOrigin) -> None:
        super().__init__(identity, ("*",), time.time)
        self._team = team
        self._origin = origin

    def job(self, headers: Mapping[str, str], client: str) -> str:
        """The job that a request is for.

        Raises:
            Refusal: it does not come through the proxy, or is for none.
        """
        if self._team is not None:
            self._team.check_proxy(client)
        job_id = self._origin.job_of(headers.get("host", ""))
        if job_id is None:
            raise Refusal(
                421, f"only pages of jobs' tasks are here, at {self._origin.url}; {AGAIN}"
            )
        return job_id

    def reader(self, headers: Mapping[str, str], client: str) -> tuple[str, Reader]:
        """The job that a request is for, and who sends it.

        Raises:
            Refusal: nobody who was let in.
        """
        job_id = self.job(headers, client)
        reader = self._origin.reader(headers.get("cookie", ""), job_id)
        if reader is None:
            raise Refusal(401, f"you were not let in here, or not lately: {AGAIN}")
        return job_id, reader

    async def admit(
        self, headers: Mapping[str, str], method: str, *, stream: bool, client: str = ""
    ) -> Proof:
        """As `Gate.admit`."""
        self.reader(headers, client)
        # Pages of other jobs are of the same site: their requests have the cookie.
        if not is_same_origin(headers, strict=stream or method not in SAFE_METHODS):
            raise Refusal(403, f"this {method} comes from another page; {AGAIN}")
        return Proof.COOKIE


class TaskPages(JobApp):
    """The web app."""

    def __init__(
        self, jobs: Jobs, pages: JobPages, gate: TaskPagesGate, origin: PageOrigin
    ) -> None:
        super().__init__(
            routes=[Route(LOGIN_PATH, self._signed_in), Mount("", app=self._page)],
            middleware=[Middleware(GateMiddleware, gate=gate, refused=refused)],
        )
        self.router.redirect_slashes = False
        self.gate = self._gate = gate
        self._jobs = jobs
        self._pages = pages
        self._origin = origin
        self._boards = pages.boards

    def websockets(self) -> proxy.WebSockets:
        """Those of pages that are let in here."""
        return _WebSockets(self._gate, self.way)

    def close_streams(self) -> None:
        """Stop every TensorBoard that it has started."""
        if self._boards is not None:
            self._boards.close()

    async def way(self, job_id: str, reader: Reader, method: str, path: str) -> Upstream:
        """Where to pass a request on, and with what proof.

        Args:
            job_id: the job's.
            reader: who asks.
            method: of the request.
            path: as sent.

        Raises:
            Refusal: there is no such page, or none any more.
        """
        page = _PATH.fullmatch(path)
        if page is None:
            raise Refusal(404, f"there is no page of a task at {path[:200]!r}; {AGAIN}")
        task = unquote(page[1])
        directory, row = await self._pages.find(job_id, reader)
        way = None
        if not row.ended:
            way = await self._pages.way(directory)
            if not way.leads:  # it may have ended since it was last looked at
                row = await self._jobs.look(directory)
        if way is None or row.ended:
            self._pages.hang_up(job_id)
            if task == str(TASK) and self._boards is not None and method in _LOOKING:
                address = await self._boards.address(directory)
                return Upstream(task, page[2] or "/", address, is_live=False)
            raise Refusal(404, ENDED.format(job_id))
        try:
            port = await self._pages.port(directory) if way.leads else None
            if port is None:
                told = way.problem or f"no coordinator of {job_id} answers now; load the page again"
                raise Refusal(503, told)
            token = await asyncio.to_thread(directory.token)
            if reader.name == row.user or (
                method == "POST" and task == str(TASK) and await _has_board(directory)
            ):
                # TensorBoard asks for points with POST, and changes nothing.
                secret = token
            else:
                secret = tickets.mint_pass(token, time.time() + way.ahead_s)
        except (PageUnreachable, StorageError) as problem:
            raise Refusal(
                502, f"the coordinator of {job_id} does not answer: {problem}"
            ) from problem
        return Upstream(job_id, path, coordinator_at(port, secret), is_live=True)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client") or ("",)
        job_id, reader = self._gate.reader(headers_of(scope["headers"]), client[0])
        path = scope["raw_path"].decode("latin-1")
        upstream = await self.way(job_id, reader, scope["method"], path)

        async def marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                scope["howdah.proxied"] = True
                kept = [
                    pair
                    for pair in message["headers"]
                    if pair[0].decode("latin-1").lower() not in _WITHHELD
                ]
                message = {**message, "headers": kept}
            await send(message)

        passed = {**scope, "client": None, "headers": _upward(scope["headers"])}
        try:
            await proxy.forward(
                passed,
                receive,
                marked,
                task=upstream.what,
                rest=upstream.rest,
                address=upstream.address,
            )
        except PageUnreachable as problem:
            directory = JobDirectory(self._jobs.base / job_id)
            if upstream.is_live and (await self._jobs.look(directory)).ended:
                raise Refusal(404, ENDED.format(job_id)) from problem
            raise Refusal(502, f"the page of {job_id} does not answer: {problem}") from problem

    async def _signed_in(self, request: Request) -> Response:
        """Take a ticket, give a cookie; the page goes on by itself, as `howdah.coordinator.web.app.login`."""
        headers = headers_of(request.scope["headers"])
        job_id = self._gate.job(headers, request.client.host if request.client else "")
        wanted = request.query_params.get("to", "")
        if request.method != "GET" or not TASK_PAGE.fullmatch(wanted):
            return notice("A one-time link", "Open it in a browser.")
        opening = notice("Opening the page", "One moment.", to=f"./{wanted}")
        cookie = self._origin.take(request.query_params.get("ticket", ""), job_id)
        if cookie is not None:
            opening.set_cookie(
                self._origin.cookie,
                cookie,
                httponly=True,
                samesite="strict",
                secure=self._origin.secure,
            )
        elif self._origin.reader(headers.get("cookie", ""), job_id) is None:
            text = f"A link opens the page once, within a minute: {AGAIN}."
            return notice("This link is used up", text, 401)
        return opening


def refused(refusal: Refusal) -> Response:
    """What a person sees instead of the page they wanted."""
    if refusal.status == 401:
        return notice(
            "This page is private", f"{refusal.message[:1].upper()}{refusal.message[1:]}.", 401
        )
    return web.refused(refusal)


class _WebSockets(proxy.WebSockets):
    """Websockets that go through the job's coordinator."""

    withheld = _WITHHELD

    def __init__(self, gate: TaskPagesGate, way: Callable[..., Awaitable[Upstream]]) -> None:
        super().__init__(gate)
        self._let_in = gate
        self._way = way

    async def _handshake(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], client: str
    ) -> proxy.Handshake:
        named = headers_of(headers)
        await self._let_in.admit(named, method, stream=True, client=client)
        job_id, reader = self._let_in.reader(named, client)
        path, mark, query = target.partition("?")
        upstream = await self._way(job_id, reader, method, path)
        return proxy.Handshake(
            upstream.what, upstream.rest + mark + query, upstream.address, _upward(headers)
        )


def _upward(headers: RawHeaders) -> list[tuple[bytes, bytes]]:
    """The request as the coordinator takes it, at its own name, without what is not the program's."""
    return [*((n, v) for n, v in headers if n.lower() in _UP), (b"host", b"localhost")]


async def _has_board(directory: JobDirectory) -> bool:
    return (await asyncio.to_thread(directory.job)).tensorboard is not None
