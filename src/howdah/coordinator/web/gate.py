"""The one door of the web app: every request passes here before any route sees it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from howdah.backends.base import PageReaders
from howdah.coordinator.source import JobSource
from howdah.coordinator.web import security
from howdah.coordinator.web.documents import ErrorAnswer
from howdah.coordinator.web.proxy import Broken
from howdah.coordinator.web.tickets import TicketDesk

_log = logging.getLogger(__name__)

STREAM_PATH = "/api/v1/stream"
LOGIN_PATH = "/login"
PROXY_ROOT = "/proxy/"
PROOF = "howdah.proof"
"""Where a request's scope has its `howdah.coordinator.web.security.Proof`."""

BODY_MAX_PROXIED = 1024 * 1024 * 1024
"""Bytes of a request body passed on to a program: an upload to a notebook."""


class Gate:
    """Lets requests in, or not.

    Args:
        source: whose token and name count.
        hosts: names the page may be called by, besides localhost and addresses.
        clock: seconds since the epoch.
        readers: who may read without the token.
    """

    def __init__(
        self,
        source: JobSource,
        hosts: Collection[str],
        clock: Callable[[], float],
        readers: PageReaders = PageReaders(),  # noqa: B008 - frozen
    ) -> None:
        view = source.view()
        self.source = source
        self.clock = clock
        self.readers = readers
        self.job_id = view.job_id
        self.hosts = frozenset(name.lower().rstrip(".") for name in hosts)
        self.desk = TicketDesk(source.token, opened=clock() if view.incarnation > 1 else 0.0)

    def admit(
        self, headers: Mapping[str, str], method: str, *, stream: bool, client: str = ""
    ) -> security.Proof:
        """Let a request in.

        Raises:
            Refusal: it is not let in.
        """
        return security.admit(
            headers,
            method,
            stream=stream,
            token=self.source.token,
            job_id=self.job_id,
            hosts=self.hosts,
            now=self.clock(),
            client=client,
            readers=self.readers,
        )


class GateMiddleware:
    """Refuses what the gate refuses and puts the security headers on every answer of ours.

    Args:
        app: what is behind the gate.
        gate: decides.
        refused: makes the page a person sees instead.
    """

    def __init__(
        self, app: ASGIApp, gate: Gate, refused: Callable[[security.Refusal], Response]
    ) -> None:
        self._app = app
        self._gate = gate
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = security.headers_of(scope["headers"])
        path: str = scope["path"]
        proxied = path.startswith(PROXY_ROOT)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start" and not scope.get("howdah.proxied"):
                own = MutableHeaders(scope=message)
                for name, value in security.PAGE_HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        try:
            if "content-length" in headers and "transfer-encoding" in headers:
                # Two lengths: a proxy in between may have believed the other one.
                raise security.Refusal(400, "the request has two lengths")
            if path == LOGIN_PATH:
                # The ticket is the proof here.
                security.check_host(headers, self._gate.hosts)
            else:
                client = scope.get("client") or ("",)
                scope[PROOF] = self._gate.admit(
                    headers, scope["method"], stream=path == STREAM_PATH, client=client[0]
                )
            receive = _limited(headers, receive, BODY_MAX_PROXIED if proxied else security.MAX_BODY)
            await self._app(scope, receive, guarded)
        except security.Refusal as refusal:
            await self._answer(refusal, headers)(scope, receive, guarded)
        except Broken:
            raise
        except Exception:
            _log.exception("a request for %s failed; this is a defect of Howdah", path)
            defect = security.Refusal(500, "a defect of Howdah: the coordinator's log has more")
            await self._answer(defect, headers)(scope, receive, guarded)

    def _answer(self, refusal: security.Refusal, headers: Mapping[str, str]) -> Response:
        if "text/html" in headers.get("accept", ""):
            response = self._refused(refusal)
        else:
            response = Response(
                msgspec.json.encode(ErrorAnswer(error=refusal.message)),
                refusal.status,
                media_type="application/json",
            )
        if refusal.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        # Whatever of the request is still unread is not worth reading.
        response.headers["Connection"] = "close"
        return response


def _limited(headers: Mapping[str, str], receive: Receive, limit: int) -> Receive:
    """``receive`` that refuses a body over the limit.

    Raises:
        Refusal: at once if its length is announced, else when it is reached.
    """
    problem = security.Refusal(413, f"the request's body is larger than {limit} bytes")
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > limit:
        raise problem
    read = 0

    async def counted() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit:
            raise problem
        return message

    return counted
