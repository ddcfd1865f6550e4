"""One job's page in the portal, at one address before, during and after its run.

The page itself is the portal's. What it asks is answered by the job's coordinator while there is one, and
from the job directory before and after.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from howdah.backends.base import BackendError, Running
from howdah.client.advice import Finding
from howdah.client.advice_inputs import findings
from howdah.client.errors import HowdahError
from howdah.client.following.offline_job import ended
from howdah.client.following.tunnel import tunnel
from howdah.client.handle import AsyncJobHandle
from howdah.client.lookup.listing import look
from howdah.client.lookup.site import running
from howdah.client.lookup.states import UNREADABLE
from howdah.coordinator.clients.task_pages import PageUnreachable
from howdah.coordinator.web import proxy, stream
from howdah.coordinator.web.api import json_body, stop_request
from howdah.coordinator.web.app import TASK_PAGE, PageFrame, job_page, job_routes, notice
from howdah.coordinator.web.documents import StopAnswer
from howdah.coordinator.web.security import (
    MAY_STOP,
    PROXY_ROOT,
    SAFE_METHODS,
    STREAM_PATH,
    AnswerBrokeOff,
    Gate,
    Refusal,
    headers_of,
)
from howdah.portal import live_answers
from howdah.portal.access_control import MYSELF, Reader, Team
from howdah.portal.comparison import differences
from howdah.portal.documents import RerunRequest, SinceBefore
from howdah.portal.jobs import Jobs
from howdah.portal.live_answers import Way
from howdah.portal.past_job import PastJob
from howdah.portal.rows import Row
from howdah.portal.starting import commands
from howdah.portal.task_pages.page_origin import PageOrigin
from howdah.portal.task_pages.past_boards import TASK, PastBoards
from howdah.storage.jobdir import JobDirectory, NotYours, StorageError
from howdah.storage.journal import JournalError
from howdah.wire.status import WebLink

HELD = 8
"""Past jobs kept in memory."""
SOON_S = 2.0
"""A job without a coordinator that has not ended is read again after this."""
UNKNOWN_S = 15.0
"""The same of a past job that HDFS has not told all of: its events, or whether it has summaries."""
ADVICE = "/api/v1/advice"
BEFORE = "/api/v1/before"
STOP = "/api/v1/stop"
RERUN = "/api/v1/rerun"
ADVICE_S = 10.0
"""All that was measured is read for it: of a running job no oftener than this."""
ENDED_S = 600.0
HERE = "in the list of jobs"
BYE = b"\n\nevent: bye\ndata: {}\n\n"
"""For a page whose coordinator has ended, or died: it asks again, and is answered by what is there then."""


_BOARD = WebLink(name="TensorBoard", href=f"proxy/{TASK}/")
_JOB = re.compile(r"/jobs/[^/]+")


def within(path: str) -> str:
    """The path within one job."""
    return _JOB.sub("", path, count=1)


class _Served(msgspec.Struct, frozen=True):
    """A past job, ready to answer."""

    source: PastJob
    router: Router
    watchers: stream.Watchers
    good_until: float


class JobPages:
    """Answers below ``/jobs/ID``."""

    def __init__(
        self,
        jobs: Jobs,
        gate: Gate,
        version: str,
        team: Team | None = None,
        origin: PageOrigin | None = None,
    ) -> None:
        self._jobs = jobs
        self._gate = gate
        self._team = team
        self._origin = origin
        self.boards: PastBoards | None = None if origin is None else PastBoards()
        """What shows summaries of jobs that have ended."""
        self._frame = PageFrame(
            static=f"../../static/{version}", jobs="../../", may_rerun=team is None
        )
        self.starts: commands.FormStarts = commands.FormStarts()
        self._past: OrderedDict[str, _Served] = OrderedDict()
        self._making: dict[str, asyncio.Task[_Served]] = {}
        self._found: OrderedDict[str, tuple[list[Finding], float]] = OrderedDict()
        """Advice, and until when it is good."""
        self._tunnels: dict[str, tuple[asyncio.Task[None], asyncio.Future[int]]] = {}
        self._ways: dict[str, Way] = {}
        self._finding: dict[str, asyncio.Task[Way]] = {}

    def close(self) -> None:
        """End all streams, connections to coordinators and starts of jobs."""
        self.starts.close()
        for served in self._past.values():
            served.watchers.close()
        for task in (*(task for task, _ in self._tunnels.values()), *self._finding.values()):
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        job_id: str = scope["path_params"]["job_id"]
        path = within(scope["path"])
        reader = None if self._team is None else self._team.reader(headers_of(scope["headers"]))
        directory, row = await self.find(job_id, reader)
        if reader is not None:
            await self._check_reader(directory, path, reader, scope)
        # A running job's are at its own address, for whoever has its token.
        is_own = reader is None and (not row.ended or self._origin is None)
        if path.startswith(PROXY_ROOT) and not is_own:
            leading = await self._to_task_page(directory, row, path, reader or MYSELF)
            await leading(scope, receive, send)
            return
        if not path:
            # Relative links in the page need the slash.
            await notice(row.name, "One moment.", to=f"./{job_id}/")(scope, receive, send)
            return
        response: Response | None = None
        if request.method == "POST":
            if path == "/stop":
                response = await self._stop(directory, reader)
            elif path in ("/rerun", RERUN):
                response = await self._run_again(row, path, request)
            elif path == STOP and reader is not None:
                response = await self._asked_to_stop(directory, row, reader, request)
        elif path == ADVICE and request.method in SAFE_METHODS:
            response = await self._advice(directory, ended=row.ended)
        elif path == BEFORE and request.method in SAFE_METHODS:
            response = await self._since_before(directory, row, reader)
        if response is not None:
            await response(scope, receive, send)
            return
        if not row.ended:
            answer = self._answer_live if reader is None else self._answer_reader
            if await answer(directory, path, scope, receive, send):
                return
        if row.ended or reader is None:
            self.hang_up(job_id)
        served = await self._served(directory)
        await self._ready(served.source, path, request)
        await served.router(scope, receive, send)

    async def find(self, job_id: str, reader: Reader | None) -> tuple[JobDirectory, Row]:
        """The job of that id.

        Raises:
            Refusal: there is none that the reader may see, or none so far.
        """
        try:
            found = await self._jobs.find(job_id, reader)
        except NotYours as problem:
            raise Refusal(503, str(problem)) from problem
        except TimeoutError:
            raise Refusal(
                503,
                f"the jobs in {self._jobs.place} are still being read, and {job_id[:100]!r} was not among "
                "them so far; load the page again",
            ) from None
        if found is None:
            raise Refusal(404, f"there is no job {job_id[:100]!r} in {self._jobs.place}")
        return found

    async def _check_reader(
        self, directory: JobDirectory, path: str, reader: Reader, scope: Scope
    ) -> None:
        """Refuse what a reader may not do."""
        allowed = await asyncio.to_thread(self._jobs.index.may_stop, [directory.job_id], reader)
        scope[MAY_STOP] = may_stop = directory.job_id in allowed
        if scope["method"] not in SAFE_METHODS:
            if path in ("/rerun", RERUN):
                raise Refusal(403, commands.NOT_FOR_OTHERS)
            if path not in ("/stop", STOP):
                raise Refusal(403, "in this portal a job can be looked at and stopped, no more")
            if not may_stop:
                raise Refusal(
                    403,
                    f"{reader.name} may not stop {directory.job_id}; its owner can say so in the job "
                    "file: [acl] modify = [...] or modify-groups = [...]",
                )

    async def _advice(self, directory: JobDirectory, *, ended: bool) -> Response:
        """What the job wasted, as ``howdah advice`` says it."""
        job_id, now = directory.job_id, time.monotonic()
        found, good_until = self._found.get(job_id, ([], -1.0))
        if good_until < now:
            try:
                found = await asyncio.to_thread(findings, directory)
            except (StorageError, JournalError, BackendError, OSError, ValueError) as problem:
                raise Refusal(404, f"nothing can be told of {job_id}: {problem}") from problem
            self._found[job_id] = found, now + (ENDED_S if ended else ADVICE_S)
            while len(self._found) > HELD:
                self._found.popitem(last=False)
        return Response(msgspec.json.encode(found), media_type="application/json")

    async def _since_before(
        self, directory: JobDirectory, row: Row, reader: Reader | None
    ) -> Response:
        """What of the job file differs from that of the run before."""

        def look() -> bytes:
            before = self._jobs.index.before(row, reader)
            if before is None:
                return msgspec.json.encode(SinceBefore())
            earlier = JobDirectory(self._jobs.base / before.job_id)
            found, same = differences((earlier.job(), directory.job()))
            return msgspec.json.encode(
                SinceBefore(job_id=before.job_id, differences=tuple(found), same=same)
            )

        try:
            answer = await asyncio.to_thread(look)
        except (StorageError, OSError) as problem:
            raise Refusal(404, f"the job files cannot be compared: {problem}") from problem
        return Response(answer, media_type="application/json")

    # -- of a job that runs ----------------------------------------------------------------------

    async def _answer_live(
        self, directory: JobDirectory, path: str, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Have the job's coordinator answer; False if there is none."""
        if path == "/":
            row = await self._jobs.look(directory)
            if row.ended or row.state in ("lost", UNREADABLE):
                return False
            response = job_page(await look(directory), self._frame)
            await response(scope, receive, send)
            return True
        if path.startswith("/proxy/"):
            await (await self._task_page(directory, path))(scope, receive, send)
            return True

        def forward(port: int, token: str) -> Awaitable[None]:
            address = live_answers.coordinator_at(port, token)
            passed = _to_coordinator(scope)
            return proxy.forward(
                passed, receive, send, task=directory.job_id, rest=path, address=address
            )

        try:
            return await self._by_coordinator(directory, path, send, forward)
        except (PageUnreachable, StorageError) as problem:
            self.hang_up(directory.job_id)
            row = await self._jobs.look(directory)
            if (row.ended or row.state == "lost") and scope["method"] in SAFE_METHODS:
                return False
            raise Refusal(
                502, f"the coordinator of {row.job_id} does not answer: {problem}"
            ) from problem

    async def _by_coordinator(
        self,
        directory: JobDirectory,
        path: str,
        send: Send,
        forward: Callable[[int, str], Awaitable[None]],
    ) -> bool:
        """Have it answer, given the port that leads to it and the job's token; False if there is none."""
        port = await self.port(directory)
        if port is None:
            return False
        try:
            await forward(port, await asyncio.to_thread(directory.token))
        except AnswerBrokeOff:
            if path != STREAM_PATH:
                raise
            await send({"type": "http.response.body", "body": BYE})
        return True

    async def _answer_reader(
        self, directory: JobDirectory, path: str, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Have the job's coordinator answer a reader; False if it can't, or was not asked."""
        way = await self.way(directory)
        if path == "/":
            if not way.leads and not way.problem:
                return False
            row = await self._jobs.look(directory)
            if row.ended or row.state in ("lost", UNREADABLE):
                return False
            note = f"This page comes from the job directory, and may be old: {way.problem}."
            frame = msgspec.structs.replace(self._frame, note=note if way.problem else "")
            view = await look(directory)
            response = job_page(view, frame, reads_only=not scope[MAY_STOP])
            await response(scope, receive, send)
            return True
        media = live_answers.kind(path)
        if not way.leads or media is None or scope["method"] not in ("GET", "HEAD"):
            return False

        def ask(port: int, token: str) -> Awaitable[None]:
            now = self._gate.clock() + way.ahead_s
            return live_answers.ask(
                scope, receive, send, path=path, media=media, port=port, token=token, now=now
            )

        try:
            return await self._by_coordinator(directory, path, send, ask)
        except live_answers.NotLetIn as problem:
            until = time.monotonic() + live_answers.AGAIN_S
            self._ways[directory.job_id] = Way(until, problem=str(problem))
            return False
        except (live_answers.NoAnswer, PageUnreachable, StorageError):
            self._ways.pop(directory.job_id, None)  # the next one finds out why
            return False

    async def way(self, directory: JobDirectory) -> Way:
        """Whether the job's coordinator can be asked."""
        job_id = directory.job_id
        known = self._ways.get(job_id)
        if known is not None and known.good_until > time.monotonic():
            return known
        finding = self._finding.get(job_id)
        if finding is None:
            # A page asks for several things at once: it is found out for all of them.
            way_to = live_answers.way_to(
                directory, lambda: self.port(directory), self._gate.clock()
            )
            finding = asyncio.ensure_future(way_to)
            self._finding[job_id] = finding
            finding.add_done_callback(lambda _: self._finding.pop(job_id))
        way = self._ways[job_id] = await asyncio.shield(finding)
        return way

    async def _task_page(self, directory: JobDirectory, path: str) -> Response:
        """To the job's own address: its programs' scripts must not act on other jobs."""
        handle = AsyncJobHandle(directory)
        try:
            await handle.status()  # which tells the job's clock
            page = handle.page(path.removeprefix("/"))
        except (StorageError, BackendError, HowdahError):
            page = None
        if page is None:
            raise Refusal(
                404, f"{directory.job_id} has no coordinator that could lead to that page"
            )
        return notice("Opening the page", "One moment.", to=page)

    async def _to_task_page(
        self, directory: JobDirectory, row: Row, path: str, reader: Reader
    ) -> Response:
        """To the host of the job's own pages, with what lets the reader in there."""
        if self._origin is None:
            raise Refusal(
                404,
                "this portal shows no pages of a job's tasks (TensorBoard, notebooks): their scripts "
                "could act here in the reader's name. The job's owner opens them from the page that "
                f"`howdah page {row.job_id}` opens; on YARN, who may look at the job opens those that "
                "are not locked from the ResourceManager's list of applications. Whoever runs the "
                "portal can have them shown at host names of their own: `howdah portal --pages-url`",
            )
        page = TASK_PAGE.match(path.removeprefix("/").rstrip("/") + "/")
        if page is None:
            raise Refusal(404, f"there is no page of a task at {path[:200]!r}")
        if not row.ended and not (await self.way(directory)).leads:
            row = await self._jobs.look(directory)  # its page was open when it ended, say
        boards = self.boards if page[0] == _BOARD.href else None
        # Whether HDFS has summaries is found out by what copies them.
        if row.ended and not (boards and await asyncio.to_thread(boards.may_have, directory)):
            raise Refusal(
                404,
                f"{row.job_id} has ended, and the pages of its tasks with it. The summaries of its "
                "TensorBoard are in the job directory, and its owner can look at them: "
                "tensorboard --logdir JOB_DIRECTORY/tensorboard",
            )
        return RedirectResponse(self._origin.link(row.job_id, reader, page[0]), 303)

    async def _has_board(self, directory: JobDirectory) -> bool | None:
        """Whether a TensorBoard of an ended job can be shown; None where that is not known in time."""
        if self.boards is None:
            return False
        asking = asyncio.ensure_future(asyncio.to_thread(self.boards.has, directory))
        await asyncio.wait({asking}, timeout=SOON_S)
        return asking.result() if asking.done() else None

    async def port(self, directory: JobDirectory) -> int | None:
        """A port of this machine that leads to the job's own page; None without a coordinator."""
        job_id = directory.job_id
        if job_id not in self._tunnels:
            row = await self._jobs.look(directory)
            if row.state not in ("running", "waiting") or await self._has_no_coordinator(directory):
                return None
        if job_id not in self._tunnels:
            port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            leading = asyncio.ensure_future(_lead(directory, port))
            self._tunnels[job_id] = (leading, port)

            def over(_: asyncio.Task[None]) -> None:
                port.cancel()
                if self._tunnels.get(job_id, (None, None))[0] is leading:
                    del self._tunnels[job_id]  # the next request tries again

            leading.add_done_callback(over)
        opened = self._tunnels[job_id][1]
        await asyncio.wait({opened})
        if opened.cancelled():
            raise PageUnreachable(f"{job_id} has ended")
        return opened.result()

    async def _has_no_coordinator(self, directory: JobDirectory) -> bool:
        try:
            return await asyncio.to_thread(running, directory) is not Running.YES
        except (BackendError, StorageError, OSError):
            return True

    def hang_up(self, job_id: str) -> None:
        self._ways.pop(job_id, None)
        task, _ = self._tunnels.pop(job_id, (None, None))
        if task is not None:
            task.cancel()

    async def _stop(self, directory: JobDirectory, reader: Reader | None) -> Response:
        """Have the job stopped, then go back to the list."""
        if reader is None:
            await _stopped(directory, HERE, firm=False)
        else:
            await _stopped(directory, "", firm=False, by=_by(reader))
        return RedirectResponse("../../", 303)

    async def _asked_to_stop(
        self, directory: JobDirectory, row: Row, reader: Reader, request: Request
    ) -> Response:
        """As the operation of the job's own API, for a reader who may do it."""
        wanted = await stop_request(request)
        if not row.ended:
            row = await self._jobs.look(directory)
        if row.ended or row.state == "lost":
            raise Refusal(409, f"the job is over already: {row.state}")
        await _stopped(directory, wanted.reason[:500], firm=wanted.firm, by=_by(reader))
        answer = StopAnswer(stopping=True, firm=wanted.firm)
        return Response(msgspec.json.encode(answer), 202, media_type="application/json")

    async def _run_again(self, row: Row, path: str, request: Request) -> Response:
        """Start the same job anew: for a form on to its page, for a program its id."""
        if path != RERUN:
            started = await self.starts.once(
                request.url.path,
                await commands.form_of(request),
                lambda: commands.run_again(self._jobs, row, RerunRequest()),
            )
            return commands.page_of(self._jobs, started, "../")
        wanted = await json_body(request, RerunRequest, commands.NOT_SAID)
        started = await commands.run_again(self._jobs, row, wanted)
        return Response(msgspec.json.encode(started), 201, media_type="application/json")

    # -- of a job that nobody runs ---------------------------------------------------------------

    async def _served(self, directory: JobDirectory) -> _Served:
        """What answers for the job from its directory."""
        job_id = directory.job_id
        held = self._past.get(job_id)
        if held is not None and held.good_until > time.monotonic():
            self._past.move_to_end(job_id)
            return held
        making = self._making.get(job_id)
        if making is None:
            # A page asks for several things at once: the job is read for all of them.
            making = self._making[job_id] = asyncio.ensure_future(self._read(directory))
            making.add_done_callback(lambda _: self._making.pop(job_id))
        return await asyncio.shield(making)

    async def _read(self, directory: JobDirectory) -> _Served:
        try:
            view = None if await asyncio.to_thread(directory.final) else await look(directory)
            good_s, links = SOON_S, ()
            if view is None:
                has_board = await self._has_board(directory)
                good_s = UNKNOWN_S if has_board is None else float("inf")
                links = (_BOARD,) if has_board else ()
            source = await asyncio.to_thread(PastJob, directory, view, links)
            if source.missing:
                good_s = min(good_s, UNKNOWN_S)
        except (StorageError, JournalError, OSError, ValueError) as problem:
            raise Refusal(404, f"{directory.job_id} cannot be read: {problem}") from problem
        gate = Gate(source, (), self._gate.clock)  # type: ignore[arg-type]
        watchers = stream.Watchers(source)  # type: ignore[arg-type]
        # One that waits for its coordinator is asked again and again instead of followed, and so is
        # a lost one whose programs still end.
        watchers.closing = view is not None and not (view.lost and view.tasks == ended(view.tasks))
        note = f"Events of this job may be missing here: {source.missing}."
        frame = msgspec.structs.replace(self._frame, note=note if source.missing else "")
        routes = job_routes(source, gate, watchers, frame)  # type: ignore[arg-type]
        router = Router(routes, redirect_slashes=False)
        served = _Served(source, router, watchers, time.monotonic() + good_s)
        if (before := self._past.pop(directory.job_id, None)) is not None:
            before.watchers.close()
        self._past[directory.job_id] = served
        while len(self._past) > HELD:
            _, oldest = self._past.popitem(last=False)
            oldest.watchers.close()
        return served

    async def _ready(self, source: PastJob, path: str, request: Request) -> None:
        """Have read what the answer needs."""
        if path.startswith(("/api/v1/series", "/api/v1/metrics/", "/metrics")):
            await asyncio.to_thread(source.read_samples)
        is_log = path.startswith("/api/v1/logs/")
        named = request.query_params.get("log") or (path.split("/")[4] if is_log else "")
        for task in source.tasks():
            if str(task) == named:
                try:
                    await asyncio.to_thread(source.bring_logs, task)
                except Refusal:
                    if is_log:
                        raise  # what else is asked for can be answered


def _by(reader: Reader) -> str:
    return f"{reader.name} in the portal"


async def _stopped(directory: JobDirectory, reason: str, *, firm: bool, by: str = "") -> None:
    """Have the job stopped.

    Raises:
        Refusal: it is not.
    """
    try:
        await AsyncJobHandle(directory).stop(reason, firm=firm, by=by)
    except (HowdahError, BackendError) as problem:
        raise Refusal(409, f"{directory.job_id} was not stopped: {problem}") from problem


async def _lead(directory: JobDirectory, port: asyncio.Future[int]) -> None:
    """Lead to the job's page until cancelled; tells the port."""
    try:
        async with tunnel(directory, None) as own:
            port.set_result(own)
            await asyncio.Event().wait()
    except OSError as problem:
        port.set_exception(PageUnreachable(f"no way to its coordinator could be opened: {problem}"))


def _to_coordinator(scope: Scope) -> Scope:
    """The request as the coordinator takes it: at its own name."""
    kept = [(name, value) for name, value in scope["headers"] if name not in (b"host", b"origin")]
    return {**scope, "headers": [*kept, (b"host", b"localhost")]}
