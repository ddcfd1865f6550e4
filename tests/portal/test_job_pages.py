"""The list, and a job's page at one address: while it runs, when it has ended, and when nobody runs it any more."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page, expect

from howdah.storage.jobdir import JobDirectory
from tests.browser.conftest import shoot, troubles
from tests.cli.howdah import gone, howdah, job_file, newest, until
from tests.portal.conftest import MARKUP, Holding, Past, Portal
from tests.portal.test_list import row
from tests.unit.web.serving import Answer

pytestmark = pytest.mark.timeout(180)

STARTS_MS = 60_000
"""A form that starts a job is answered once it is submitted."""
COLOURED = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const rgb = data.subarray(i, i + 3);
    if (data[i + 3] && Math.max(...rgb) - Math.min(...rgb) > 60) count += 1;
  }
  return count;
}"""
"""How many points of a drawing are coloured: axes and grid are grey."""


def test_running_and_past_jobs_are_in_one_list_and_broken_folders_break_nothing(
    page: Page, portal: Portal, holding: Holding, past: Past
) -> None:
    page.goto(portal.login_link())
    expect(page).to_have_title("Jobs · Howdah")
    expect(page.locator("#jobs tbody tr")).to_have_count(6)
    expect(row(page, "holds").locator(".state")).to_have_text("running")
    expect(row(page, "digits").locator(".state")).to_have_text("succeeded")
    failed = row(page, "letters")
    expect(failed.locator(".state")).to_have_text("failed")
    expect(failed.locator(".why")).to_contain_text("worker:0 exited with code 1")
    expect(failed).to_contain_text(past.failed.job_id)
    expect(row(page, "half-").locator(".state")).to_have_text("unreadable")
    expect(row(page, "half-").locator(".why")).to_contain_text("has no meta.json")
    expect(row(page, "torn-").locator(".why")).to_contain_text("can't be read")
    expect(page.locator(".states")).to_contain_text("Unreadable 2")
    # Newest first.
    expect(page.locator("#jobs tbody tr").first).to_contain_text("holds")
    # What a job says of itself is text, not markup.
    expect(row(page, "onerror").locator(".name a").first).to_have_text(MARKUP)
    shoot(page, "jobs-light")
    holding.let_go()
    expect(row(page, "holds").locator(".state")).to_have_text("succeeded")


def test_a_past_job_has_the_page_it_had(page: Page, portal: Portal, past: Past) -> None:
    page.goto(portal.login_link())
    page.get_by_role("link", name="letters").click()
    expect(page).to_have_url(f"{portal.url}/jobs/{past.failed.job_id}/")
    expect(page.locator("#phase")).to_have_text("Failed")
    expect(page.locator("#feed")).to_have_text("Ended")
    expect(page.locator("#failures-title")).to_have_text("worker:0 exited with code 1")
    expect(page.locator("#log-lines")).to_contain_text("ValueError: row 1798 of shard 3")
    expect(page.locator("#event-list")).to_contain_text("worker:0 started")
    expect(page.locator("#timeline-legend")).to_contain_text("Running")
    expect(page.locator("#config-text")).to_contain_text('"letters"')
    loss = page.locator(".chart").filter(has_text="loss").locator("canvas")
    until(lambda: loss.evaluate(COLOURED) > 0, "what it reported is drawn, be it one value")
    expect(page.locator("#stop")).to_be_hidden()
    page.get_by_role("searchbox", name="Find in this log").fill("step 2")
    expect(page.locator("#log-lines mark").first).to_have_text("step 2")
    shoot(page, "past-job-light")
    page.locator(".bar").get_by_role("link", name="All jobs").click()
    expect(page).to_have_title("Jobs · Howdah")


@pytest.mark.nightly
def test_one_address_before_and_after_a_jobs_end(
    page: Page, portal: Portal, holding: Holding
) -> None:
    page.goto(portal.login_link())
    page.get_by_role("link", name="holds", exact=True).click()
    expect(page.locator("#phase")).to_have_text("Running")
    expect(page.locator("#feed")).to_have_text("Live")
    expect(page.locator("#log-lines")).to_contain_text("holding on")
    expect(page.locator("#facts")).to_contain_text("1 of 4")
    expect(page.get_by_role("progressbar")).to_have_attribute("value", "0.25")
    shoot(page, "steps")
    address = page.url
    holding.let_go()
    expect(page.locator("#phase")).to_have_text("Succeeded")
    expect(page.locator("#feed")).to_have_text("Ended")
    expect(page.locator("#log-lines")).to_contain_text("let go")
    page.reload()
    assert page.url == address
    expect(page.locator("#phase")).to_have_text("Succeeded")
    expect(page.locator("#log-lines")).to_contain_text("let go")


@pytest.mark.nightly
def test_advice_stands_on_the_page_in_the_words_of_the_command(
    page: Page, portal: Portal, holding: Holding
) -> None:
    job_id = holding.directory.job_id

    def told() -> list[Any]:  # a slow machine may give others, too
        found = howdah("advice", job_id, "--json").documents()[0]
        return [each for each in found if each["rule"] == "memory-over-asked"]

    until(told, "measurements")
    page.goto(portal.login_link())
    page.get_by_role("link", name="holds", exact=True).click()
    advice = page.locator("#findings li").filter(has_text="worker:0 used at most")
    expect(advice).to_have_count(1)
    expect(advice).to_contain_text('roles.worker.memory = "64m"')
    shoot(page, "advice")
    holding.let_go()
    expect(page.locator("#phase")).to_have_text("Succeeded")
    page.reload()
    (found,) = told()
    expect(advice).to_contain_text(found["text"])
    expect(advice).to_contain_text(found["change"])
    everything = howdah("advice", job_id, "--json").documents()[0]
    assert portal.get(f"/jobs/{job_id}/api/v1/advice").json() == everything


@pytest.mark.nightly
def test_a_running_job_is_stopped_from_the_list(
    page: Page, portal: Portal, holding: Holding
) -> None:
    page.goto(portal.login_link())
    running = page.locator("#jobs tbody tr").filter(has_text="holds")
    running.get_by_text("Stop", exact=True).click()
    running.get_by_role("button", name="Stop holds").click()
    expect(running.locator(".state")).to_have_text("stopped")
    assert holding.run.end() == 130
    assert holding.directory.final().reason.endswith(": in the list of jobs")
    path = f"/jobs/{holding.directory.job_id}/stop"
    # Nobody else's page may do it.
    cookie = portal.log_in()
    assert (
        portal.ask("POST", path, headers={**cookie, "Origin": "http://evil.example"}).status == 403
    )
    assert portal.ask("POST", path, headers=cookie).status == 403


def test_who_runs_a_job_again_is_told_what_its_command_notes(
    portal: Portal, past: Past, tmp_path: Path
) -> None:
    howdah("run", str(job_file(tmp_path, "", name="noted", env={"JOB_NAME": "mine"})))
    before = newest()
    made: list[JobDirectory] = []

    def again(door: str, body: bytes) -> Answer:
        headers = {**portal.log_in(), "Origin": portal.url}
        headers["Content-Type"] = (
            "application/json" if "api" in door else "application/x-www-form-urlencoded"
        )
        answer = portal.ask("POST", f"/jobs/{before.job_id}/{door}", headers=headers, body=body)
        assert answer.status < 300, answer
        made.append(newest())
        return answer

    def listed() -> bool:
        found = portal.get("/api/v1/jobs?limit=100").json()["jobs"]
        return before.job_id in {job["job_id"] for job in found}

    until(listed, "the job in the list")
    lost = "env.JOB_NAME: Howdah sets it for the programs of worker, which do not get this value"
    try:
        assert again("api/v1/rerun", b"{}").json()["notes"] == [lost]
        assert lost in again("rerun", b"key=a").body.decode()
    finally:
        for directory in (before, *made):
            gone(directory)
            shutil.rmtree(directory.path)


@pytest.mark.nightly
def test_an_ended_job_is_run_again_by_programs_from_its_page_and_from_the_list(
    page: Page, portal: Portal, past: Past
) -> None:
    def again(job_id: str, before: str) -> JobDirectory:
        directory = JobDirectory(past.base / job_id)
        assert gone(directory).outcome == "succeeded"
        assert directory.meta().rerun_of == before
        return directory

    before = past.good.job_id
    path = f"/jobs/{before}/api/v1/rerun"
    for wanted, status, words in (
        ({"resume": True}, 400, "has no [checkpoint] folder"),
        ({"backend": "nix"}, 400, "There is no backend 'nix'"),
        ({"colour": "red"}, 400, "unknown field `colour`"),
    ):
        answer = portal.post(path, wanted)
        assert (answer.status, words in answer.error) == (status, True), answer
    unreadable = portal.post("/jobs/torn-20261121-143503-k3f9/api/v1/rerun")
    assert (unreadable.status, "cannot be read" in unreadable.error) == (404, True)
    cookie = portal.log_in()
    for strange in ({}, {"Origin": "http://evil.example"}):
        for door in (path, f"/jobs/{before}/rerun"):
            assert portal.ask("POST", door, headers={**cookie, **strange}).status == 403
    answer = portal.post(path)
    assert answer.status == 201, answer
    made = [again(answer.json()["job_id"], before)]
    # A form that is sent twice starts one job.
    form = {**cookie, "Origin": portal.url, "Content-Type": "application/x-www-form-urlencoded"}

    def press(key: str) -> str:
        sent = portal.ask("POST", f"/jobs/{before}/rerun", headers=form, body=key.encode())
        assert sent.status == 303, sent
        return sent.headers["Location"].split("/")[-2]

    with ThreadPoolExecutor() as pool:
        first, second, other = pool.map(press, ("key=a", "key=a", "key=b"))
    made += [again(first, before), again(other, before)]
    assert (first == second, first == press("key=a"), first == other) == (True, True, False)
    try:
        portal.sign_in(page)
        page.goto(f"{portal.url}/jobs/{made[-1].job_id}/")
        button = page.get_by_role("button", name="Run again")
        page.evaluate("addEventListener('submit', event => event.preventDefault(), { once: true })")
        button.click()
        expect(button).to_be_disabled()
        page.reload()
        button.click(timeout=STARTS_MS)
        page.wait_for_url(
            lambda url: "/jobs/digits-" in url and made[-1].job_id not in url, timeout=STARTS_MS
        )
        made.append(again(page.url.split("/")[-2], made[-1].job_id))
        page.goto(f"{portal.url}/?text={before}")
        row = page.locator("#jobs tbody tr")
        row.get_by_text("Run again", exact=True).click()
        row.get_by_role("button", name="Run digits again").click(timeout=STARTS_MS)
        page.wait_for_url("**/jobs/digits-*/", timeout=STARTS_MS)
        made.append(again(page.url.split("/")[-2], before))
        page.goto(f"{portal.url}/?state=unreadable")
        expect(page.locator("#jobs tbody tr")).to_have_count(2)
        expect(page.get_by_text("Run again", exact=True)).to_have_count(0)
        # A job that ends just then does not answer its page.
        assert all("502" in each for each in troubles(page))
    finally:
        for each in made:
            shutil.rmtree(each.path)


def test_programs_ask_about_a_past_job_as_about_a_running_one(portal: Portal, past: Past) -> None:
    root = f"/jobs/{past.failed.job_id}"
    job = portal.get(f"{root}/api/v1/job").json()
    final = msgspec.json.decode(msgspec.json.encode(past.failed.final()))
    assert job == final | {"page": None, "links": []}
    found = portal.get(f"{root}/api/v1/logs/worker:0?grep=valueerror").json()
    assert found["matches"][0]["line"] == "ValueError: row 1798 of shard 3"
    assert portal.get(f"{root}/api/v1/logs/worker:0/raw").body.startswith(b"step 0\n")
    series = portal.get(f"{root}/api/v1/series?task=worker:0").json()["series"]
    assert "value:loss" in {each["name"] for each in series}
    assert portal.get(f"{root}/api/v1/config").json()["env"] == {"HF_TOKEN": "hf_secret_of_ada_123"}
    assert b"howdah_job" in portal.get(f"{root}/metrics").body
    for path, status in (
        ("/api/v1/logs/worker:7", 404),
        ("/api/v1/logs/worker:0?attempt=9", 404),
        ("/proxy/tensorboard:0/", 404),
        ("/nothing", 404),
        ("/api/v1/advice", 200),
    ):
        assert portal.get(root + path).status == status, path
    stopped = portal.post(f"{root}/api/v1/stop")
    assert (stopped.status, "over already" in stopped.error) == (409, True)
    for broken in ("half-20261121-143502-k3f9", "torn-20261121-143503-k3f9"):
        for path in ("/", "/api/v1/job", "/api/v1/advice", "/proxy/x:0/"):
            assert portal.get(f"/jobs/{broken}{path}").status == 404
