"""The JSON API as one table of operations: routes and their description are made from it."""

from __future__ import annotations

import enum
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from howdah.coordinator.web import handlers, logtext, stream
from howdah.coordinator.web.documents import (
    Changes,
    LogMatches,
    LogPage,
    RecordLine,
    SeriesPage,
    StacksAnswer,
    StopAnswer,
    StopRequest,
)
from howdah.core.plan import Plan
from howdah.spec.model import Job
from howdah.wire.messages import Sample
from howdah.wire.status import JobView, TaskView

ROOT = "/api/v1"


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
    handler: Callable[[handlers.Api, Request], Awaitable[Response]]
    answers: tuple[Any, ...] = ()
    """Types of the JSON documents it answers; none where it is no JSON."""
    media: str = "application/json"
    takes: Any = None
    """The type of the JSON document in the request's body."""
    parameters: tuple[Parameter, ...] = ()
    errors: Mapping[int, str] = {}


# -- the table -----------------------------------------------------------------------------------

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

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        method="GET",
        path="/job",
        name="job",
        summary="The status document, as `howdah status --json` prints it. Has an ETag.",
        handler=handlers.job,
        answers=(JobView,),
    ),
    Operation(
        method="GET",
        path="/tasks",
        name="tasks",
        summary="The tasks of the status document.",
        handler=handlers.tasks,
        answers=(list[TaskView],),
        parameters=(
            Parameter(name="role", text="Only this role's."),
            Parameter(name="state", text="Only those in this state."),
        ),
    ),
    Operation(
        method="GET",
        path="/tasks/{task}",
        name="task",
        summary="One task of the status document.",
        handler=handlers.task,
        answers=(TaskView,),
        parameters=(_TASK,),
        errors=_NO_TASK,
    ),
    Operation(
        method="GET",
        path="/records",
        name="records",
        summary=f"Lines of the job's story, oldest first, at most {stream.RECORDS_MAX}.",
        handler=handlers.records,
        answers=(list[RecordLine],),
        parameters=(
            Parameter(name="after", text="Only those with a greater `seq`.", type="integer"),
            Parameter(name="limit", text="At most this many.", type="integer"),
        ),
    ),
    Operation(
        method="GET",
        path="/logs/{task}",
        name="log",
        summary=(
            "A stretch of an attempt's log. With `tail`, its last lines. With `grep`, the lines "
            "that hold that text (`LogMatches`)."
        ),
        handler=handlers.log_or_search,
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
                text=f"At most this many bytes; {logtext.PAGE} unless given, "
                f"{logtext.PAGE_MAX} at most.",
                type="integer",
            ),
            Parameter(name="tail", text="The last so many lines instead.", type="integer"),
            Parameter(
                name="grep",
                text="Plain text to look for, upper and lower case alike. One answer looks "
                f"through {logtext.SCAN // 1024 // 1024} MiB; go on at `next_offset`.",
            ),
        ),
        errors=_NO_LOG,
    ),
    Operation(
        method="GET",
        path="/logs/{task}/attempts",
        name="log-attempts",
        summary="Attempts of a task that have a log.",
        handler=handlers.attempts,
        answers=(list[int],),
        parameters=(_TASK,),
        errors=_NO_TASK,
    ),
    Operation(
        method="GET",
        path="/logs/{task}/raw",
        name="log-file",
        summary="A whole log, as a file.",
        handler=handlers.raw_log,
        media="text/plain",
        parameters=(_TASK, _ATTEMPT),
        errors=_NO_LOG,
    ),
    Operation(
        method="GET",
        path="/metrics/{task}",
        name="samples",
        summary="Measurements of a task as they were taken, and the values it reported.",
        handler=handlers.samples,
        answers=(list[Sample],),
        parameters=(
            _TASK,
            Parameter(name="since", text="Only later ones (seconds, epoch).", type="number"),
        ),
        errors=_NO_TASK,
    ),
    Operation(
        method="GET",
        path="/series",
        name="series",
        summary="Measurements of several tasks on one grid of times, for plotting.",
        handler=handlers.series,
        answers=(SeriesPage,),
        parameters=(
            Parameter(name="task", text=f"Up to {handlers.SERIES_TASKS_MAX} times.", many=True),
            Parameter(
                name="since", text="From when (seconds, epoch); the submission.", type="number"
            ),
            Parameter(name="step", text="Seconds a point stands for; 1.", type="number"),
        ),
        errors=_NO_TASK,
    ),
    Operation(
        method="GET",
        path="/config",
        name="config",
        summary="The resolved job file.",
        handler=handlers.config,
        answers=(Job,),
        parameters=(
            Parameter(name="brief", text="1: without what is as it is by default.", type="integer"),
        ),
    ),
    Operation(
        method="GET",
        path="/plan",
        name="plan",
        summary="Roles and limits as the coordinator sees them, in numbers.",
        handler=handlers.plan,
        answers=(Plan,),
    ),
    Operation(
        method="GET",
        path="/changes",
        name="changes",
        summary="What changed since you last asked: the stream, for readers that cannot stream.",
        handler=handlers.changes,
        answers=(Changes,),
        parameters=_FOLLOW,
        errors=_NO_TASK,
    ),
    Operation(
        method="GET",
        path="/stream",
        name="stream",
        summary=(
            "Server-sent events: `hello`, `status` (`StatusPatch`), `record` (`RecordLine`), "
            "`log` (`LogChange`), and `bye` when the coordinator ends."
        ),
        handler=handlers.stream,
        media="text/event-stream",
        parameters=_FOLLOW,
        errors={**_NO_TASK, 503: "Too many streams are open; poll `changes`."},
    ),
    Operation(
        method="POST",
        path="/stop",
        name="stop",
        summary="Stop the job: SIGTERM, the grace, SIGKILL. Durable when answered.",
        handler=handlers.stop,
        answers=(StopAnswer,),
        takes=StopRequest,
    ),
    Operation(
        method="POST",
        path="/stacks/{task}",
        name="stacks",
        summary="Take the stacks of a running task's programs.",
        handler=handlers.stacks,
        answers=(StacksAnswer,),
        parameters=(_TASK,),
        errors={**_NO_TASK, 409: "They could not be taken; the text says why."},
    ),
)
