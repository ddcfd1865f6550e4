"""A running job's page and a failed one's in a real browser: what everybody needs of them."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from howdah.wire.status import FailureView
from tests.browser import story
from tests.browser.conftest import open_job, shoot, troubles
from tests.unit.web.fake_job import FakeJob
from tests.unit.web.serving import Served

pytestmark = pytest.mark.timeout(180)


def row(page: Page, task: str):
    return page.locator(f'#task-rows tr[data-task="{task}"]')


def test_the_page_shows_the_job(page: Page, served: Served) -> None:
    served.do(story.running)
    open_job(page, served)
    expect(page.locator("h1")).to_have_text("digits")
    expect(page.locator("#phase")).to_have_text("Running")
    expect(page.locator("#feed")).to_have_text("Live")
    expect(page.locator("#facts")).to_contain_text("4 of 4 running")
    expect(row(page, "worker:1")).to_contain_text("node-2")
    expect(row(page, "worker:1")).to_contain_text("642 MiB")
    expect(page.locator("#timeline-legend")).to_contain_text("Running")
    expect(page.locator("#event-list li")).to_have_count(7)
    expect(page.locator("#config-text")).to_contain_text("python train.py")
    expect(page.locator(".chart")).to_have_count(3)
    expect(page.locator(".chart canvas").first).to_be_visible()
    expect(page).to_have_title("digits · Running")
    shoot(page, "running-light")


def test_a_kill_is_seen_in_the_table_the_events_and_as_a_failure(
    page: Page, served: Served
) -> None:
    served.do(story.running)
    open_job(page, served)
    expect(row(page, "worker:1").locator(".state")).to_have_text("running")
    expect(page.locator("#log-lines")).to_contain_text("step 119 of chief:0")
    served.do(lambda job: job.print("chief:0", "loss 0.0123 after the whole epoch\n"))
    expect(page.locator("#log-lines div").last).to_have_text("loss 0.0123 after the whole epoch")
    served.do(lambda job: story.kill(job, "worker:1"))
    expect(row(page, "worker:1").locator(".state")).to_have_text("ended by SIGKILL")
    expect(row(page, "worker:1").locator(".state")).to_have_attribute("data-tone", "bad")
    expect(row(page, "worker:0").locator(".state")).to_have_text("running")
    expect(page.locator("#phase")).to_have_text("Restarting")
    expect(page.locator("#event-list li").first).to_contain_text("restart 1 of 3")
    expect(page.locator("#failures")).to_contain_text("worker:1's user process was killed")
    expect(page.locator("#failures")).to_contain_text(story.ADVICE)
    expect(page.locator("#failures pre")).to_contain_text("step 119")
    shoot(page, "failure-light")


def test_a_job_that_failed_says_first_what_failed_first(page: Page, served: Served) -> None:
    def fail(job: FakeJob) -> None:
        story.running(job)
        job.print("worker:2", "ValueError: row 1798\n")
        job.task("worker:2", state="ended", exit_code=42)
        for what, task in (("worker:2 exited with code 42", "worker:2"), ("echo", "worker:0")):
            job.fail(
                FailureView(
                    task=task,
                    attempt=1,
                    generation=1,
                    cause="user-code",
                    what=what,
                    advice="See `howdah logs`.",
                    exit_code=42,
                    tail=("ValueError: row 1798",),
                )
            )
        job.change(
            phase="finished",
            outcome="failed",
            finished=time.time(),
            exit_code=1,
            reason="worker:2 exited with code 42",
        )

    served.do(fail)
    open_job(page, served)
    expect(page.locator("#phase")).to_have_text("Failed")
    expect(page.locator("#failures-title")).to_have_text("worker:2 exited with code 42")
    expect(page.locator("#failures summary")).to_have_text("1 other failure")
    expect(page.locator("#failures .advice code").first).to_have_text("howdah logs")
    expect(page.locator("#log-task")).to_have_value("worker:2")
    expect(page.locator("#log-lines div").last).to_have_text("ValueError: row 1798")
    expect(page.locator("#stop")).to_be_hidden()
    expect(page).to_have_title(re.compile("^✗"))


def test_stopping_asks_first_and_tells_the_reason(page: Page, served: Served) -> None:
    served.do(story.running)
    open_job(page, served)
    page.locator("#stop").click()
    page.get_by_role("button", name="Let it run").click()
    assert served.job.stops == []
    page.locator("#stop").click()
    page.locator("#stop-reason").fill("wrong learning rate")
    page.locator("#stop-confirm").click()
    expect(page.locator("#stop-dialog")).to_be_hidden()
    assert served.job.stops == [("the job page", "wrong learning rate", False)]


def test_what_programs_say_is_text_and_never_markup(page: Page, served: Served) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>1</script>"

    def say(job: FakeJob) -> None:
        story.running(job)
        job.print("chief:0", evil + "\n")
        job.task("chief:0", last_line=evil, host=evil)
        job.say("note", evil)
        job.change(name=evil, reason=evil, checkpoint=evil)
        job.measure("chief:0", values={evil: 1.0})

    served.do(say)
    open_job(page, served)
    expect(page.locator("#log-lines div").last).to_have_text(evil)
    expect(page.locator("#event-list li").first).to_contain_text(evil)
    expect(row(page, "chief:0").locator(".host")).to_have_text(evil)
    expect(page.locator("h1")).to_have_text(evil)
    expect(page.locator(".chart", has_text="<img")).to_have_count(1)
    assert page.locator("main img").count() == 0
    assert page.title() != "owned"


def test_without_a_link_the_page_is_private(page: Page, served: Served) -> None:
    page.goto(served.url)
    expect(page.locator("h1")).to_have_text("This page is private")
    assert served.job.head.job_id not in page.content()
    assert len(troubles(page)) == 1  # the browser tells of the status 401
