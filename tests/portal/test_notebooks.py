"""Notebooks from a portal of one's own: started, opened, listed and stopped."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from howdah.portal.access_control import Team
from howdah.portal.documents import StartedJob
from howdah.portal.jobs import Jobs
from howdah.portal.starting import commands
from howdah.storage.jobdir import JobDirectory, base_folder
from tests.cli.howdah import gone, until
from tests.cli.inside import howdah
from tests.portal.conftest import Portal

pytestmark = pytest.mark.timeout(180)
PATH = "/api/v1/notebooks"


@pytest.fixture
def empty(home: Path, tmp_path: Path) -> Iterator[Portal]:
    """A portal over the usual folder, in which nothing is yet."""
    base_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    running = Portal(base_folder(), tmp_path / "index")
    running.start()
    yield running
    running.stop()


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """A browser without JavaScript: JupyterLab's own stays where it is."""
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


@pytest.mark.nightly
def test_a_notebook_is_started_opened_listed_and_stopped(
    plain: Page, empty: Portal, tmp_path: Path
) -> None:
    page = plain
    empty.sign_in(page)
    page.get_by_role("navigation").get_by_role("link", name="Notebooks").click()
    expect(page.locator("#running")).to_contain_text("No notebook waits or runs")
    page.get_by_label("Name").fill("sketch")
    page.get_by_label("Folder to work in").fill(str(tmp_path))
    page.get_by_label("Memory").fill("8x")
    page.get_by_label("End when idle for").fill("2h")
    page.get_by_role("button", name="Start a notebook").click()
    expect(page.get_by_role("alert")).to_contain_text(
        '"8x" is not an amount of memory; did you mean'
    )
    expect(page.get_by_label("Name")).to_have_value("sketch")
    page.get_by_label("Memory").fill("1g")
    page.get_by_role("button", name="Start a notebook").click()
    page.wait_for_url("**/jobs/sketch-*/")
    job_id = page.url.rstrip("/").rpartition("/")[2]
    directory = JobDirectory(base_folder() / job_id)
    (role,) = directory.job().roles.values()
    assert role.memory == "1g" and "--idle=7200" in role.command
    assert directory.job().source == str(tmp_path)
    job = f"/jobs/{job_id}/api/v1/job"
    until(lambda: empty.get(job).json().get("links"), "its page is announced")
    page.goto(f"{empty.url}/notebooks")
    row = page.locator("#running tbody tr")
    expect(row.locator(".state")).to_have_text("running")
    row.get_by_role("link", name="Open sketch").click()
    page.wait_for_url(f"http://{job_id}.localhost:*/proxy/notebook:0/lab*")
    expect(page).to_have_title("JupyterLab")
    page.goto(f"{empty.url}/notebooks")
    row.get_by_text("Stop", exact=True).click()
    row.get_by_role("button", name="Stop sketch").click()
    assert gone(directory).outcome == "stopped"
    stopped = "?tag=notebook&state=stopped"
    until(lambda: empty.get(f"/api/v1/jobs{stopped}").json()["jobs"], "it is listed as stopped")
    page.goto(f"{empty.url}/{stopped}")
    expect(page.locator("#jobs tbody tr")).to_contain_text(job_id)


def test_a_form_is_the_same_only_with_the_same_fields(
    empty: Portal, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []

    async def start(jobs: Jobs, command: str, arguments: list[str]) -> StartedJob:
        started.append(arguments)
        return StartedJob(job_id=f"sketch-{len(started)}", directory=str(jobs.base / "sketch"))

    monkeypatch.setattr(commands, "start", start)
    headers = {**empty.log_in(), "Origin": empty.url}
    headers["Content-Type"] = "application/x-www-form-urlencoded"

    def press(form: str) -> str:
        return empty.ask("POST", "/notebooks", headers=headers, body=form.encode()).headers[
            "Location"
        ]

    pages = [
        press(form) for form in ("key=a&cores=1", "key=a&cores=1", "key=a&cores=2", "key=b&cores=2")
    ]
    assert pages == [f"jobs/sketch-{n}/" for n in (1, 1, 2, 3)]
    assert started == [["--cores=1"], ["--cores=2"], ["--cores=2"]]


@pytest.mark.nightly
def test_its_button_is_enabled_for_whoever_comes_back(page: Page, empty: Portal) -> None:
    empty.sign_in(page)
    page.goto(f"{empty.url}/notebooks")
    button = page.get_by_role("button", name="Start a notebook")
    # Firefox keeps a button disabled from one load of the page to the next.
    expect(button).to_have_attribute("autocomplete", "off")
    button.evaluate("button => { button.disabled = true; dispatchEvent(new Event('pageshow')) }")
    expect(button).to_be_enabled()


@pytest.mark.nightly
def test_what_cannot_be_started_is_said_as_the_command_says_it(
    empty: Portal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wanted, status, words in (
        ({"cores": 0}, 400, "Invalid value for '--cores': 0 is not in the range"),
        ({"idle_timeout": "soon"}, 400, "'soon' is not a time; write it as 90m or 2h"),
        ({"source": f"{tmp_path}/nothing"}, 400, f"there is no folder {tmp_path}/nothing"),
        ({"backend": "nix"}, 400, "There is no backend 'nix'"),
        ({"gpus": 999}, 409, "999 per container are asked for"),
        ({"name": "a\0b"}, 400, "howdah notebook cannot be run"),
        ({"colour": "red"}, 400, "unknown field `colour`"),
        ({"cores": "many"}, 400, "Expected `int | null`"),
    ):
        answer = empty.post(PATH, wanted)
        assert (answer.status, words in answer.error) == (status, True), answer
    assert empty.ask("POST", PATH, body=b"cores=1").status == 415
    assert empty.ask("POST", "/notebooks", body=b"{}").status == 415
    cookie = empty.log_in()
    for path in (PATH, "/notebooks"):
        for origin in ({}, {"Origin": "http://evil.example"}):
            assert empty.ask("POST", path, headers={**cookie, **origin}).status == 403


def test_a_team_starts_no_notebooks_and_is_told_how(home: Path, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir(mode=0o700)
    reads = Team(user_header="X-Forwarded-User", proxies=(ip_network("127.0.0.1"),))
    portal = Portal(tmp_path / "jobs", tmp_path / "index", reads)
    portal.start()
    ada = {"X-Forwarded-User": "ada"}
    try:
        page = portal.get("/notebooks", ada)
        assert page.status == 200 and b"<form" not in page.body
        assert b"A portal for a team starts no notebooks" in page.body
        for path in (PATH, "/notebooks"):
            refused = portal.ask("POST", path, headers=ada | {"Origin": portal.url})
            assert refused.status == 403 and b"Start one with" in refused.body
        assert PATH not in portal.get("/api/v1/openapi.json", ada).json()["paths"]
    finally:
        portal.stop()


def test_a_command_that_ends_at_once_opens_no_port(home: Path) -> None:
    told = howdah("notebook", "--detach", "--port", "40113", code=2).told
    assert "howdah tunnel ID notebook:0 --port 40113" in told
