"""Who may ask, from where: every request is checked here before a route sees it.

Every request must (1) name a host that is ours, so that a stranger's web site cannot reach the
job through a DNS name of its own that it points here (rebinding); (2) prove the job's token, as
``Authorization: Bearer`` or by the session cookie; (3) if it changes something or opens a stream
with only the cookie as proof, come from our own pages.
"""

from __future__ import annotations

import enum
import hmac
import ipaddress
import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from urllib.parse import unquote_plus, urlsplit

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from howdah.backends.base import BackendError, PageReaders
from howdah.coordinator.clients.live_job import LiveJob
from howdah.coordinator.web.documents import ErrorAnswer
from howdah.wire import tickets
from howdah.wire.tickets import TicketStore

log: logging.Logger = logging.getLogger(__name__)


RawHeaders = Iterable[tuple[bytes, bytes]]

COOKIE_PREFIX = "howdah-"
"""Cookies of this and other jobs' pages; proxied programs never see them nor set them."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:@/\[\]\s]+)(?::\d{1,5})?")

MAX_BODY = 64 * 1024
"""Bytes of a request body of our own API."""

PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
"""On every answer of ours; a handler's own value of a header wins."""

PROXIED_HEADERS: Mapping[str, str] = {
    "X-Frame-Options": "SAMEORIGIN",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""On answers of proxied programs that do not say so themselves."""


class Proof(enum.Enum):
    """How a request proved the token."""

    BEARER = "bearer"
    COOKIE = "cookie"
    READER = "reader"
    """None of the token itself: a proxy of the cluster says who reads (`howdah.backends.base.PageReaders`),
    or a portal asks for one of its readers, with a pass (`howdah.wire.tickets`)."""


READER_COOKIE = "proxy-user"
_READING = frozenset({"GET", "HEAD"})


class AnswerBrokeOff(Exception):
    """The answer of a proxied program broke off after it had begun; the browser's connection must too."""


class Refusal(Exception):
    """A request that is not let in."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def headers_of(raw: RawHeaders) -> dict[str, str]:
    """Headers by lower-case name; several of a name are joined (cookies by ``;``)."""
    found: dict[str, str] = {}
    for name_bytes, value_bytes in raw:
        name = name_bytes.decode("latin-1").lower()
        value = value_bytes.decode("latin-1")
        if name in found:
            found[name] += ("; " if name == "cookie" else ", ") + value
        else:
            found[name] = value
    return found


def _twice(raw: RawHeaders, names: Collection[str]) -> str:
    """A header of these names, in lower case, that is there more than once; else ""."""
    seen: set[str] = set()
    for name_bytes, _ in raw:
        name = name_bytes.decode("latin-1").lower()
        if name in names and name in seen:
            return name
        seen.add(name)
    return ""


def host_name(host: str) -> str:
    """The name or address in a ``Host`` value, without its port, in lower case; empty if wrong."""
    found = _HOST.fullmatch(host)
    return found[1].strip("[]").rstrip(".").lower() if found else ""


def host_is_ours(host: str, allowed: Collection[str]) -> bool:
    """Whether a ``Host`` value can be meant for this job.

    Addresses are let through: rebinding needs a name. ``*`` in ``allowed`` lets all through.
    """
    name = host_name(host)
    if not name:
        return False
    if "*" in allowed or name == "localhost" or name.endswith(".localhost") or name in allowed:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def cookies_of(header: str) -> dict[str, str]:
    """Cookies of a ``Cookie`` header, as sent; the first of a name wins."""
    found: dict[str, str] = {}
    for part in header.split(";"):
        name, equals, value = part.strip().partition("=")
        if equals:
            found.setdefault(name, value)
    return found


def prove(headers: Mapping[str, str], token: str, job_id: str, now: float) -> Proof | None:
    """How the request proves the token, or None if it does not."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        if hmac.compare_digest(given.strip().encode(), token.encode()):
            return Proof.BEARER
        if tickets.pass_is_good(given.strip(), token, now):
            return Proof.READER
    session = cookies_of(headers.get("cookie", "")).get(tickets.session_cookie(job_id))
    if session is not None and tickets.session_is_good(session, token, now):
        return Proof.COOKIE
    return None


def is_same_origin(headers: Mapping[str, str], *, strict: bool) -> bool:
    """Whether a browser sent this from one of our own pages.

    Browsers say so in ``Sec-Fetch-Site`` (on https and localhost only) and in ``Origin`` (on every
    request that can change something). With neither, ``strict`` decides: no browser leaves both
    out of a POST.
    """
    site = headers.get("sec-fetch-site")
    origin = headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    if origin is not None:
        try:
            netloc = urlsplit(origin).netloc
        except ValueError:
            return False
        return bool(netloc) and netloc.lower() == headers.get("host", "").lower()
    return site is not None or not strict


PROOFS = (
    "open the link that `howdah status` prints, or send `Authorization: Bearer` with the content of "
    "secrets/token"
)


def reader_of(headers: Mapping[str, str]) -> str:
    """Who reads, as a cluster's proxy says; empty if it does not."""
    # WebAppProxyServlet writes it with URLEncoder.
    return unquote_plus(cookies_of(headers.get("cookie", "")).get(READER_COOKIE, ""))


def check_host(headers: Mapping[str, str], hosts: Collection[str]) -> None:
    """Refuse a request that was sent to a name that is not ours.

    Raises:
        Refusal: it was.
    """
    host = headers.get("host", "")
    if not host_is_ours(host, hosts):
        raise Refusal(
            421,
            f"this job is not called {host[:100]!r}; use its address as `howdah status` prints it, "
            "or add the name to the coordinator's allowed hosts",
        )


def own_cookies_removed(header: str) -> str:
    """A ``Cookie`` header without the session cookies of job pages."""
    kept = [
        part.strip() for part in header.split(";") if not part.strip().startswith(COOKIE_PREFIX)
    ]
    return "; ".join(part for part in kept if part)


_log = logging.getLogger(__name__)

STREAM_PATH = "/api/v1/stream"
LOGIN_PATH = "/login"
PROXY_ROOT = "/proxy/"
STATIC_ROOT = "/static/"
"""Files that are the same for every job."""
PROOF = "howdah.proof"
"""Where a request's scope has its `Proof`."""
MAY_STOP = "howdah.may-stop"
"""In the scope of a reader's request, true: they may stop the job all the same."""
PEER = "howdah.stranger"
"""In a request's scope: its connection, which is told once a request of it is let in."""

BODY_MAX_PROXIED = 1024 * 1024 * 1024
"""Bytes of a request body passed on to a program: an upload to a notebook."""


class Gate:
    """Lets requests in, or not.

    Args:
        source: whose token and name count.
        hosts: names the page may be called by, besides localhost and addresses.
        clock: seconds since the epoch.
        readers: who may read without the token.
        proofs: what would let a request in, for the answer that it has not.
    """

    def __init__(
        self,
        source: LiveJob,
        hosts: Collection[str],
        clock: Callable[[], float],
        readers: PageReaders = PageReaders(),  # noqa: B008 - frozen
        proofs: str = PROOFS,
    ) -> None:
        self._proofs = proofs
        self.once: frozenset[str] = frozenset()
        """Headers by which somebody is known: of two of one name, one may be their own."""
        view = source.view()
        self.source = source
        self.clock = clock
        self.readers = readers
        self.job_id: str = view.job_id
        self.hosts: frozenset[str] = frozenset(name.lower().rstrip(".") for name in hosts)
        self.tickets: TicketStore = TicketStore(
            source.token, opened=clock() if view.incarnation > 1 else 0.0
        )

    async def admit(
        self, headers: Mapping[str, str], method: str, *, stream: bool, client: str = ""
    ) -> Proof:
        """Let a request in; ``stream``: it opens a stream of events or a websocket, ``client``: the
        address its connection comes from.

        Raises:
            Refusal: it is not let in.
        """
        check_host(headers, self.hosts)
        proof = prove(headers, self.source.token, self.job_id, self.clock())
        if proof is None and client in self.readers.addresses:
            return await self._admit_reader(headers, method)
        if proof is None:
            raise Refusal(
                401, f"this request does not prove that it comes from the owner; {self._proofs}"
            )
        if proof is Proof.READER and method not in _READING:
            raise Refusal(403, "with a pass this job can only be looked at")
        changes = method not in SAFE_METHODS
        if proof is Proof.COOKIE and (changes or stream):
            if not is_same_origin(headers, strict=changes):
                raise Refusal(
                    403,
                    f"this {method} comes from another site (Origin {headers.get('origin')!r}); only "
                    "the job's own page may send it",
                )
        return proof

    async def _admit_reader(self, headers: Mapping[str, str], method: str) -> Proof:
        user = reader_of(headers)
        if not user:
            raise Refusal(
                401, f"the cluster's proxy did not say who reads (cookie {READER_COOKIE})"
            )
        if not await self._may_look(user):
            raise Refusal(
                403,
                f"{user[:100]!r} may not see this job; its owner can say so in the job file: "
                "[acl] view = [...] or view-groups = [...]",
            )
        if method not in _READING:
            raise Refusal(
                403,
                "through the cluster's proxy this page can only be looked at; `howdah status` prints "
                "a link to the page itself",
            )
        return Proof.READER

    async def _may_look(self, user: str) -> bool:
        """Whether the user is one of the readers, or in one of their groups.

        Raises:
            Refusal: that cannot be known now.
        """
        readers = self.readers
        if readers.users is None or user in readers.users:
            return True
        if not readers.groups or readers.groups_of is None:
            return False
        try:
            groups = await readers.groups_of(user)
        except BackendError as error:
            raise Refusal(
                503, f"whether {user[:100]!r} may see this job is not known: {error}"
            ) from error
        return not readers.groups.isdisjoint(groups)


class GateMiddleware:
    """Refuses what the gate refuses and puts the security headers on every answer of ours.

    Args:
        app: what is behind the gate.
        gate: decides.
        refused: makes the page a person sees instead.
        within: the path within the job, of a path; where several jobs are behind one gate.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate,
        refused: Callable[[Refusal], Response],
        within: Callable[[str], str] = str,
    ) -> None:
        self._app = app
        self._gate = gate
        self._refused = refused
        self._within = within

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = headers_of(scope["headers"])
        path = self._within(scope["path"])
        proxied = path.startswith(PROXY_ROOT)

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start" and not scope.get("howdah.proxied"):
                own = MutableHeaders(scope=message)
                for name, value in PAGE_HEADERS.items():
                    own.setdefault(name, value)
            await send(message)

        try:
            if self._gate.once and (twice := _twice(scope["headers"], self._gate.once)):
                raise Refusal(400, f"the request has the header {twice} twice")
            if "content-length" in headers and "transfer-encoding" in headers:
                # Two lengths: a proxy in between may have believed the other one.
                raise Refusal(400, "the request has two lengths")
            if scope["path"] == LOGIN_PATH:
                # The ticket is the proof here.
                check_host(headers, self._gate.hosts)
            else:
                client = scope.get("client") or ("",)
                scope[PROOF] = await self._gate.admit(
                    headers, scope["method"], stream=path == STREAM_PATH, client=client[0]
                )
                if (peer := scope.get(PEER)) is not None:
                    peer.proven()
            receive = _limited(headers, receive, BODY_MAX_PROXIED if proxied else MAX_BODY)
            await self._app(scope, receive, guarded)
        except Refusal as refusal:
            await self._answer(refusal, headers)(scope, receive, guarded)
        except AnswerBrokeOff:
            raise
        except Exception:
            _log.exception("a request for %s failed; this is a defect of Howdah", path)
            defect = Refusal(500, "a defect of Howdah: the coordinator's log has more")
            await self._answer(defect, headers)(scope, receive, guarded)

    def _answer(self, refusal: Refusal, headers: Mapping[str, str]) -> Response:
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
    problem = Refusal(413, f"the request's body is larger than {limit} bytes")
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
