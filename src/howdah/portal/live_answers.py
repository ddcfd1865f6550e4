"""What the coordinator of a running job answers to a reader of a team's portal.

The portal can read each job's secrets, and could ask as its owner. It asks with a reader's pass
instead, so the coordinator answers as to anybody who may only look. Nothing of the reader's own
request goes there but the operation and its parameters: what a sign-in proxy adds to a request is not
for the programs of other users.

The coordinator is one of those programs, and may answer anything, in the portal's name. So of its
answer only the body is passed on, as the kind of document that was asked for; a browser takes it for
nothing else, and keeps no cookie of it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from starlette.routing import compile_path
from starlette.types import Message, Receive, Scope, Send

from howdah.backends.base import BackendError, Running
from howdah.client.errors import HowdahError
from howdah.client.following.tunnel import LOCAL, NoPage, check
from howdah.client.handle import AsyncJobHandle
from howdah.client.lookup.site import running, site_of
from howdah.coordinator.clients.task_pages import PageUnreachable
from howdah.coordinator.web import proxy
from howdah.coordinator.web.api import OPERATIONS, ROOT
from howdah.core.messages import Task
from howdah.storage.jobdir import JobDirectory, StorageError
from howdah.wire import tickets
from howdah.wire.messages import WebAddress

REACH_S = 5.0
"""A coordinator that has not let the portal in within this is not waited for by its readers."""
HEAD_S = 30.0
"""Nor one that has not begun to answer."""
SOON_S = 2.0
"""A job without a coordinator is looked at again after this."""
AGAIN_S = 15.0
"""The same where there is one that cannot be asked."""
GOOD_S = 60.0

OLDER = (
    "its coordinator does not take a portal's word for who reads: it may be of an older Howdah. "
    "“howdah page” shows its owner the page itself"
)
_JSON = "application/json"
_EVENTS = "text/event-stream"
_LIVE = [
    (compile_path(ROOT + each.path)[0], each.media) for each in OPERATIONS if each.method == "GET"
]
_STATUSES = frozenset({200, 304, 400, 404, 503})
_KEPT = {
    b"etag": re.compile(rb'"[0-9a-f-]{1,40}"'),
    b"content-disposition": re.compile(rb'attachment; filename="[A-Za-z0-9._-]{1,200}"'),
}
"""Headers of an answer that are passed on where they look so."""


class NoAnswer(Exception):
    """The coordinator did not answer as to a reader; nothing was sent on. The text says why."""


class NotLetIn(NoAnswer):
    """It lets no reader in."""


class Way(msgspec.Struct, frozen=True):
    """Whether a job's coordinator can be asked."""

    good_until: float
    """By the monotonic clock."""
    leads: bool = False
    problem: str = ""
    """Why a coordinator that there is cannot be asked, and what to do."""
    ahead_s: float = 0.0
    """How far the job's clock is ahead of this machine's."""


def kind(path: str) -> str | None:
    """The media type of what that path within a job is answered with, if a coordinator can be asked it."""
    return next((media for pattern, media in _LIVE if pattern.fullmatch(path)), None)


async def way_to(
    directory: JobDirectory, port_to: Callable[[], Awaitable[int | None]], now: float
) -> Way:
    """Find out whether the job's coordinator lets the portal in, and its readers.

    Args:
        directory: the job's.
        port_to: gives a port of this machine that leads to the job's page.
        now: seconds since the epoch.
    """
    try:
        if await asyncio.to_thread(running, directory) is not Running.YES:
            return Way(time.monotonic() + SOON_S)
        async with asyncio.timeout(REACH_S):
            await check(directory, None)
            handle = AsyncJobHandle(directory)
            await handle.status()  # which tells the job's clock
        ahead_s = handle.clock() - time.time()
        port = await port_to()
        if port is None:
            return Way(time.monotonic() + SOON_S)
        token = await asyncio.to_thread(directory.token)
        await _knock(port, token, now + ahead_s)
    except NotLetIn as problem:
        return Way(time.monotonic() + AGAIN_S, problem=str(problem))
    except (NoPage, NoAnswer, PageUnreachable):  # it begins, or ends
        return Way(time.monotonic() + SOON_S)
    except (HowdahError, BackendError, StorageError, OSError) as error:
        problem = await asyncio.to_thread(_in_words, directory, error)
        return Way(time.monotonic() + AGAIN_S, problem=problem)
    return Way(time.monotonic() + GOOD_S, leads=True, ahead_s=ahead_s)


async def _knock(port: int, token: str, now: float) -> None:
    """Ask as a reader, for no answer but that."""
    path = f"{ROOT}/job"
    scope = {"method": "HEAD", "query_string": b"", "raw_path": path.encode(), "headers": []}
    begun = False

    async def receive() -> Message:
        nonlocal begun
        if begun:
            await asyncio.Event().wait()
        begun = True
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        pass

    await ask(scope, receive, send, path=path, media=_JSON, port=port, token=token, now=now)


def _in_words(directory: JobDirectory, error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return (
            f"the portal cannot read {error.filename} ({error.strerror}), without which no coordinator "
            "lets it in: run it as an account that can read all of a job directory"
        )
    try:
        address = site_of(directory).coordinator()
    except (StorageError, BackendError, OSError):
        address = None
    if not isinstance(error, OSError) or address is None:
        return f"its coordinator cannot be asked: {error or type(error).__name__}"
    return (
        f"its coordinator at {address.host}:{address.port} does not answer this portal "
        f"({error.strerror or 'no answer in time'}): let the portal's machine reach the ports of "
        "`network.ports` there"
    )


def coordinator_at(port: int, secret: str) -> WebAddress:
    """A coordinator as what a proxy reaches, at a port of this machine that leads to the job's page."""
    return WebAddress(
        task=Task("page", 0), attempt=0, name="page", host=LOCAL, port=port, secret=secret
    )


async def ask(
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    path: str,
    media: str,
    port: int,
    token: str,
    now: float,
) -> None:
    """Have the coordinator answer a reader.

    Args:
        scope: of the reader's request, which may only look.
        receive: the same.
        send: takes the answer.
        path: within the job.
        media: its `kind`.
        port: of this machine, which leads to the job's page.
        token: the job's.
        now: by the job's clock, in seconds since the epoch.

    Raises:
        NoAnswer: it did not, and nothing was sent.
        PageUnreachable: the same.
        AnswerBrokeOff: the answer broke off.
    """
    asked = [(name, value) for name, value in scope["headers"] if name == b"if-none-match"]
    reduced = {**scope, "client": None, "headers": [(b"host", b"localhost"), *asked]}
    page = coordinator_at(port, tickets.mint_pass(token, now))
    begun = False
    try:
        async with asyncio.timeout(HEAD_S) as deadline:

            def begin() -> None:
                nonlocal begun
                begun = True
                deadline.reschedule(None)

            await proxy.forward(
                reduced,
                receive,
                _document(send, media, begin),
                task="its coordinator",
                rest=quote(path, safe="/:"),
                address=page,
            )
    except TimeoutError:
        if begun:
            raise
        raise NoAnswer(f"its coordinator has not answered within {HEAD_S:.0f} s") from None


def _document(send: Send, media: str, begin: Callable[[], None]) -> Send:
    """``send`` that passes on a document of that kind, or an error of the API."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            status = message["status"]
            if status in (401, 403):
                raise NotLetIn(OLDER)
            if status not in _STATUSES:
                raise NoAnswer(f"its coordinator answered {status}")
            begin()
            headers = [(b"content-type", (media if status == 200 else _JSON).encode())]
            if media == _EVENTS:
                headers.append((b"x-accel-buffering", b"no"))
            headers += [
                (name, value)
                for name, value in message["headers"]
                if name in _KEPT and _KEPT[name].fullmatch(value)
            ]
            message = {"type": message["type"], "status": status, "headers": headers}
        await send(message)

    return sending
