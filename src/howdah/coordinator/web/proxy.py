"""The reverse proxy to web pages that tasks announce: TensorBoard, notebooks, dashboards.

Only announced addresses are reached, over HTTP/1.1, one connection a request, bodies streamed both
ways. A program that ``keeps_prefix`` is sent the whole path ``/proxy/<task>/…``; for others it is
cut off. Our cookies and the token never reach the program, nor can it set cookies by our names.

Not guaranteed: a proxied page has the same origin as the job page, so its scripts may do what the
reader may. It is the job's own program, run by the job's own user.

Websockets of proxied programs (notebooks need them): bytes passed on both ways, unread.

The HTTP server hands over a connection whose request asks for an upgrade. The request is let in by
the same rules as any other, its head is rewritten as the proxy rewrites it, and from then on the two
sides talk by themselves. No websocket library is needed for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import posixpath
from collections.abc import Iterable
from urllib.parse import quote, unquote, urlsplit

import h11
import msgspec
from starlette.types import Receive, Scope, Send

from howdah.coordinator.clients.task_pages import PageUnreachable, connect, prefix_of
from howdah.coordinator.web import security
from howdah.coordinator.web.security import Gate
from howdah.wire.messages import WebAddress
from howdah.wire.unauthenticated_peers import UnauthenticatedPeer

HEAD_S = 300.0
"""A program may compute this long before its answer begins."""
HEAD_MAX = 128 * 1024
CHUNK = 64 * 1024

_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that speak of one connection (RFC 9110, 7.6.1), never passed on."""

_NOT_UP = _HOP | {"authorization", "cookie", "content-length", "forwarded", "x-forwarded-for"}
_NOT_DOWN = _HOP | {"clear-site-data", "service-worker-allowed"}
"""A proxied page must not clear the job page's cookies nor take its requests over."""


class ProxyTarget(msgspec.Struct, frozen=True):
    """Where a request was sent to."""

    host: str
    """Its ``Host``."""
    path: str
    """Its whole path from the coordinator's root, as sent."""


def target_path(raw_path: str, query: str, task: str, address: WebAddress) -> str:
    """The request target for the program.

    Args:
        raw_path: as sent, below ``/proxy/<task>``; empty or beginning with a slash.
        query: as sent, without its question mark.
        task: as in ``worker:0``.
        address: as announced.
    """
    path = raw_path or "/"
    if address.keeps_prefix:
        path = quote(prefix_of(task), safe="/:") + path
    return path + (f"?{query}" if query else "")


def upward_headers(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    client: str,
    keep: Iterable[str] = (),
    secret: str = "",
) -> list[tuple[bytes, bytes]]:
    """Request headers for the program.

    Args:
        headers: the browser's.
        client: its address.
        keep: hop-by-hop headers to pass on all the same (a websocket's ``upgrade``).
        secret: what the program demands; empty where it demands nothing.
    """
    pairs = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in headers]
    dropped = (_NOT_UP | _named_by_connection(pairs)) - set(keep)
    kept = [(name, value) for name, value in pairs if name not in dropped]
    cookie = security.own_cookies_removed(
        "; ".join(value for name, value in pairs if name == "cookie")
    )
    if cookie:
        kept.append(("cookie", cookie))
    kept.append(("x-forwarded-for", client))
    if secret:
        kept.append(("authorization", f"Bearer {secret}"))
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]


def downward_headers(
    headers: Iterable[tuple[bytes, bytes]],
    *,
    at: ProxyTarget,
    task: str,
    address: WebAddress,
    keep: Iterable[str] = (),
) -> list[tuple[bytes, bytes]]:
    """Answer headers for the browser: redirects and cookies made to fit the proxy's place.

    ``keep``: as of `upward_headers`.
    """
    pairs = [(n.decode("latin-1").lower(), v.decode("latin-1")) for n, v in headers]
    dropped = (_NOT_DOWN | _named_by_connection(pairs)) - set(keep)
    kept: list[tuple[str, str]] = []
    for name, value in pairs:
        if name in dropped:
            continue
        if name in ("location", "content-location"):
            value = relocated(value, at=at, task=task, address=address)
        elif name == "set-cookie":
            fitted = _fitted_cookie(value, task, address)
            if fitted is None:
                continue
            value = fitted
        kept.append((name, value))
    present = {name for name, _ in kept}
    for name, value in security.PROXIED_HEADERS.items():
        if name.lower() not in present:
            kept.append((name.lower(), value))
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]


def relocated(location: str, *, at: ProxyTarget, task: str, address: WebAddress) -> str:
    """A redirect made relative to the page that was asked for, so that it fits below any prefix.

    A redirect to another host stays as it is.
    """
    parts = urlsplit(location)
    ours = parts.netloc in ("", at.host, f"{address.host}:{address.port}")
    if not ours or parts.scheme not in ("", "http", "https") or not parts.path.startswith("/"):
        return location
    prefix = prefix_of(task)
    path = parts.path
    if not (address.keeps_prefix and (path + "/").startswith(prefix + "/")):
        path = prefix + path
    relative = posixpath.relpath(path, posixpath.dirname(at.path))
    if path.endswith("/"):
        relative += "/"
    if ":" in relative.partition("/")[0]:
        relative = "./" + relative
    query = f"?{parts.query}" if parts.query else ""
    fragment = f"#{parts.fragment}" if parts.fragment else ""
    return relative + query + fragment


async def forward(
    scope: Scope, receive: Receive, send: Send, *, task: str, rest: str, address: WebAddress
) -> None:
    """Pass one request on and its answer back.

    Raises:
        Unreachable: before anything was answered.
    """
    exchange = _Exchange(scope, receive, send, task, rest, address)
    reader, writer = await connect(address)
    try:
        await exchange.run(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class _Exchange:
    """One request and its answer."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        task: str,
        rest: str,
        address: WebAddress,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._task = task
        self._address = address
        self._rest = rest
        self._conn = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        self._started = False
        self._at = ProxyTarget(
            security.headers_of(scope["headers"]).get("host", ""),
            scope["raw_path"].decode("latin-1"),
        )

    async def run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upward = asyncio.ensure_future(self._up(writer))
        downward = asyncio.ensure_future(self._down(reader))
        try:
            # The upward side goes on watching for the browser's leaving after the body's end.
            await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
            if upward.done() and (failed := upward.exception()) is not None:
                if not isinstance(failed, OSError | h11.ProtocolError):
                    raise failed
                # A program may answer before it has read the whole body: hear it out.
                await asyncio.wait({downward})
            if downward.done():
                downward.result()
        except (OSError, h11.ProtocolError, TimeoutError) as problem:
            if self._started:
                raise security.AnswerBrokeOff(f"{self._task}: {problem}") from problem
            raise PageUnreachable(
                f"{self._task}'s {self._address.name} did not give a whole answer: {problem}"
            ) from problem
        finally:
            for side in (upward, downward):
                side.cancel()
            await asyncio.gather(upward, downward, return_exceptions=True)

    async def _up(self, writer: asyncio.StreamWriter) -> None:
        headers = self._scope["headers"]
        client = self._scope.get("client")
        passed = upward_headers(
            headers, client=client[0] if client else "unknown", secret=self._address.secret
        )
        names = security.headers_of(headers)
        length = names.get("content-length")
        if length is not None:
            passed.append((b"content-length", length.encode("latin-1")))
        elif "transfer-encoding" in names:
            passed.append((b"transfer-encoding", b"chunked"))
        passed.append((b"connection", b"close"))
        target = target_path(
            self._rest, self._scope["query_string"].decode("latin-1"), self._task, self._address
        )
        self._write(
            writer, h11.Request(method=self._scope["method"], target=target, headers=passed)
        )
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                return
            body = message.get("body", b"")
            if body:
                self._write(writer, h11.Data(data=body))
                await writer.drain()
            if not message.get("more_body", False):
                break
        self._write(writer, h11.EndOfMessage())
        await writer.drain()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _write(self, writer: asyncio.StreamWriter, event: h11.Event) -> None:
        data = self._conn.send(event)
        if data:
            writer.write(data)

    async def _down(self, reader: asyncio.StreamReader) -> None:
        async with asyncio.timeout(HEAD_S) as deadline:
            while True:
                event = self._conn.next_event()
                if event is h11.NEED_DATA:
                    self._conn.receive_data(await reader.read(CHUNK))
                elif isinstance(event, h11.Response):
                    deadline.reschedule(None)
                    self._started = True
                    await self._send(
                        {
                            "type": "http.response.start",
                            "status": event.status_code,
                            "headers": downward_headers(
                                event.headers.raw_items(),
                                at=self._at,
                                task=self._task,
                                address=self._address,
                            ),
                        }
                    )
                elif isinstance(event, h11.Data):
                    await self._send(
                        {
                            "type": "http.response.body",
                            "body": bytes(event.data),
                            "more_body": True,
                        }
                    )
                elif isinstance(event, h11.EndOfMessage):
                    await self._send({"type": "http.response.body", "more_body": False})
                    return
                elif isinstance(event, h11.ConnectionClosed):
                    raise ConnectionError("it closed the connection")


def _named_by_connection(pairs: Iterable[tuple[str, str]]) -> frozenset[str]:
    return frozenset(
        part.strip().lower()
        for name, value in pairs
        if name == "connection"
        for part in value.split(",")
        # What names the program's own peer must stay, whatever asks for its removal.
        if part.strip().lower() not in ("host", "content-type", "cookie")
    )


def _fitted_cookie(value: str, task: str, address: WebAddress) -> str | None:
    """A cookie the program sets, kept below its own path; None if it takes a name of ours."""
    first, *attributes = [part.strip() for part in value.split(";")]
    # A cookie without a name is sent back as its value alone, which may look like one of ours.
    if first.lstrip("= \t").startswith(security.COOKIE_PREFIX):
        return None
    kept = [first]
    for attribute in attributes:
        key, _, setting = attribute.partition("=")
        if key.lower() == "domain":
            continue
        if key.lower() == "path" and not address.keeps_prefix:
            attribute = f"Path={prefix_of(task)}{setting if setting.startswith('/') else '/'}"
        kept.append(attribute)
    return "; ".join(kept)


UPGRADE_S = 30.0
"""For the head of a request that asks for an upgrade."""
_KEPT = ("connection", "upgrade")
_BREAKS = frozenset("\r\n\0")


class Handshake(msgspec.Struct, frozen=True):
    """A request for a websocket that was let in, and where it goes."""

    task: str
    rest: str
    """The path for the program, with its query, as of `target_path`."""
    address: WebAddress
    headers: list[tuple[bytes, bytes]]
    """The browser's."""


class WebSockets:
    """All open websockets of a server.

    Args:
        gate: lets requests in.
    """

    withheld: frozenset[str] = frozenset()
    """Headers of a program's answer that its browser does not get."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._open: set[asyncio.Task[None]] = set()

    def protocol(self, *, peer: UnauthenticatedPeer, **_: object) -> asyncio.StreamReaderProtocol:
        """What the HTTP server gives the connection to; it then feeds the request's head again."""
        reader = asyncio.StreamReader(limit=HEAD_MAX)
        return asyncio.StreamReaderProtocol(reader, functools.partial(self._start, peer))

    def close(self) -> None:
        for task in self._open:
            task.cancel()

    def _start(
        self,
        peer: UnauthenticatedPeer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        task = asyncio.ensure_future(self._run(peer, reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _run(
        self,
        peer: UnauthenticatedPeer,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        # A peer that vanishes ends its own connection only.
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            try:
                async with asyncio.timeout(UPGRADE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                await self._connect(peer, head, reader, writer)
            except security.Refusal as refusal:
                writer.write(_answer(refusal.status, refusal.message))
                await writer.drain()
            finally:
                peer.gone()
                writer.close()

    async def _connect(
        self,
        peer: UnauthenticatedPeer,
        head: bytes,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        request, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = request.split(" ", 2)
        pairs = _pairs(lines)
        peername = writer.get_extra_info("peername")
        client = str(peername[0]) if peername else ""
        handshake = await self._handshake(method, target, pairs, client)
        peer.proven()
        task, address = handshake.task, handshake.address
        path, _, query = handshake.rest.partition("?")
        passed = upward_headers(handshake.headers, client=client, keep=_KEPT, secret=address.secret)
        try:
            far_reader, far_writer = await connect(address)
        except PageUnreachable as problem:
            raise security.Refusal(502, str(problem)) from problem
        try:
            up = target_path(path, query, task, address)
            far_writer.write(f"{method} {up} HTTP/1.1\r\n".encode("latin-1"))
            far_writer.writelines(name + b": " + value + b"\r\n" for name, value in passed)
            far_writer.write(b"\r\n")
            host = security.headers_of(pairs).get("host", "")
            at = ProxyTarget(host, target.partition("?")[0])
            writer.write(
                await _switched(
                    far_reader, at=at, task=task, address=address, withheld=self.withheld
                )
            )
            await _both_ways((reader, writer), (far_reader, far_writer))
        finally:
            far_writer.close()

    async def _handshake(
        self, method: str, target: str, headers: list[tuple[bytes, bytes]], client: str
    ) -> Handshake:
        """Let a request in.

        Raises:
            Refusal: it is not let in, or leads nowhere.
        """
        # Those who may only look get none, for what goes through it is not seen and may change
        # something: without the client's address nobody is a reader but who has a pass.
        proof = await self._gate.admit(security.headers_of(headers), method, stream=True)
        if proof is security.Proof.READER:
            raise security.Refusal(403, "who may only look at a job opens no websocket of it")
        path, mark, query = target.partition("?")
        root, _, below = path.lstrip("/").partition("/")
        name, slash, rest = below.partition("/")
        task = unquote(name)
        address = self._gate.source.web_targets().get(task)
        if root != "proxy" or address is None:
            raise security.Refusal(404, f"there is no websocket at {path[:200]!r}")
        return Handshake(task, slash + rest + mark + query, address, headers)


def _pairs(lines: Iterable[str]) -> list[tuple[bytes, bytes]]:
    return [
        (name.strip().encode("latin-1"), value.strip().encode("latin-1"))
        for name, _, value in (line.partition(":") for line in lines if line)
    ]


async def _switched(
    reader: asyncio.StreamReader,
    *,
    at: ProxyTarget,
    task: str,
    address: WebAddress,
    withheld: frozenset[str],
) -> bytes:
    """The head of a program's answer to an upgrade, as the browser may have it.

    Raises:
        Refusal: it does not upgrade. The connection must not go on then: what a browser sends next
            on it would be a request to us, with our cookie, and would reach the program.
    """
    try:
        async with asyncio.timeout(HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError) as problem:
        raise security.Refusal(502, f"{task}'s {address.name} did not answer") from problem
    status, *lines = head.decode("latin-1").split("\r\n")
    code = [*status.split(" "), ""][1]
    if any(set(line) & _BREAKS for line in lines):
        # Browsers take a lone line feed for the end of a header, too.
        raise security.Refusal(502, f"{task}'s {address.name} did not answer in HTTP")
    if code != "101":
        refused = int(code) if code.isdecimal() and 400 <= int(code) < 600 else 502
        raise security.Refusal(refused, f"{task}'s {address.name} opens no websocket there")
    kept = downward_headers(_pairs(lines), at=at, task=task, address=address, keep=_KEPT)
    kept = [pair for pair in kept if pair[0].decode("latin-1") not in withheld]
    answer = [b"HTTP/1.1 101 Switching Protocols", *(b": ".join(pair) for pair in kept)]
    return b"\r\n".join(answer) + b"\r\n\r\n"


async def _both_ways(
    near: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Pass bytes on until either side ends."""
    sides = {
        asyncio.ensure_future(_pass_on(near[0], far[1])),
        asyncio.ensure_future(_pass_on(far[0], near[1])),
    }
    try:
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for side in sides:
            side.cancel()
        await asyncio.gather(*sides, return_exceptions=True)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()


def _answer(status: int, text: str) -> bytes:
    body = text.encode()
    return (
        f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode("latin-1") + body
