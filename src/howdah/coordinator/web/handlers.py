"""What the JSON API does: one function for each operation of `howdah.coordinator.web.api`."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncIterator, Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from howdah.coordinator.source import JobSource, NoLog, UnknownTask
from howdah.coordinator.web import logtext
from howdah.coordinator.web import series as grids
from howdah.coordinator.web import stream as streams
from howdah.coordinator.web.board import Board
from howdah.coordinator.web.documents import StacksAnswer, StopAnswer, StopRequest, brief
from howdah.coordinator.web.gate import Gate
from howdah.coordinator.web.security import Refusal
from howdah.core.messages import Task

STREAMS_MAX = 100
"""Event streams at once; more readers are asked to poll."""

SERIES_TASKS_MAX = 64
STEP_MIN_S = 0.1


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers work on."""

    source: JobSource
    board: Board
    watchers: streams.Watchers
    gate: Gate

    def task(self, request: Request) -> Task:
        """The task the path names.

        Raises:
            Refusal: the job has no such task.
        """
        return self.named(request.path_params["task"])

    def named(self, name: str) -> Task:
        """The task of that name.

        Raises:
            Refusal: the job has no such task.
        """
        role, _, index = name.rpartition(":")
        if role and index.isdecimal() and len(index) < 10:
            found = Task(role, int(index))
            try:
                self.source.log_attempts(found)
            except UnknownTask as problem:
                raise Refusal(404, str(problem)) from problem
            return found
        raise Refusal(404, f"{name[:100]!r} is no task; write a role and an index: worker:0")


# -- reading parameters --------------------------------------------------------------------------


def _number(request: Request, name: str, default: float | None) -> float | None:
    text = request.query_params.get(name)
    if text is None or text == "":
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= 1e15:
        raise Refusal(400, f"{name}={text[:50]!r} is not a number; leave it out for its default")
    return value


def _integer(request: Request, name: str, default: int | None) -> int | None:
    value = _number(request, name, None)
    if value is not None and value != int(value):
        raise Refusal(400, f"{name}={value:g} is not a whole number")
    return default if value is None else int(value)


def _flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "") in ("1", "true")


def _chosen(api: Api, request: Request) -> tuple[Task, int]:
    """The task the path names, and the attempt the query names or else its newest."""
    task = api.task(request)
    attempt = _integer(request, "attempt", None)
    return task, logtext.newest(api.source, task) if attempt is None else attempt


@contextlib.contextmanager
def _logs_missed() -> Iterator[None]:
    """A log that is not there is an answer in words."""
    try:
        yield
    except NoLog as problem:
        raise Refusal(404, str(problem)) from problem


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


# -- handlers ------------------------------------------------------------------------------------


async def job(api: Api, request: Request) -> Response:
    """The status document, or word that it has not changed."""
    view = api.board.view()
    tag = f'"{api.board.version}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    response = _json(view)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


async def tasks(api: Api, request: Request) -> Response:
    """The status document's tasks."""
    wanted = {name: request.query_params.get(name) for name in ("role", "state")}
    return _json(
        [
            task
            for task in api.board.view().tasks
            if wanted["role"] in (None, task.role) and wanted["state"] in (None, task.state)
        ]
    )


async def task(api: Api, request: Request) -> Response:
    """One of them."""
    name = str(api.task(request))
    for view in api.board.view().tasks:
        if view.task == name:
            return _json(view)
    raise Refusal(404, f"{name} is not part of the job now")


async def records(api: Api, request: Request) -> Response:
    """The story."""
    after = _integer(request, "after", 0) or 0
    limit = min(_integer(request, "limit", None) or streams.RECORDS_MAX, streams.RECORDS_MAX)
    return _json(streams.new_records(api.source, after)[: max(1, limit)])


async def log(api: Api, request: Request) -> Response:
    """A stretch of a log, or its tail."""
    offset = _integer(request, "offset", 0) or 0
    lines = _integer(request, "tail", None)
    limit = _integer(request, "limit", None) or logtext.PAGE
    with _logs_missed():
        task, attempt = _chosen(api, request)
        if lines is not None:
            return _json(await logtext.tail(api.source, task, attempt, lines))
        return _json(await logtext.page(api.source, task, attempt, offset, limit))


async def search(api: Api, request: Request) -> Response:
    """Lines of a log that hold a text."""
    wanted = request.query_params.get("grep", "")
    if not wanted:
        raise Refusal(400, "grep is empty; give the text to look for")
    offset = max(0, _integer(request, "offset", 0) or 0)
    with _logs_missed():
        task, attempt = _chosen(api, request)
        return _json(await logtext.search(api.source, task, attempt, wanted, offset))


async def log_or_search(api: Api, request: Request) -> Response:
    """Either, as the query says."""
    return await (search if "grep" in request.query_params else log)(api, request)


async def attempts(api: Api, request: Request) -> Response:
    """Attempts with a log."""
    return _json(api.source.log_attempts(api.task(request)))


async def raw_log(api: Api, request: Request) -> Response:
    """A whole log."""
    with _logs_missed():
        task, attempt = _chosen(api, request)
        first = await api.source.read_log(task, attempt, 0, logtext.PAGE_MAX)

    async def parts() -> AsyncIterator[bytes]:
        part = first
        while part.data:
            yield part.data
            part = await api.source.read_log(task, attempt, part.next_offset, logtext.PAGE_MAX)

    name = f"{api.gate.job_id}-{task.role}-{task.index}-{attempt}.log"
    return StreamingResponse(
        parts(),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


async def samples(api: Api, request: Request) -> Response:
    """Measurements of one task."""
    since = _number(request, "since", 0.0) or 0.0
    return _json(api.source.metrics(api.task(request), since))


async def series(api: Api, request: Request) -> Response:
    """Measurements of several tasks."""
    names = request.query_params.getlist("task")[:SERIES_TASKS_MAX]
    since = _number(request, "since", None)
    step_s = _number(request, "step", 1.0) or 1.0
    if step_s < STEP_MIN_S:
        raise Refusal(400, f"step={step_s:g} is too fine; the least is {STEP_MIN_S} seconds")
    now = api.gate.clock()
    view = api.board.view()
    end = now if view.finished is None else view.finished
    since = (view.submitted or end) if since is None else since
    start, count = grids.grid(since, end, step_s)
    samples = {name: api.source.metrics(api.named(name), start - 1e-6) for name in names}
    return _json(grids.on_grid(samples, start, step_s, count))


async def config(api: Api, request: Request) -> Response:
    """The job file."""
    job = api.source.job()
    return _json(brief(job) if _flag(request, "brief") else job)


async def plan(api: Api, request: Request) -> Response:
    """The plan."""
    return _json(api.source.plan())


async def stop(api: Api, request: Request) -> Response:
    """Have the job stopped."""
    body = await request.body()
    if body and not request.headers.get("content-type", "").startswith("application/json"):
        raise Refusal(415, "the body must be application/json")
    try:
        wanted = msgspec.json.decode(body, type=StopRequest) if body else StopRequest()
    except msgspec.DecodeError as problem:
        raise Refusal(400, f"the body is not a stop request: {problem}") from problem
    by = "the HTTP API" if "authorization" in request.headers else "the job page"
    await api.source.stop(by, wanted.reason[:500], wanted.firm)
    return _json(StopAnswer(stopping=True, firm=wanted.firm), 202)


async def stacks(api: Api, request: Request) -> Response:
    """Take a task's stacks."""
    task = api.task(request)
    try:
        text = await api.source.stacks(task)
    except RuntimeError as problem:
        raise Refusal(409, f"the stacks of {task} could not be taken: {problem}") from problem
    return _json(StacksAnswer(task=str(task), text=text))


def _cursor(api: Api, request: Request) -> streams.Cursor:
    log = request.query_params.get("log")
    return streams.Cursor(
        version=request.query_params.get("since", ""),
        after=_integer(request, "after", 0) or 0,
        task=api.named(log) if log else None,
        attempt=_integer(request, "attempt", None),
        offset=_integer(request, "offset", 0) or 0,
        pinned=_flag(request, "pinned"),
    )


async def changes(api: Api, request: Request) -> Response:
    """What changed."""
    return _json(await streams.poll(api.source, api.board, _cursor(api, request)))


async def stream(api: Api, request: Request) -> Response:
    """The event stream."""
    cursor = _cursor(api, request)
    if len(api.watchers) >= STREAMS_MAX:
        raise Refusal(503, f"{STREAMS_MAX} streams are open already; ask changes again and again")
    return StreamingResponse(
        streams.events(api.source, api.board, api.watchers, cursor),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )
