"""A stranger who can reach the job's HTTP port gets nowhere."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.routing import Route

from howdah.coordinator.web import security
from howdah.core.messages import Task
from howdah.wire import tickets
from howdah.wire.messages import WebAddress
from tests.unit.web.fake_job import TOKEN, FakeJob
from tests.unit.web.serving import BEARER, Answer, Served, serving
from tests.unit.web.upstream import program


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(hosts=["node1.cluster"]) as running:
        yield running


def every_path(served: Served) -> list[tuple[str, str]]:
    """A request for each route of the app."""
    found = []
    for route in served.app.routes:
        assert isinstance(route, Route)
        path = route.path.replace("{name:path}", "app.js").replace("{rest:path}", "x")
        path = path.replace("{task}", "worker:0").replace("{version}", "v")
        found += [(method, path) for method in sorted(route.methods or {"GET", "POST", "PUT"})]
    assert len(found) > 20
    return [each for each in found if each[1] != "/login"]


def says_nothing(answer: Answer, served: Served) -> bool:
    whole = answer.body + str(answer.headers).encode()
    view = served.job.view()
    return not any(
        secret.encode() in whole for secret in (TOKEN, view.job_id, view.name, view.user)
    )


def test_every_route_wants_the_token(served: Served) -> None:
    """A stranger tries every route of the page without the token. Every route refuses."""
    served.job.print("worker:0", "line\n", attempt=1)
    for method, path in [*every_path(served), ("GET", "/nothing"), ("TRACE", "/"), ("GET", "//")]:
        for headers in (
            {},
            {"Accept": "text/html"},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {TOKEN}"},
            {"Cookie": f"howdah-{served.job.head.job_id}={TOKEN}"},
            {"Cookie": f"howdah-{served.job.head.job_id}={tickets.mint_session('other', 1.0)}"},
            {"X-Forwarded-For": "127.0.0.1", "X-Forwarded-User": "ada"},
        ):
            answer = served.ask(method, path, headers=headers)
            assert answer.status == 401, (method, path, headers)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
            assert says_nothing(answer, served)
    assert served.get(f"/?token={TOKEN}", headers={}).status == 401
    assert served.get(f"/api/v1/job?access_token={TOKEN}", headers={}).status == 401
    assert served.job.stops == []


def test_a_strange_host_name_is_refused_whatever_the_proof(served: Served) -> None:
    """A request names another host. It is refused, whatever proof it brings. The job's own host
    names are let in."""
    strange = (
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "a@localhost",
        "",
        "::1",
    )
    for host in strange:
        for path in ("/", "/api/v1/job", served.login_link().removeprefix(served.url)):
            answer = served.get(path, headers={**BEARER, "Host": host})
            assert answer.status in (400, 421), (host, path)
            assert "Set-Cookie" not in answer.headers
            assert says_nothing(answer, served)
    for host in ("localhost:1", "127.0.0.1", "[::1]:80", "node1.cluster:8080"):
        assert served.get("/api/v1/job", headers={**BEARER, "Host": host}).status == 200, host


def test_a_link_opens_one_session_and_no_more(served: Served) -> None:
    """Someone uses a one-time link a second time. It opens no session."""
    path = served.login_link().removeprefix(served.url)
    assert served.ask("HEAD", path, headers={}).headers["Set-Cookie"] is None
    first = served.get(path, headers={})
    assert first.status == 200
    attributes = {part.strip().lower() for part in first.headers["Set-Cookie"].split(";")[1:]}
    # No Path: the browser keeps it for the folder of the page, under any prefix.
    assert attributes == {"httponly", "samesite=strict"}
    assert TOKEN not in first.headers["Set-Cookie"]
    assert served.get("/", headers={"Cookie": first.cookie}).status == 200
    again = served.get(path, headers={})
    assert again.status == 401
    assert "Set-Cookie" not in again.headers
    assert says_nothing(again, served)


def test_a_wrong_ticket_opens_nothing(served: Served) -> None:
    """Someone makes up a ticket, or finds a link that is too old. It opens nothing."""
    old = tickets.mint_ticket(TOKEN, time.time() - tickets.TICKET_LIFE_S - 2)
    for ticket in ("", "x", TOKEN, "1.2.3.4", "%00", "a" * 10_000, "é".encode().hex(), old):
        answer = served.get(f"/login?ticket={ticket}", {})
        assert answer.status == 401, ticket
        assert "Set-Cookie" not in answer.headers


def test_a_link_leads_only_to_pages_of_the_job(served: Served) -> None:
    """A one-time link names a page elsewhere to go on to. It leads to the job's pages only."""
    base, token = served.url, served.job.token
    own = "proxy/tensorboard:0/"
    for to in (
        "",
        own,
        "https://evil.example/",
        "//evil.example/",
        "/proxy/a:0/",
        "proxy/a:0/../../",
        "proxy/../a:0/",
        "proxy/a:0/%22%3E%3Cscript%3E",
        "javascript:alert(1)",
    ):
        link = tickets.login_link(base, token, time.time(), to).removeprefix(base)
        leads = f"./{own}" if to == own else "./"
        for _ in range(2):
            answer = served.get(link, served.log_in())
            assert f'content="0;url={leads}"'.encode() in answer.body, to


def test_two_jobs_on_one_host_do_not_clash() -> None:
    """Two jobs have the same host name. A session of one opens nothing of the other."""
    one, two = FakeJob(), FakeJob()
    two.change(job_id="another-20261121-143503-x1y2")
    two.token = "another-token"
    with serving(one) as first, serving(two) as second:
        cookies = [first.log_in()["Cookie"], second.log_in()["Cookie"]]
        both = {"Cookie": "; ".join(cookies)}
        assert first.get("/api/v1/job", both).json()["job_id"] == one.head.job_id
        assert second.get("/api/v1/job", both).json()["job_id"] == two.head.job_id
        assert first.get("/api/v1/job", {"Cookie": cookies[1]}).status == 401
        renamed = cookies[1].replace(two.head.job_id, one.head.job_id)
        assert first.get("/api/v1/job", {"Cookie": renamed}).status == 401
        # Cookies know hosts, not ports: the other job's program must not be shown ours either.
        with program() as port:
            address = WebAddress(
                task=Task("worker", 0), attempt=1, name="x", host="127.0.0.1", port=port
            )
            first.do(lambda job: job.targets.update({"worker:0": address}))
            told = first.get("/proxy/worker:0/", both).json()
            assert "cookie" not in told["headers"]


OWN: list[dict[str, str]] = [
    {"Origin": "{url}"},
    {"Origin": "{url}", "Sec-Fetch-Site": "same-origin"},
]
FOREIGN: list[dict[str, str]] = [
    {},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://evil.example"},
    {"Origin": "{url}.evil.example"},
    {"Origin": "{url}", "Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Referer": "{url}/"},
]


def test_only_the_jobs_own_page_may_change_something_or_open_a_stream(served: Served) -> None:
    """Another site sends a request that changes something, with the browser's cookie, posts a form
    to a program behind the proxy, or opens a stream of events. Only the job's own page may do
    that."""
    session = served.log_in()

    def from_there(headers: dict[str, str]) -> dict[str, str]:
        given = {name: value.replace("{url}", served.url) for name, value in headers.items()}
        return {**session, **given}

    with program() as port:
        address = WebAddress(
            task=Task("worker", 0), attempt=1, name="x", host="127.0.0.1", port=port
        )
        served.do(lambda job: job.targets.update({"worker:0": address}))
        for headers in [*FOREIGN, *OWN]:
            sent, foreign = from_there(headers), headers in FOREIGN
            answers = [
                served.post("/api/v1/stop", {}, sent),
                served.post("/api/v1/stacks/worker:0", None, sent),
                served.ask("POST", "/proxy/worker:0/x", headers=sent),
            ]
            for answer in answers:
                assert answer.status in ((403,) if foreign else (200, 202)), (headers, answer.body)
    assert len(served.job.stops) == len(OWN)
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert served.get("/api/v1/stream", {**session, **headers}).status == 403
    with served.stream("/api/v1/stream", {**session, "Sec-Fetch-Site": "same-origin"}) as events:
        events.until("hello")


def test_no_other_site_is_allowed_to_read(served: Served) -> None:
    """A script of another site asks whether it may read answers. No answer allows it."""
    for method in ("OPTIONS", "GET"):
        headers = {
            **BEARER,
            "Origin": "http://evil.example",
            "Access-Control-Request-Method": "GET",
        }
        answer = served.ask(method, "/api/v1/job", headers=headers)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_every_answer_of_ours_has_the_security_headers(served: Served) -> None:
    """Every answer of the page carries the security headers."""
    session = served.log_in()
    paths = ["/", "/api/v1/job", "/metrics", "/nothing", "/login?ticket=x", "/proxy/worker:0/"]
    answers = [served.get(path, session) for path in paths]
    answers += [served.get(path, {"Accept": "text/html"}) for path in paths]
    answers.append(served.post("/api/v1/stop", {}, session))
    for answer in answers:
        for name in security.PAGE_HEADERS:
            assert answer.headers.get_all(name) is not None, name
            assert len(answer.headers.get_all(name)) == 1, name
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Server"] is None


def test_the_token_and_tickets_are_in_no_log_and_no_answer(
    served: Served, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Someone reads logs and answers for the token or a ticket. Neither is there."""
    caplog.set_level(logging.DEBUG)
    link = served.login_link()
    ticket = link.partition("ticket=")[2]
    bodies = [served.get(link.removeprefix(served.url), {}).body for _ in range(2)]
    session = served.log_in()
    served.job.plan = lambda: 1 / 0  # type: ignore[assignment, method-assign, return-value]
    for path in (
        "/",
        "/api/v1/job",
        "/api/v1/config",
        "/api/v1/plan",
        "/api/v1/changes",
        "/metrics",
    ):
        bodies += [served.get(path).body, served.get(path, session).body]
    with socket.create_connection(("127.0.0.1", served.port)) as stranger:
        stranger.sendall(f"BROKEN {TOKEN}\r\n\r\n".encode())
        stranger.recv(1000)
    captured = capfd.readouterr()
    told = "\n".join([caplog.text, captured.out, captured.err, *map(repr, bodies)])
    assert "division by zero" in told
    assert TOKEN not in told
    assert ticket not in told
    assert session["Cookie"].partition("=")[2] not in told


# -- size and form -----------------------------------------------------------------------------------


def test_a_body_over_the_limit_is_refused_unread(served: Served) -> None:
    """A request announces a body over the limit. It is refused unread."""
    headers = {**BEARER, "Content-Type": "application/json", "Content-Length": str(10**12)}
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sender:
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        sender.sendall(f"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
        assert sender.recv(4096).startswith(b"HTTP/1.1 413")


def test_a_body_that_grows_over_the_limit_is_refused(served: Served) -> None:
    """The body of a request grows over the limit. It is refused."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sender:
        sender.sendall(
            b"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            b"Content-Type: application/json\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
        )
        with contextlib.suppress(ConnectionError):  # it may have answered and hung up by now
            for _ in range(security.MAX_BODY // 4096 + 2):
                sender.sendall(b"1000\r\n" + b" " * 4096 + b"\r\n")
        assert sender.recv(4096).startswith(b"HTTP/1.1 413")
    assert served.job.stops == []


def test_a_strangers_body_is_not_waited_for(served: Served) -> None:
    """A stranger announces a body and does not send it. The answer does not wait for it."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sender:
        sender.sendall(
            b"POST /api/v1/stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"
        )
        answer = b""
        while part := sender.recv(4096):
            answer += part
        assert answer.startswith(b"HTTP/1.1 401")


def test_an_endless_head_is_cut_off(served: Served) -> None:
    """The head of a request never ends. The connection is cut off."""
    for line in (b"X-A: " + b"a" * 200_000, b"X-A: a\r\n" * 20_000):
        with socket.create_connection(("127.0.0.1", served.port), timeout=20) as sender:
            try:
                sender.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + line)
                assert re.match(rb"HTTP/1.1 4\d\d", sender.recv(4096))
            except ConnectionError:
                pass
    assert served.get("/api/v1/job").status == 200


MALFORMED = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    b"Authorization: Bearer {token}\r\n\r\n0\r\n\r\nGET /api/v1/job HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n Authorization: Bearer {token}\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nA\x00b: 1\r\n\r\n",
    b"GET http://[ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


def whole_answer(served: Served, data: bytes) -> bytes:
    """All that comes back."""
    answer = b""
    with (
        socket.create_connection(("127.0.0.1", served.port), timeout=20) as sender,
        contextlib.suppress(ConnectionError),
    ):
        sender.sendall(data)
        sender.shutdown(socket.SHUT_WR)
        while part := sender.recv(4096):
            answer += part
    return answer


def test_malformed_requests_cost_only_their_sender(served: Served) -> None:
    """Someone sends malformed requests. They cost only their sender."""
    for request in MALFORMED:
        answer = whole_answer(served, request.replace(b"{token}", TOKEN.encode()))
        # One answer at most: nothing is smuggled in behind the first request.
        assert len(re.findall(rb"HTTP/1\.1 \d\d\d", answer)) <= 1, request
        assert b"job_id" not in answer
        assert served.get("/api/v1/job").status == 200


@pytest.fixture(scope="module")
def lasting() -> Iterator[Served]:
    with serving() as running:
        yield running


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=400))
def test_arbitrary_bytes_get_nothing_but_an_error(lasting: Served, data: bytes) -> None:
    """Someone sends arbitrary bytes. They get an error and nothing else."""
    answer = whole_answer(lasting, data + b"\r\n\r\n")
    assert not answer or re.match(rb"HTTP/1\.1 4\d\d ", answer)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.text(min_size=0, max_size=60), query=st.text(max_size=40))
def test_arbitrary_addresses_are_answered_in_words(lasting: Served, path: str, query: str) -> None:
    """Someone asks for arbitrary addresses. Each gets an answer in words."""
    target = f"/{_quoted(path)}?{_quoted(query)}"
    assert lasting.get(target, {}).status == 401
    answer = lasting.get(target)
    assert answer.status in (200, 400, 404, 405)


def _quoted(text: str) -> str:
    return "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "replace"))
