"""The JSON API: one function for each operation. Routes and their description are made of these."""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from howdah.coordinator.clients.live_job import LiveJob, NoLog
from howdah.coordinator.driver import JobOver
from howdah.coordinator.status import UnknownTask
from howdah.coordinator.web import documents, logs
from howdah.coordinator.web import stream as streams
from howdah.coordinator.web.documents import (
    Changes,
    LogMatches,
    LogPage,
    RecordLine,
    SeriesPage,
    StacksAnswer,
    StopAnswer,
    StopRequest,
    brief,
)
from howdah.coordinator.web.security import Gate, Refusal
from howdah.coordinator.web.stream import StatusChanges
from howdah.core.messages import Task
from howdah.core.plan import Plan
from howdah.spec.model import Job
from howdah.wire.messages import Sample
from howdah.wire.status import JobView, TaskView

T = TypeVar("T")

ROOT = "/api/v1"

STREAMS_MAX = 100
"""Event streams at once; more readers are asked to poll."""

SERIES_TASKS_MAX = 64
STEP_MIN_S = 0.1


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """What the handlers work on."""

    source: LiveJob
    changes: StatusChanges
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


class In(enum.Enum):
    """Where a parameter stands."""

    PATH = "path"
    QUERY = "query"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of an operation."""

    name: str
    text: str
    type: str = "string"
    place: In = In.QUERY
    many: bool = False


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the API can be asked."""

    method: str
    path: str
    """Below `ROOT`."""
    name: str
    summary: str
    handler: Callable[[Api, Request], Awaitable[Response]]
    answers: tuple[Any, ...] = ()
    """Types of the JSON documents it answers; none where it is no JSON."""
    media: str = "application/json"
    takes: Any = None
    """The type of the JSON document in the request's body."""
    parameters: tuple[Parameter, ...] = ()
    errors: Mapping[int, str] = {}


Handler = Callable[[Api, Request], Awaitable[Response]]

OPERATIONS: list[Operation] = []
"""All, in the order of the description."""


def operation(method: str, path: str, name: str, **rest: Any) -> Callable[[Handler], Handler]:
    """Make an operation of the handler below it."""

    def add(handler: Handler) -> Handler:
        OPERATIONS.append(Operation(method=method, path=path, name=name, handler=handler, **rest))
        return handler

    return add


_TASK = Parameter(name="task", text="A task's name: `worker:0`.", place=In.PATH)
_ATTEMPT = Parameter(name="attempt", text="Which attempt; the newest one.", type="integer")
_NO_TASK = {404: "The job has no such task."}
_NO_LOG = {404: "The job has no such task, or that attempt has no log yet."}
_FOLLOW = (
    Parameter(name="since", text="The `version` of the status you have."),
    Parameter(name="after", text="`seq` of the newest record you have.", type="integer"),
    Parameter(name="log", text="A task whose log to follow."),
    Parameter(name="attempt", text="The attempt of the log you have.", type="integer"),
    Parameter(
        name="offset",
        text="Where your log ends; negative counts from the end.",
        type="integer",
    ),
    Parameter(
        name="pinned",
        text="1: only this attempt's log. Otherwise the newest one's, and the next one's when "
        "the task is started again.",
        type="integer",
    ),
)


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
    return task, logs.newest(api.source, task) if attempt is None else attempt


@contextlib.contextmanager
def _logs_missed() -> Iterator[None]:
    """A log that is not there is an answer in words."""
    try:
        yield
    except NoLog as problem:
        raise Refusal(404, str(problem)) from problem


def _json(content: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


# -- the operations -------------------------------------------------------------------------------


@operation(
    "GET",
    "/job",
    "job",
    summary="The status document, as `howdah status --json` prints it. Has an ETag.",
    answers=(JobView,),
)
async def job(api: Api, request: Request) -> Response:
    """The status document, or word that it has not changed."""
    await api.source.read_last_lines()
    view = api.changes.view()
    tag = f'"{api.changes.version}"'
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers={"ETag": tag})
    response = _json(view)
    response.headers["ETag"] = tag
    response.headers["Cache-Control"] = "private, no-cache"
    return response


@operation(
    "GET",
    "/tasks",
    "tasks",
    summary="The tasks of the status document.",
    answers=(list[TaskView],),
    parameters=(
        Parameter(name="role", text="Only this role's."),
        Parameter(name="state", text="Only those in this state."),
    ),
)
async def tasks(api: Api, request: Request) -> Response:
    """The status document's tasks."""
    wanted = {name: request.query_params.get(name) for name in ("role", "state")}
    return _json(
        [
            task
            for task in api.changes.view().tasks
            if wanted["role"] in (None, task.role) and wanted["state"] in (None, task.state)
        ]
    )


@operation(
    "GET",
    "/tasks/{task}",
    "task",
    summary="One task of the status document.",
    answers=(TaskView,),
    parameters=(_TASK,),
    errors=_NO_TASK,
)
async def task(api: Api, request: Request) -> Response:
    """One of them."""
    name = str(api.task(request))
    for view in api.changes.view().tasks:
        if view.task == name:
            return _json(view)
    raise Refusal(404, f"{name} is not part of the job now")


@operation(
    "GET",
    "/records",
    "records",
    summary=f"Records of the event log, oldest first, at most {streams.RECORDS_MAX}.",
    answers=(list[RecordLine],),
    parameters=(
        Parameter(name="after", text="Only those with a greater `seq`.", type="integer"),
        Parameter(name="limit", text="At most this many.", type="integer"),
    ),
)
async def records(api: Api, request: Request) -> Response:
    """The event log."""
    after = _integer(request, "after", 0) or 0
    limit = min(_integer(request, "limit", None) or streams.RECORDS_MAX, streams.RECORDS_MAX)
    return _json(streams.new_records(api.source, after)[: max(1, limit)])


@operation(
    "GET",
    "/logs/{task}",
    "log",
    summary=(
        "A part of an attempt's log. With `tail`, its last lines. With `grep`, the lines "
        "that hold that text (`LogMatches`)."
    ),
    answers=(LogPage, LogMatches),
    parameters=(
        _TASK,
        _ATTEMPT,
        Parameter(
            name="offset",
            text="From this byte; negative counts from the end. 0 unless given.",
            type="integer",
        ),
        Parameter(
            name="limit",
            text=f"At most this many bytes; {logs.PAGE} unless given, {logs.PAGE_MAX} at most.",
            type="integer",
        ),
        Parameter(name="tail", text="The last so many lines instead.", type="integer"),
        Parameter(
            name="grep",
            text="Plain text to look for, upper and lower case alike. One answer looks "
            f"through {logs.SCAN // 1024 // 1024} MiB; go on at `next_offset`.",
        ),
    ),
    errors=_NO_LOG,
)
async def log_or_search(api: Api, request: Request) -> Response:
    """Either, as the query says."""
    return await (search if "grep" in request.query_params else log)(api, request)


async def log(api: Api, request: Request) -> Response:
    offset = _integer(request, "offset", 0) or 0
    lines = _integer(request, "tail", None)
    limit = _integer(request, "limit", None) or logs.PAGE
    with _logs_missed():
        task, attempt = _chosen(api, request)
        if lines is not None:
            return _json(await logs.tail(api.source, task, attempt, lines))
        return _json(await logs.page(api.source, task, attempt, offset, limit))


async def search(api: Api, request: Request) -> Response:
    wanted = request.query_params.get("grep", "")
    if not wanted:
        raise Refusal(400, "grep is empty; give the text to look for")
    offset = max(0, _integer(request, "offset", 0) or 0)
    with _logs_missed():
        task, attempt = _chosen(api, request)
        return _json(await logs.search(api.source, task, attempt, wanted, offset))


@operation(
    "GET",
    "/logs/{task}/attempts",
    "log-attempts",
    summary="Attempts of a task that have a log.",
    answers=(list[int],),
    parameters=(_TASK,),
    errors=_NO_TASK,
)
async def attempts(api: Api, request: Request) -> Response:
    """Attempts with a log."""
    return _json(api.source.log_attempts(api.task(request)))


@operation(
    "GET",
    "/logs/{task}/raw",
    "log-file",
    summary="A whole log, as a file.",
    media="text/plain",
    parameters=(_TASK, _ATTEMPT),
    errors=_NO_LOG,
)
async def raw_log(api: Api, request: Request) -> Response:
    """A whole log."""
    with _logs_missed():
        task, attempt = _chosen(api, request)
        first = await api.source.read_log(task, attempt, 0, logs.PAGE_MAX)

    async def parts() -> AsyncIterator[bytes]:
        part = first
        while part.data:
            yield part.data
            part = await api.source.read_log(task, attempt, part.next_offset, logs.PAGE_MAX)

    name = f"{api.gate.job_id}-{task.role}-{task.index}-{attempt}.log"
    return StreamingResponse(
        parts(),
        media_type="text/plain; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@operation(
    "GET",
    "/metrics/{task}",
    "samples",
    summary="Measurements of a task as they were taken, and the values it reported.",
    answers=(list[Sample],),
    parameters=(
        _TASK,
        Parameter(name="since", text="Only later ones (seconds, epoch).", type="number"),
    ),
    errors=_NO_TASK,
)
async def samples(api: Api, request: Request) -> Response:
    """Measurements of one task."""
    since = _number(request, "since", 0.0) or 0.0
    return _json(api.source.metrics(api.task(request), since))


@operation(
    "GET",
    "/series",
    "series",
    summary="Measurements of several tasks on one grid of times, for plotting.",
    answers=(SeriesPage,),
    parameters=(
        Parameter(name="task", text=f"Up to {SERIES_TASKS_MAX} times.", many=True),
        Parameter(name="since", text="From when (seconds, epoch); the submission.", type="number"),
        Parameter(name="step", text="Seconds a point stands for; 1.", type="number"),
    ),
    errors=_NO_TASK,
)
async def series(api: Api, request: Request) -> Response:
    """Measurements of several tasks."""
    names = request.query_params.getlist("task")[:SERIES_TASKS_MAX]
    since = _number(request, "since", None)
    step_s = _number(request, "step", 1.0) or 1.0
    if step_s < STEP_MIN_S:
        raise Refusal(400, f"step={step_s:g} is too fine; the least is {STEP_MIN_S} seconds")
    now = api.gate.clock()
    view = api.changes.view()
    end = now if view.finished is None else view.finished
    since = (view.submitted or end) if since is None else since
    start, count = documents.grid(since, end, step_s)
    samples = {name: api.source.metrics(api.named(name), start - 1e-6) for name in names}
    return _json(documents.on_grid(samples, start, step_s, count))


@operation(
    "GET",
    "/config",
    "config",
    summary="The resolved job file.",
    answers=(Job,),
    parameters=(
        Parameter(name="brief", text="1: without what is as it is by default.", type="integer"),
    ),
)
async def config(api: Api, request: Request) -> Response:
    """The job file."""
    job = api.source.job()
    return _json(brief(job) if _flag(request, "brief") else job)


@operation(
    "GET",
    "/plan",
    "plan",
    summary="Roles and limits as the coordinator sees them, in numbers.",
    answers=(Plan,),
)
async def plan(api: Api, request: Request) -> Response:
    """The plan."""
    return _json(api.source.plan())


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


@operation(
    "GET",
    "/changes",
    "changes",
    summary="What changed since you last asked: the stream, for readers that cannot stream.",
    answers=(Changes,),
    parameters=_FOLLOW,
    errors=_NO_TASK,
)
async def changes(api: Api, request: Request) -> Response:
    """What changed."""
    return _json(await streams.poll(api.source, api.changes, _cursor(api, request)))


@operation(
    "GET",
    "/stream",
    "stream",
    summary=(
        "Server-sent events: `hello`, `status` (`StatusPatch`), `record` (`RecordLine`), "
        "`log` (`LogChange`), and `bye` when the coordinator ends."
    ),
    media="text/event-stream",
    parameters=_FOLLOW,
    errors={**_NO_TASK, 503: "Too many streams are open; poll `changes`."},
)
async def stream(api: Api, request: Request) -> Response:
    """The event stream."""
    cursor = _cursor(api, request)
    if len(api.watchers) >= STREAMS_MAX:
        raise Refusal(503, f"{STREAMS_MAX} streams are open already; ask changes again and again")
    return StreamingResponse(
        streams.events(api.source, api.changes, api.watchers, cursor),
        media_type="text/event-stream",
        headers={"X-Accel-Buffering": "no"},
    )


async def json_body(request: Request, kind: type[T], otherwise: str) -> T:
    """What a body in JSON asks for; without a body what holds where nothing is said.

    Args:
        request: it may have none.
        kind: of the body, with a default for every field.
        otherwise: what is wrong with another body.

    Raises:
        Refusal: it is something else.
    """
    body = await request.body()
    if body and not request.headers.get("content-type", "").startswith("application/json"):
        raise Refusal(415, "the body must be application/json")
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.DecodeError as problem:
        raise Refusal(400, f"{otherwise}: {problem}") from problem


async def stop_request(request: Request) -> StopRequest:
    """What is asked for.

    Raises:
        Refusal: the body is none.
    """
    return await json_body(request, StopRequest, "the body is not a stop request")


@operation(
    "POST",
    "/stop",
    "stop",
    summary="Stop the job: SIGTERM, the grace, SIGKILL. Durable when answered.",
    answers=(StopAnswer,),
    takes=StopRequest,
    errors={409: "The job has ended, or its coordinator ends; the text says how."},
)
async def stop(api: Api, request: Request) -> Response:
    """Have the job stopped."""
    wanted = await stop_request(request)
    by = "the HTTP API" if "authorization" in request.headers else "the job page"
    try:
        await api.source.stop(by, wanted.reason[:500], wanted.firm)
    except JobOver as problem:
        raise Refusal(409, str(problem)) from problem
    return _json(StopAnswer(stopping=True, firm=wanted.firm), 202)


@operation(
    "POST",
    "/stacks/{task}",
    "stacks",
    summary="Take the stacks of a running task's programs.",
    answers=(StacksAnswer,),
    parameters=(_TASK,),
    errors={**_NO_TASK, 409: "They could not be taken; the text says why."},
)
async def stacks(api: Api, request: Request) -> Response:
    """Take a task's stacks."""
    task = api.task(request)
    try:
        text = await api.source.stacks(task)
    except RuntimeError as problem:
        raise Refusal(409, f"the stacks of {task} could not be taken: {problem}") from problem
    return _json(StacksAnswer(task=str(task), text=text))
