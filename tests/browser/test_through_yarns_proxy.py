"""The page of a job on a real cluster, opened as people do: the tracking URL, in a browser.

The cluster's web proxy is on an address of its own (127.0.0.2), as on real sites.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from howdah.storage.jobdir import JobDirectory, base_folder
from tests.browser.conftest import shoot, troubles, watched
from tests.cli.howdah import howdah, start
from tests.hadoop.plugin import MakeCluster
from tests.hadoop.site import PROXY_HOST
from tests.portal.conftest import Portal
from tests.portal.test_security import Shown as TaskPages
from tests.portal.test_team import Team
from tests.yarn.runner import Yarn, YarnJob, until

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(420)]

PROGRAM = """
import http.server, os, pathlib, threading, time
from tensorboardX import SummaryWriter
from howdah import task
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"a page of my own at " + self.path.encode())
    def log_message(self, *words):
        pass
port = int(os.environ["HOWDAH_PORT"])
server = http.server.HTTPServer(("", port), Page)
threading.Thread(target=server.serve_forever, daemon=True).start()
task.announce_web("Mine", port)
writer = SummaryWriter(os.environ["HOWDAH_TENSORBOARD_DIR"])
for step in range(1, 9):
    writer.add_scalar("loss", 1 / step, step)
    task.report(step=step, loss=1 / step)
writer.flush()
pathlib.Path("kept").mkdir(exist_ok=True)
pathlib.Path("kept/weights.txt").write_text("eight steps")
print("eight steps are done", flush=True)
go = pathlib.Path(os.environ["GO"])
while not go.exists():
    time.sleep(0.02)
print(f"a new line {go.read_text()}", flush=True)
time.sleep(600)
"""

JOB = """
name = "looked-at"
command = "python program.py"

[environment]
python = "{python}"

[env]
GO = "{go}"

[acl]
view = ["ann"]

[roles.worker]
memory = "1g"
ports = 1

[outputs]
folders = ["kept"]

[tensorboard]
"""


class Shown:
    """A running job, its addresses, and the file that makes its program say something."""

    def __init__(self, job: YarnJob, go: Path) -> None:
        self.job = job
        self.go = go
        job.running(180)
        job.until_logged("worker:0", "eight steps are done")
        self.tracking: str = until(self._tracking, "the ResourceManager tells of the page")
        self.own: str = until(lambda: job.view().page, "the page is up")

    def _tracking(self) -> str | None:
        told: str = self.job.application()["trackingUrl"]
        return told if f"//{PROXY_HOST}:" in told else None

    def get(
        self, path: str, *, user: str | None, source: str, method: str = "GET"
    ) -> tuple[int, str]:
        """Ask the coordinator itself, from that address, with a proxy's cookie for that user."""
        own = urlsplit(self.own)
        assert own.hostname is not None
        connection = http.client.HTTPConnection(
            own.hostname, own.port, timeout=20, source_address=(source, 0)
        )
        try:
            headers = {} if user is None else {"Cookie": f"proxy-user={user}"}
            connection.request(method, f"/{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        finally:
            connection.close()


@pytest.fixture(scope="module")
def shown(
    hadoop_module_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shown]:
    folder = tmp_path_factory.mktemp("page")
    cluster = hadoop_module_cluster(web_proxy=True)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.env().items():
            patch.setenv(name, value)
        patch.setenv("HOWDAH_HOME", str(folder / "home"))
        yarn = Yarn(cluster, folder)
        text = JOB.format(python=sys.executable, go=folder / "go")
        job = yarn.submit(text, files={"program.py": PROGRAM})
        try:
            yield Shown(job, folder / "go")
        finally:
            yarn.close()


@contextlib.contextmanager
def portal(base: Path, folder: Path) -> Iterator[Portal]:
    """A portal over the jobs in that folder."""
    running = Portal(base, folder)
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def through(context: BrowserContext) -> Iterator[Page]:
    """A page on which nothing goes wrong and which asks none but the proxy."""
    fresh = watched(context.new_page(), PROXY_HOST)
    yield fresh
    assert troubles(fresh) == []


def test_the_tracking_url_opens_the_page_which_follows_the_job(shown: Shown, through: Page) -> None:
    through.goto(shown.tracking)
    expect(through.locator("h1")).to_have_text("looked-at")
    expect(through.locator("#feed")).to_have_text("Polling", timeout=20_000)
    expect(through.locator("#phase")).to_have_text("Running")
    expect(through.locator("#log-lines")).to_contain_text("eight steps are done")
    expect(through.locator(".chart canvas").first).to_be_visible()
    assert through.evaluate("[...document.styleSheets].every(sheet => sheet.cssRules.length > 0)")
    assert through.evaluate("location.pathname").startswith("/proxy/application_")

    said = f"at {time.time()}"
    shown.go.with_suffix(".tmp").write_text(said)
    shown.go.with_suffix(".tmp").rename(shown.go)
    expect(through.locator("#log-lines")).to_contain_text(f"a new line {said}")
    shoot(through, "through-yarns-proxy")
    through.goto("about:blank")


def test_nobody_can_act_through_the_proxy(shown: Shown, through: Page) -> None:
    through.goto(shown.tracking)
    expect(through.locator("#phase")).to_have_text("Running")
    expect(through.locator(".reads-only")).to_have_text("Read-only")
    expect(through.locator("#stop")).to_be_hidden()
    expect(through.locator("#log-stacks")).to_be_hidden()
    tries = (
        "Promise.all(['POST', 'PUT', 'DELETE'].map(method => fetch('api/v1/stop', {method,"
        " headers: {'Content-Type': 'application/json'}, body: '{}'}).then(r => r.status)))"
    )
    assert all(status in (403, 405) for status in through.evaluate(tries))
    assert all("40" in each for each in troubles(through)), "the refusals"
    assert shown.job.view().phase == "running"
    through.goto("about:blank")


def test_it_shows_a_page_of_a_programs_own_and_to_programs_here_nothing(shown: Shown) -> None:
    status, text = fetched(shown.tracking)
    assert status == 200
    assert 'href="/' not in text
    assert 'src="/' not in text
    status, text = fetched(f"{shown.tracking}api/v1/job")
    assert (status, json.loads(text)["job_id"]) == (200, shown.job.job_id)
    of_task = f"{shown.tracking}proxy/worker:0/some/where"
    until(lambda: fetched(of_task)[0] == 200, "its agent has seen that the task serves the page")
    assert fetched(of_task) == (200, "a page of my own at /some/where")
    assert fetched(f"{shown.own}api/v1/job")[0] == 401, "programs on this host are no proxy"


def fetched(url: str) -> tuple[int, str]:
    """Status and text, as a program without a cookie gets them."""
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_tensorboard_loads_behind_it(shown: Shown, through: Page, context: BrowserContext) -> None:
    through.goto(shown.tracking)
    link = through.locator("#links a", has_text="TensorBoard")
    with context.expect_page() as opened:
        link.click(timeout=60_000)
    board = opened.value
    board.set_default_timeout(60_000)
    board.wait_for_load_state()
    assert urlsplit(board.url).hostname == PROXY_HOST
    expect(board).to_have_title("TensorBoard")
    card = board.locator("scalar-card", has_text="loss")
    deadline = time.monotonic() + 120.0
    while time.monotonic() < deadline:
        # What the worker wrote comes over HDFS; the page itself does not look again.
        with contextlib.suppress(AssertionError):
            expect(card).to_be_visible(timeout=10_000)
            break
        board.reload()
    # Its points it asks for with POST, which YARN's proxy lets not pass: docs/guides/yarn.md.
    expect(card.locator("line-chart")).to_be_visible(timeout=30_000)
    shoot(board, "tensorboard-through-yarns-proxy")
    board.close()
    through.goto("about:blank")


def test_strangers_get_nothing_from_the_coordinators_own_address(shown: Shown) -> None:
    for source in ("127.0.0.1", "127.0.0.3"):
        for user in (None, "ann", shown.job.view().user):
            for path in ("", "api/v1/job", "api/v1/tasks/worker:0/log", "proxy/tensorboard:0/"):
                status, text = shown.get(path, user=user, source=source)
                assert status == 401, (source, user, path, text)
                assert shown.job.job_id not in text
    assert shown.get("api/v1/job", user=None, source=PROXY_HOST)[0] == 401


def test_the_proxy_shows_it_to_those_the_job_names_and_no_others(shown: Shown) -> None:
    owner = shown.job.view().user
    for user in (owner, "ann"):
        status, text = shown.get("api/v1/job", user=user, source=PROXY_HOST)
        assert status == 200, text
        assert json.loads(text)["job_id"] == shown.job.job_id
    status, text = shown.get("api/v1/job", user="eve", source=PROXY_HOST)
    assert status == 403
    assert "[acl] view" in text
    for path in ("", "api/v1/tasks/worker:0/log", "proxy/tensorboard:0/"):
        assert shown.get(path, user="eve", source=PROXY_HOST)[0] == 403
    for method in ("PUT", "POST"):
        assert shown.get("api/v1/stop", user=owner, source=PROXY_HOST, method=method)[0] == 403


# Where these tests run as root, their jobs on the cluster are root's, for whom a portal that is root runs nothing.
AS_ITSELF = """
import os
from howdah.portal import as_owner
as_owner.ids_of = lambda name: (os.geteuid(), os.getegid())
"""


@contextlib.contextmanager
def team_portal(
    directory: JobDirectory, folder: Path, *options: str
) -> Iterator[tuple[Team, TaskPages]]:
    """`howdah portal` over the store on HDFS that the job is in, and the pages of the job's tasks.

    It runs programs as itself, as one that is not root; ``folder`` is for what tells it that.
    """
    url = directory.meta().url
    assert url is not None
    (folder / "sitecustomize.py").write_text(AS_ITSELF)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder))
        run = start(
            "portal", "--store", url.rsplit("/", 2)[0], "--listen", "127.0.0.1:0", "--json",
            "--trusted-proxy", "127.0.0.1", "--admin", "ada",
            "--pages-url", "http://pages.localhost", "--pages-port", "0", *options,
        )  # fmt: skip
    try:
        said = json.loads(run.until_line('"address"'))
        port = urlsplit(said["address"]).port
        assert port is not None
        pages = TaskPages(port, said["pages_port"], directory, run, Path(), run)
        yield Team(run, port, "", directory, directory), pages
    finally:
        run.signal(signal.SIGINT)
        assert run.end() == 130
    assert "Traceback" not in run.told, run.told


def test_a_portal_for_a_team_shows_a_running_job_from_hdfs_to_whom_it_lets(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = JobDirectory(shown.job.handle.directory)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path))
    owner, root = directory.meta().user, f"/jobs/{directory.job_id}"
    with team_portal(directory, tmp_path) as (team, pages):
        until(lambda: directory.job_id in team.ids("ann"), "it is listed")
        (row,) = team.ask("ann", f"/api/v1/jobs?text={directory.job_id}").json()["jobs"]
        assert (row["backend"], row["user"]) == ("yarn", owner)
        assert team.ids("ada") >= team.ids("ann") == {directory.job_id}
        assert team.ids("bob") == set()
        until(
            lambda: team.ask("ann", f"{root}/api/v1/job").json()["phase"] == "running",
            "it is shown as running",
        )
        for door in ("/", "/api/v1/job", "/api/v1/records", "/api/v1/config", "/api/v1/changes"):
            assert team.ask("ann", root + door).status == 200, door
            assert team.ask(owner, root + door).status == 200, door
            assert team.ask("bob", root + door).status == 404, door
        assert team.ask("ann", f"{root}/api/v1/config").json()["env"] == {"GO": "(not shown)"}
        # It is live: only its coordinator knows the links, and tells lines as they come.
        until(
            lambda: len(team.ask("ann", f"{root}/api/v1/job").json()["links"]) == 2,
            "its coordinator answers, and both pages are linked",
        )
        lines = team.follow("ann", f"{root}/api/v1/stream?log=worker:0")
        assert any("eight steps are done" in line for line in lines)
        cookie = pages.let_in("ann", "/proxy/tensorboard:0/")
        runs = "/proxy/tensorboard:0/data/runs"
        until(lambda: pages.page(runs, cookie).json() == ["worker-0"], "TensorBoard has read them")
        mine = pages.page("/proxy/worker:0/x", cookie)
        assert mine.body == b"a page of my own at /x"
        assert team.ask("ann", f"{root}/api/v1/stop", method="POST").status == 403
        assert team.ask("bob", f"{root}/api/v1/stop", method="POST").status == 404


def test_the_portal_has_its_page_while_it_runs_and_afterwards_from_hdfs(
    shown: Shown, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stops the job: what needs it running comes before."""
    with portal(shown.job.handle.directory.parent, tmp_path / "here") as running:
        page.goto(running.login_link())
        row = page.locator("#jobs tbody tr").filter(has_text="looked-at")
        expect(row.locator(".state")).to_have_text("running")
        expect(row).to_contain_text("yarn")
        row.get_by_role("link", name="looked-at", exact=True).click()
        expect(page.locator("#phase")).to_have_text("Running")
        expect(page.locator("#feed")).to_have_text("Live")
        expect(page.locator("#log-lines")).to_contain_text("eight steps are done")
        expect(page.locator(".chart").filter(has_text="Memory")).to_be_visible()
        shoot(page, "yarn-job-in-the-portal")
        # The command line knows the same.
        assert urlsplit(howdah("page", shown.job.job_id).text).port == urlsplit(shown.own).port
        until(
            lambda: (
                howdah("metrics", shown.job.job_id, "worker:0", "--csv").text.count("worker:0") > 3
            ),
            "four measurements come to HDFS",
        )
        page.get_by_role("button", name="Stop", exact=True).click()
        page.locator("#stop-reason").fill("seen enough")
        page.get_by_role("button", name="Stop the job").click()
        expect(page.locator("#phase")).to_have_text("Stopped", timeout=60_000)
        expect(page.locator("#reason")).to_contain_text("seen enough")
        page.goto("about:blank")  # it asks a portal that ends for nothing more
    assert shown.job.wait().outcome == "stopped"

    # Another machine has nothing of it.
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "other"))
    assert shown.job.job_id in howdah("list", "--backend", "yarn").text
    with portal(base_folder(), tmp_path / "there") as afterwards:
        page.goto(afterwards.login_link())
        page.get_by_role("link", name="looked-at", exact=True).click()
        expect(page.locator("#phase")).to_have_text("Stopped")
        expect(page.locator("#feed")).to_have_text("Ended")
        expect(page.locator("#log-lines")).to_contain_text("eight steps are done")
        expect(page.locator("#event-list")).to_contain_text("worker:0 started")
        expect(page.locator(".chart").filter(has_text="Memory")).to_be_visible()
        shoot(page, "yarn-job-from-hdfs")
        told = howdah("metrics", "looked-at", "worker:0", "--csv").text
        assert told.count("worker:0") > 3
        assert "worker-0/kept/weights.txt" in howdah("outputs", "looked-at").text
        fetched = howdah("outputs", "looked-at", "weights.txt", "--to", str(tmp_path)).text
        assert Path(fetched).read_text() == "eight steps"
        howdah("advice", "looked-at")
        page.goto("about:blank")


def test_a_portal_for_a_team_shows_an_ended_job_from_hdfs_with_its_log(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.job.handle.stop("seen enough")  # unless the test before has run here, too
    assert shown.job.wait().outcome == "stopped"
    directory = JobDirectory(shown.job.handle.directory)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path))
    root = f"/jobs/{directory.job_id}"
    with team_portal(directory, tmp_path) as (team, pages):
        until(lambda: team.ids("ann", "?state=stopped") == {directory.job_id}, "it is listed")
        log = team.ask("ann", f"{root}/api/v1/logs/worker:0/raw")
        assert log.body.startswith(b"eight steps are done\n"), log
        series = team.ask("ann", f"{root}/api/v1/series?task=worker:0").json()["series"]
        assert "value:loss" in {each["name"] for each in series}
        assert team.ask("bob", f"{root}/api/v1/logs/worker:0/raw").status == 404
        assert team.ids("bob") == set()
        (link,) = team.ask("ann", f"{root}/api/v1/job").json()["links"]
        assert link == {"name": "TensorBoard", "href": "proxy/tensorboard:0/"}
        cookie = pages.let_in("ann", "/proxy/tensorboard:0/")
        runs = "/proxy/tensorboard:0/data/runs"
        until(
            lambda: pages.page(runs, cookie).json() == ["worker-0"], "it has read what was copied"
        )


def test_a_portal_removes_an_ended_job_from_hdfs_as_its_owner(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removes the job: what needs it comes before."""
    shown.job.handle.stop("seen enough")
    assert shown.job.wait().outcome == "stopped"
    shown.job.until_application("FINISHED")
    directory = JobDirectory(shown.job.handle.directory)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path))
    with team_portal(directory, tmp_path, "--prune-older-than", "0s") as (team, _):
        until(
            lambda: "last: 1 removed, 0 not" in team.ask("ada", "/").body.decode(),
            "it is removed, and told",
        )
        page = team.ask("ada", "/").body.decode()
        assert f"<code>{directory.job_id}</code> removed" in page
        until(lambda: team.ids("ada") == set(), "it leaves the list")
    assert f"removed {directory.job_id} of {directory.meta().user}, " in team.run.told
