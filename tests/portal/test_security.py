"""Pages of a job's tasks in a team's portal: at a host name of the job's own, for whom the portal sends
there, with nothing of theirs for the program."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from howdah.storage.jobdir import JobDirectory, base_folder
from tests.browser.conftest import ARGUMENTS, find_chromium
from tests.cli.howdah import Run, gone, job_file, newest, start, until
from tests.portal.test_team import owner
from tests.unit.web.serving import Answer

pytestmark = pytest.mark.timeout(180)

SERVES = """
import base64, hashlib, http.server, json, os, threading, time
from howdah import task

asked = []

class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.headers.get("Upgrade"):
            key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
            self.send_response_only(101)
            self.send_header("Upgrade", "websocket")
            self.send_header("Connection", "Upgrade")
            proof = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
            self.send_header("Sec-WebSocket-Accept", proof)
            self.send_header("Set-Cookie", "theirs=1")
            self.end_headers()
            self.wfile.write(b"\\x81\\x05hello")
            self.rfile.read(1)
            self.close_connection = True
            return
        told = {"method": self.command, "path": self.path, "headers": dict(self.headers.items())}
        asked.append(self.path)
        told["asked"] = len(asked)
        told["body"] = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        body = json.dumps(told).encode()
        kind = "application/json"
        if self.path == "/":
            kind, body = "text/html", b"<title>Mine</title><p>what is mine</p>"
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "theirs=1; Path=/")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass

is_board = os.environ["HOWDAH_ROLE"] == "tensorboard"
address = os.environ["HOWDAH_HOST"], int(os.environ["HOWDAH_PORT"]) if is_board else 0
server = http.server.ThreadingHTTPServer(address, Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
if not is_board:
    task.announce_web("Mine", server.server_port, viewable=os.environ["HOWDAH_INDEX"] == "0")
while not os.path.exists(os.environ["GOAL"]):
    time.sleep(0.05)
"""
MINE = "/proxy/worker:0/"
BOARD = "/proxy/tensorboard:0/"
NOTEBOOK = "/proxy/worker:1/"
"""Not for people who may only look."""


class Shown(NamedTuple):
    """A portal that shows pages of tasks, and a job that has three."""

    port: int
    pages_port: int
    job: JobDirectory
    run: Run
    goal: Path
    portal_run: Run

    @property
    def host(self) -> str:
        """Of the job's pages."""
        return f"{self.job.job_id}.pages.localhost"

    @property
    def owner(self) -> str:
        return owner(self.job)

    def ask(
        self,
        port: int,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        client: str = "127.0.0.1",
        **headers: str,
    ) -> Answer:
        connection = http.client.HTTPConnection(
            "127.0.0.1", port, timeout=30, source_address=(client, 0)
        )
        with contextlib.closing(connection):
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body=body, headers=given)
            response = connection.getresponse()
            return Answer(response.status, response.msg, response.read())

    def portal(self, user: str, path: str, **headers: str) -> Answer:
        headers.setdefault("Host", "jobs.localhost")
        return self.ask(self.port, path, X_Forwarded_User=user, **headers)

    def link(self, user: str, page: str = MINE) -> str:
        """What the portal sends them on to, within the host of the job's pages."""
        answer = self.portal(user, f"/jobs/{self.job.job_id}{page}")
        assert answer.status == 303, answer
        to = urlsplit(answer.headers["Location"])
        assert (to.scheme, to.netloc) == ("http", self.host)
        return f"{to.path}?{to.query}"

    def let_in(self, user: str, page: str = MINE) -> str:
        """The cookie that they get."""
        answer = self.page(self.link(user, page), "")
        assert answer.status == 200 and f"./{page[1:]}".encode() in answer.body
        set_ = answer.headers["Set-Cookie"]
        assert set_.endswith("; HttpOnly; Path=/; SameSite=strict"), set_
        return answer.cookie

    def page(self, path: str, cookie: str, method: str = "GET", **options: str) -> Answer:
        """As a browser with that cookie asks for a page."""
        options.setdefault("Host", self.host)
        body = b"asked" if method == "POST" else None
        return self.ask(self.pages_port, path, method, body, Cookie=cookie, **options)


@pytest.fixture(scope="module")
def shown(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    files = tmp_path_factory.mktemp("files")
    goal = files / "goal"
    board = files / "board"  # in the place of the Python that has TensorBoard
    board.write_text(f"#!{sys.executable}\n{SERVES}")
    board.chmod(0o700)
    run = start(
        "run",
        str(
            job_file(
                files / "job",
                SERVES,
                name="serves",
                acl={"view": ["vera"]},
                env={"GOAL": str(goal)},
                roles={"worker": {"instances": 2}},
                tensorboard={"python": str(board)},
            )
        ),
    )
    job = newest()
    portal = start(
        "portal", "--store", str(base_folder().parent), "--listen", "127.0.0.1:0", "--json",
        "--trusted-proxy", "127.0.0.1", "--admin", "ada",
        "--pages-url", "http://pages.localhost", "--pages-port", "0",
    )  # fmt: skip
    said = json.loads(portal.until_line('"address"'))
    port = urlsplit(said["address"]).port
    assert port is not None
    shown = Shown(port, said["pages_port"], job, run, goal, portal)
    root = f"/jobs/{job.job_id}"

    def linked() -> bool:
        answer = shown.portal("vera", f"{root}/api/v1/job")
        return answer.status == 200 and len(answer.json()["links"]) == 3

    until(linked, "all pages are linked")
    yield shown
    goal.touch()
    run.end()
    gone(job)
    shutil.rmtree(job.path)
    portal.signal(signal.SIGINT)
    assert portal.end() == 130
    assert "Traceback" not in portal.told, portal.told


@pytest.fixture(scope="module")
def others(shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """The same portal, and another job, with a page of its own."""
    files = tmp_path_factory.mktemp("others")
    goal = files / "goal"
    acl = {"view": ["vera"]}
    file = job_file(files, SERVES, name="others", acl=acl, env={"GOAL": str(goal)})
    run = start("run", str(file))
    run.until_line("serves Mine")
    others = shown._replace(job=newest(), run=run, goal=goal)

    def linked() -> bool:
        answer = shown.portal("vera", f"/jobs/{others.job.job_id}/api/v1/job")
        return answer.status == 200 and len(answer.json()["links"]) == 1

    until(linked, "its page is linked")
    yield others
    goal.touch()
    run.end()
    gone(others.job)
    shutil.rmtree(others.job.path)


def test_a_program_gets_a_readers_request_and_nothing_of_the_reader(shown: Shown) -> None:
    """The page of a task in a team's portal wants the sign-in cookie, name or groups of who looks at it.
    It gets a request without them, and sets no cookie."""
    cookie = shown.let_in("vera")
    answer = shown.page(
        f"{MINE}a%20b/c?d=e",
        f"{cookie}; _oauth2_proxy=session of vera; theirs=1",
        Accept_Language="de",
        X_Forwarded_User="vera",
        X_Forwarded_Groups="research",
        X_Auth_Request_Email="vera@example.com",
        Authorization="Basic dmVyYTp2ZXJh",
    )
    told = answer.json()
    assert (answer.status, told["path"]) == (200, "/a%20b/c?d=e")
    assert "set-cookie" not in answer.headers
    got = {name.lower(): value for name, value in told["headers"].items()}
    assert got["accept-language"] == "de"
    assert "vera" not in str(told) and "research" not in str(told)
    assert set(got) <= {
        "accept-encoding", "accept-language", "host", "connection", "x-forwarded-for"
    }  # fmt: skip


def test_who_may_only_look_gets_no_notebook_and_changes_nothing(shown: Shown) -> None:
    """Somebody who may only look at a job opens its notebook through a team's portal, or asks a page to
    change something. The coordinator refuses both, and each websocket."""
    own = {"Origin": f"http://{shown.host}"}
    for user in ("vera", "ada"):
        cookie = shown.let_in(user, NOTEBOOK)
        assert shown.page(MINE, cookie).status == 200
        assert "only the job's owner" in shown.page(NOTEBOOK, cookie).error
        assert shown.page(MINE, cookie, "POST", **own).status == 403
        # TensorBoard asks for its points with POST.
        assert shown.page(f"{BOARD}data", cookie, "POST", **own).json()["body"] == "asked"
        assert shown.page(f"{BOARD}data", cookie, "PUT", **own).status == 403
        assert websocket(shown, MINE, cookie)[0] == 403
    cookie = shown.let_in(shown.owner, NOTEBOOK)
    told = shown.page(f"{NOTEBOOK}run", cookie, "POST", **own).json()
    assert (told["method"], told["body"]) == ("POST", "asked")
    status, head, frames = websocket(shown, NOTEBOOK, cookie)
    assert (status, frames) == (101, b"\x81\x05hello")
    assert "set-cookie" not in head.lower()


def websocket(
    shown: Shown, page: str, cookie: str, origin: str | None = None
) -> tuple[int, str, bytes]:
    """Status and head of an answer, and the first bytes after it."""
    head = (
        f"GET {page}ws HTTP/1.1\r\nHost: {shown.host}\r\nConnection: Upgrade\r\n"
        f"Upgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Version: 13\r\nCookie: {cookie}\r\nX-Forwarded-User: {shown.owner}\r\n"
        f"Origin: {origin or f'http://{shown.host}'}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", shown.pages_port), timeout=30) as connection:
        connection.sendall(head.encode())
        answer = connection.makefile("rb")
        lines = [answer.readline().decode()]
        while lines[-1].strip():
            lines.append(answer.readline().decode())
        return int(lines[0].split()[1]), "".join(lines), answer.read(7)


def test_an_address_lets_one_in_once_and_to_that_jobs_pages_alone(
    shown: Shown, others: Shown
) -> None:
    """Somebody finds the address that let a reader in to a job's pages, or uses their own cookie
    for another job. An address is good once, and a cookie for one job."""
    link = shown.link("vera")
    assert shown.page(link, "", "HEAD").status == 200  # a program that looks at links beforehand
    assert others.page(link, "").status == 401
    first = shown.page(link, "")
    assert first.status == 200
    again = shown.page(link, "")
    assert (again.status, again.headers["Set-Cookie"]) == (401, None)
    assert b"used up" in again.body
    for cookie in ("", "howdah-page=", "howdah-page=x", first.cookie[:-1], "X-Forwarded-User=ada"):
        assert shown.page(MINE, cookie, X_Forwarded_User=shown.owner).status == 401, cookie
    assert others.page(MINE, first.cookie).status == 401
    assert others.page(MINE, others.let_in("vera")).status == 200
    assert shown.page(MINE, first.cookie, client="127.0.0.2").status == 403
    for path in ("/", "/api/v1/job", "/api/v1/stop", "/proxy/worker:0", "/proxy/worker:7/"):
        answer = shown.page(path, first.cookie)
        assert answer.status == (200 if path == "/proxy/worker:0" else 404), path
    assert shown.portal("sam", f"/jobs/{shown.job.job_id}{MINE}").status == 404


def test_a_page_cannot_ask_the_portal_nor_another_page_in_its_readers_name(
    shown: Shown, others: Shown
) -> None:
    """The page of a task asks the portal, or a page of another job, in the name of who looks at it. Each
    answers for its own names and to its own pages only."""
    cookie = shown.let_in(shown.owner)
    strange = f"http://{others.host}"
    for method, headers in (
        ("POST", {}),
        ("POST", {"Origin": strange}),
        ("GET", {"Origin": strange}),
        ("GET", {"Sec_Fetch_Site": "same-site"}),
        ("GET", {"Sec_Fetch_Site": "cross-site"}),
    ):
        assert shown.page(MINE, cookie, method, **headers).status == 403, (method, headers)
    assert websocket(shown, MINE, cookie, strange)[0] == 403
    stop = f"/jobs/{shown.job.job_id}/api/v1/stop"
    for origin in (f"http://{shown.host}", "http://jobs.localhost:1", "null"):
        answer = shown.ask(
            shown.port,
            stop,
            "POST",
            b"",
            X_Forwarded_User="ada",
            Host="jobs.localhost",
            Origin=origin,
        )
        assert answer.status == 403, origin
    # The portal is not at the pages' names, nor are pages at the portal's.
    for host in (shown.host, "pages.localhost", f"{shown.host}:{shown.port}"):
        assert shown.portal("ada", "/", Host=host).status == 421, host
    for host in ("jobs.localhost", "pages.localhost", "127.0.0.1", f"a.{shown.host}"):
        assert shown.page(MINE, cookie, Host=host, X_Forwarded_User="ada").status == 421, host
        assert shown.page(shown.link("ada"), "", Host=host).status == 421, host


@pytest.fixture(scope="module")
def chromium(shown: Shown) -> Iterator[Browser]:
    """A browser that finds the portal and the pages at their names."""
    rules = (
        f"MAP jobs.localhost 127.0.0.1:{shown.port}, "
        f"MAP *.pages.localhost 127.0.0.1:{shown.pages_port}"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(),
            args=[*ARGUMENTS, f"--host-resolver-rules={rules}"],
            timeout=120_000,
        )
        yield browser
        browser.close()


def opened(context: BrowserContext, shown: Shown) -> Page:
    """The page of the first task, by its link on the job's page."""
    page = context.new_page()
    page.goto(f"http://jobs.localhost/jobs/{shown.job.job_id}/")
    with context.expect_page() as found:
        page.locator(f"#links a[href='{MINE[1:]}']").click()
    found.value.wait_for_url(f"http://{shown.host}{MINE}")
    return found.value


FETCH = """async ([address, method, options]) => {
  try { const got = await fetch(address, {method, ...options}); return got.status || got.type }
  catch (error) { return "refused" }
}"""
LISTEN = """() => new Promise((done) => {
  const socket = new WebSocket("ws://" + location.host + location.pathname + "ws");
  socket.onmessage = (message) => { done(message.data); socket.close() };
  socket.onerror = () => done("refused");
})"""


@pytest.mark.nightly
def test_a_browser_opens_a_page_that_reaches_nothing_else(
    shown: Shown, others: Shown, chromium: Browser
) -> None:
    """The same in Chromium: scripts of a page reach its own program, and neither the portal nor pages of
    other jobs."""
    stop = f"http://jobs.localhost/jobs/{shown.job.job_id}/api/v1/stop"
    strange = f"http://{others.host}{MINE}told"
    for user, may in ((shown.owner, True), ("vera", False)):
        context = chromium.new_context(extra_http_headers={"X-Forwarded-User": user})
        assert (
            opened(context, others).title() == "Mine"
        )  # so the browser has a cookie for it as well
        page = opened(context, shown)
        assert page.title() == "Mine"
        cookie = others.let_in(user)
        asked = others.page(f"{MINE}told", cookie).json()["asked"]
        assert page.evaluate("document.cookie") == ""
        assert page.evaluate(FETCH, ["told", "GET", {}]) == 200
        assert page.evaluate(FETCH, ["told", "POST", {"body": "x"}]) == (200 if may else 403)
        assert page.evaluate(LISTEN) == ("hello" if may else "refused")
        sent = {"mode": "no-cors", "credentials": "include"}
        for address, method in ((stop, "POST"), (strange, "GET"), (stop[:-4] + "job", "GET")):
            assert page.evaluate(FETCH, [address, method, {}]) == "refused", address
            page.evaluate(FETCH, [address, method, sent])
        assert others.page(f"{MINE}told", cookie).json()["asked"] == asked + 1, (
            "it got nothing else"
        )
        context.close()
    assert not shown.job.final()
    assert shown.portal("vera", f"/jobs/{shown.job.job_id}/api/v1/job").json()["phase"] == "running"


def test_nobody_stays_let_in_when_the_job_has_ended(shown: Shown) -> None:
    """Somebody keeps the cookie of a job's pages until the job has ended. It is good for TensorBoard of its summaries then,
    if they may still see the job, and for nothing else.

    Ends the job: what needs it running comes before.
    """
    cookie, link = shown.let_in("vera"), shown.link("vera")
    shown.goal.touch()
    assert shown.run.end() == 0
    assert "has ended" in shown.page(MINE, cookie).error
    late = shown.page(link, "").cookie
    for page in (MINE, BOARD):
        assert shown.page(page, late).status == 404

    def refused() -> bool:
        answer = shown.portal("vera", f"/jobs/{shown.job.job_id}{MINE}")
        return answer.status == 404 and "tensorboard --logdir" in answer.error

    until(refused, "the portal leads there no more")


@pytest.mark.nightly
def test_tensorboard_of_an_ended_job_runs_as_its_owner_for_those_who_see_the_job(
    shown: Shown,
) -> None:
    """Somebody has a team's portal read summaries that lead to what they could not read. TensorBoard
    reads them as the job's owner, answers those who see the job, and ends with the portal.

    Needs the job to have ended.
    """
    from tensorboard.summary import Writer

    shown.goal.touch()
    gone(shown.job)
    folder = shown.job.path / "tensorboard" / "worker-0"
    folder.mkdir(parents=True)
    with contextlib.closing(Writer(os.fspath(folder))) as writer:
        writer.add_scalar("loss", 0.5, 1)
    cookie = until(lambda: board_cookie(shown, "vera"), "the portal leads to the summaries")
    (link,) = shown.portal("vera", f"/jobs/{shown.job.job_id}/api/v1/job").json()["links"]
    assert link == {"name": "TensorBoard", "href": BOARD[1:]}
    own = {"Origin": f"http://{shown.host}"}
    until(
        lambda: shown.page(f"{BOARD}data/runs", cookie).json() == ["worker-0"], "it has read them"
    )
    (process,) = psutil.Process(shown.portal_run.process.pid).children()
    assert process.uids().real == shown.job.path.stat().st_uid
    asked = shown.page(f"{BOARD}data/plugin/timeseries/timeSeries", cookie, "POST", **own)
    assert asked.status not in (403, 404)
    assert shown.page(BOARD, cookie, "PUT", **own).status == 404
    assert shown.page(BOARD, cookie, "POST").status == 403
    assert shown.page(MINE, cookie).status == 404
    assert board_cookie(shown, "sam") == ""
    port = next(each.laddr.port for each in process.net_connections() if each.status == "LISTEN")
    assert shown.ask(port, f"{BOARD}data/runs").status == 403
    shown.portal_run.signal(signal.SIGINT)
    shown.portal_run.end()
    psutil.wait_procs([process], 20)
    assert not process.is_running()


def board_cookie(shown: Shown, user: str) -> str:
    """Empty where the portal leads to none."""
    answer = shown.portal(user, f"/jobs/{shown.job.job_id}{BOARD}")
    return shown.let_in(user, BOARD) if answer.status == 303 else ""
