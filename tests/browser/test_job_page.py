"""The job page in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from howdah.core.messages import Task
from howdah.wire import tickets
from howdah.wire.messages import WebAddress
from tests.browser import story
from tests.browser.conftest import open_job, shoot, troubles, watched
from tests.browser.prefix_proxy import prefix_proxy
from tests.browser.test_walk import row
from tests.unit.web.fake_job import FakeJob
from tests.unit.web.serving import Served, serving
from tests.unit.web.upstream import Program, program

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]


def test_silence_is_no_warning_and_an_ended_job_has_no_running_times(
    page: Page, served: Served
) -> None:
    """Most ranks print nothing; what is too long says the job's own hang time-out, by an event."""
    served.do(story.running)
    served.do(lambda job: job.task("worker:0", progress_s=90.0))
    open_job(page, served)
    progress = row(page, "worker:0").locator(".progress")
    expect(progress).to_contain_text(re.compile("[1-9]m "))
    ordinary = row(page, "worker:1").locator(".progress")
    colour = "node => getComputedStyle(node).color"
    assert progress.evaluate(colour) == ordinary.evaluate(colour)
    head = page.get_by_role("columnheader", name="For")
    expect(head).to_be_visible()
    served.do(lambda job: job.change(phase="finished", outcome="succeeded", finished=time.time()))
    expect(head).to_be_hidden()
    expect(row(page, "worker:0").locator(".age")).to_be_hidden()


def test_plots_go_over_time_or_steps_and_are_smoothed(page: Page, served: Served) -> None:
    served.do(story.running)
    open_job(page, served)
    loss = page.get_by_role("figure", name="loss:")
    tip = loss.locator(".tip")
    loss.locator(".u-over").hover()
    expect(tip.locator("small")).to_contain_text(":")
    page.get_by_label("Plotted over").select_option("Over steps")
    page.get_by_label("Log scale").check()
    expect(page.locator(".chart")).to_have_count(3)
    loss.locator(".u-over").hover()
    expect(tip.locator("small")).to_contain_text("step ")
    expect(tip.locator("div")).to_have_count(4)
    before = loss.get_attribute("aria-label")
    assert before
    page.get_by_label("Smoothing").select_option("Smoothed more")
    expect(loss).not_to_have_attribute("aria-label", before)
    shoot(page, "plots-over-steps")


def test_after_a_restart_the_log_goes_on_with_the_next_attempt(page: Page, served: Served) -> None:
    served.do(story.running)
    open_job(page, served)
    page.locator("#task-rows").get_by_text("worker:1", exact=True).click()
    expect(page.locator("#log-lines")).to_contain_text("step 119 of worker:1")
    served.do(lambda job: job.task("worker:1", attempt=2))
    served.do(lambda job: job.print("worker:1", "restored checkpoint 3\n", attempt=2))
    expect(page.locator("#log-lines")).to_contain_text("— Attempt 2 —")
    expect(page.locator("#log-lines div").last).to_have_text("restored checkpoint 3")
    page.locator("#log-attempt").select_option("1")
    expect(page.locator("#log-lines")).not_to_contain_text("restored")
    expect(page.locator("#log-lines div").last).to_have_text("step 119 of worker:1")


def test_what_could_not_be_saved_is_said_although_the_job_succeeded(
    page: Page, served: Served
) -> None:
    line = "worker:0: checkpoints: /mnt/full/000001 can't be written: No space left on device"

    def end(job: FakeJob) -> None:
        story.running(job)
        job.change(
            phase="finished",
            outcome="succeeded",
            finished=time.time(),
            exit_code=5,
            unsaved=(line,),
        )

    served.do(story.running)
    open_job(page, served)
    expect(page.locator("#unsaved")).to_be_hidden()
    served.do(end)
    expect(page.locator("#unsaved-title")).to_have_text("Not saved")
    expect(page.locator("#unsaved pre")).to_have_text(line)
    expect(page.locator("#facts")).to_contain_text("5")


def test_a_tasks_own_page_opens_through_the_job_page(
    page: Page, context: BrowserContext, served: Served
) -> None:
    def board(request: Program) -> None:
        html = (
            "<!doctype html><title>Board</title><h1>Stand-in board</h1><p id=out></p>"
            "<script>fetch('data/runs').then(r => r.json())"
            ".then(d => document.getElementById('out').textContent = d.path)</script>"
        )
        request.answer(200, html.encode(), {"Content-Type": "text/html"})

    with program(**{"proxy/tensorboard:0/": board}) as port:
        address = WebAddress(
            task=Task("tensorboard", 0),
            attempt=1,
            name="TensorBoard",
            host="127.0.0.1",
            port=port,
            keeps_prefix=True,
        )
        served.do(story.running)
        served.do(lambda job: job.link("tensorboard:0", address))
        open_job(page, served)
        with context.expect_page() as opened:
            page.get_by_role("link", name="TensorBoard").click()
        other = opened.value
        expect(other.locator("h1")).to_have_text("Stand-in board")
        expect(other.locator("#out")).to_have_text("/proxy/tensorboard:0/data/runs")
        assert other.url == f"{served.url}/proxy/tensorboard:0/"


def test_the_stacks_of_a_task(page: Page, served: Served) -> None:
    served.do(story.running)
    open_job(page, served)
    page.locator("#log-stacks").click()
    expect(page.locator("#stacks-text")).to_contain_text("train.py:31")


def test_a_long_log_begins_at_its_end_and_can_be_read_back_and_searched(
    page: Page, served: Served
) -> None:
    served.do(story.running)
    served.job.logs["chief:0", 1] = bytearray()
    served.do(
        lambda job: job.print("chief:0", "".join(f"line {i:05} äöü\n" for i in range(20_000)))
    )
    open_job(page, served)
    lines = page.locator("#log-lines div")
    expect(lines.last).to_have_text("line 19999 äöü")
    assert lines.count() < 6000
    first = lines.first.text_content()
    assert re.fullmatch(r"line \d{5} äöü", first or "")
    page.locator("#log-view").evaluate("view => view.scrollTo(0, 0)")
    page.locator("#log-earlier-button").click()
    expect(lines.first).not_to_have_text(first or "")
    shown = [int(text[5:10]) for text in lines.all_text_contents()]
    assert shown == list(range(shown[0], 20_000)), "a line is missing or twice"
    page.locator("#log-find").fill("LINE 00077")
    expect(page.locator("#log-lines mark")).to_have_text("line 00077")
    expect(page.locator("#log-lines")).to_contain_text("1 line holds")


def test_progress_bars_and_colours_of_terminals_become_plain_lines(
    page: Page, served: Served
) -> None:
    served.do(story.running)
    open_job(page, served)
    last = page.locator("#log-lines div").last
    served.do(lambda job: job.print("chief:0", "\x1b[31mred\x1b[0m \x1b]0;title\x07text\n"))
    expect(last).to_have_text("red text")
    for percent in range(0, 101, 20):
        served.do(lambda job, percent=percent: job.print("chief:0", f"\r{percent:3} % done"))
    expect(last).to_have_text("100 % done")
    count = page.locator("#log-lines div").count()
    served.do(lambda job: job.print("chief:0", "\r\n"))
    served.do(lambda job: job.print("chief:0", "next\n"))
    expect(last).to_have_text("next")
    assert page.locator("#log-lines div").count() == count + 1


def test_a_thousand_tasks_are_quick_to_see_and_to_follow(page: Page) -> None:
    with serving(FakeJob({"chief": 1, "worker": 999})) as served:
        served.do(lambda job: story.running(job, seconds=20))
        open_job(page, served)
        expect(page.locator("#facts")).to_contain_text(re.compile("1.000 of 1.000 running"))
        assert page.locator("#task-rows tr").count() <= 100
        assert page.locator("#task-map i").count() == 1000
        page.evaluate(
            "() => { window.changed = 0; new MutationObserver(all => window.changed += all.length)"
            ".observe(document.getElementById('task-rows'),"
            " {childList: true}); }"
        )
        served.do(lambda job: job.task("worker:7", step=4711.0))
        expect(row(page, "worker:7")).to_contain_text("4\u202f711")
        # The clock columns tick in all rows; the rows themselves stay.
        assert page.evaluate("window.changed") < 20
        page.locator("#task-filter").fill("worker:777")
        expect(page.locator("#task-rows tr")).to_have_count(1)
        page.locator("#task-filter").fill("")
        served.do(lambda job: story.kill(job, "worker:500"))
        expect(page.locator('#task-map i[data-task="worker:500"]')).to_have_attribute(
            "data-tone", "bad"
        )
        page.get_by_role("button", name="ended 1").click()
        expect(page.locator("#task-rows tr")).to_have_count(1)
        expect(row(page, "worker:500")).to_be_visible()
        shoot(page, "thousand")


def test_sorting_by_a_column(page: Page, served: Served) -> None:
    served.do(story.running)
    served.do(lambda job: job.task("worker:1", rss_mb=9000.0))
    open_job(page, served)
    page.get_by_role("button", name="Memory").click()
    expect(page.locator("#task-rows tr").first).to_contain_text("worker:1")
    page.get_by_role("button", name="Memory").click()
    expect(page.locator("#task-rows tr").last).to_contain_text("worker:1")


# -- where it is looked at ------------------------------------------------------------------------------


def test_colours_follow_the_system_until_the_reader_chooses(
    browser: Browser, served: Served
) -> None:
    context = browser.new_context(color_scheme="dark")
    try:
        page = watched(context.new_page())
        open_job(page, served)

        def ground() -> int:
            colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
            return sum(map(int, re.findall(r"\d+", colour)[:3]))

        assert ground() < 150
        page.locator("#theme").click()
        assert ground() > 600
        page.reload()
        page.wait_for_selector("#task-rows tr")
        assert ground() > 600
        assert troubles(page) == []
    finally:
        context.close()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_a_narrow_screen_scrolls_down_only(browser: Browser, served: Served, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 844}, has_touch=True, is_mobile=width < 500
    )
    try:
        page = watched(context.new_page())
        served.do(story.running)
        served.do(lambda job: job.print("chief:0", "a very long line " * 40 + "\n"))
        served.do(lambda job: story.kill(job, "worker:1"))
        open_job(page, served)
        expect(page.locator(".chart")).to_have_count(3)
        expect(row(page, "worker:2").get_by_role("rowheader")).to_be_visible()
        expect(row(page, "worker:2").locator(".state")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        box = row(page, "worker:2").bounding_box()
        assert box is not None
        if width < 500:
            assert box["x"] + box["width"] <= width
            assert page.locator("#stop").bounding_box()["height"] >= 30  # type: ignore[index]
        shoot(page, f"width-{width}")
        assert troubles(page) == []
    finally:
        context.close()


def test_the_page_can_be_used_by_keyboard_and_is_told_to_screen_readers(
    page: Page, served: Served
) -> None:
    served.do(story.running)
    open_job(page, served)
    button = row(page, "worker:2").get_by_role("button", name="worker:2")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#log-task")).to_have_value("worker:2")
    expect(row(page, "worker:2")).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("table", name=re.compile("Tasks of the job"))).to_be_visible()
    expect(page.get_by_role("columnheader", name="Memory")).to_be_visible()
    for name in ("Tasks", "Log", "Metrics", "Events", "Job file"):
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, input, select')].filter(e => e.checkVisibility()"
        " && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))"
        ".map(e => e.outerHTML)"
    )
    assert nameless == []
    served.do(lambda job: job.change(phase="finishing"))
    expect(page.locator("#spoken")).to_contain_text("The job is now: Finishing")


# -- the way there ----------------------------------------------------------------------------------------


def test_a_used_link_says_so_to_others_and_lets_its_owner_in(
    page: Page, browser: Browser, served: Served
) -> None:
    link = served.login_link()
    page.goto(link)
    page.wait_for_selector("#task-rows tr")
    page.goto(link)
    page.wait_for_selector("#task-rows tr")
    context = browser.new_context()
    try:
        stranger = context.new_page()
        stranger.goto(link)
        expect(stranger.locator("h1")).to_have_text("This link is used up")
    finally:
        context.close()


def test_below_a_prefix_and_behind_a_proxy_that_holds_streams_back(
    page: Page, served: Served
) -> None:
    served.do(story.running)
    with prefix_proxy(served.port) as address:
        page.goto(address)
        expect(page.locator("#feed")).to_have_text("Polling", timeout=15_000)
        expect(page.locator("#task-rows tr")).to_have_count(4)
        expect(page.locator("#log-lines")).to_contain_text("step 119 of chief:0")
        served.do(lambda job: job.print("chief:0", "a line through the proxy\n"))
        served.do(lambda job: job.task("worker:1", state="stopping"))
        expect(page.locator("#log-lines div").last).to_have_text("a line through the proxy")
        expect(row(page, "worker:1").locator(".state")).to_have_text("stopping")
        expect(page.locator(".chart")).to_have_count(3)
        assert page.evaluate("location.pathname").startswith("/proxy/application_")
        page.goto("about:blank")


def test_the_page_comes_back_with_the_next_coordinator(page: Page, served: Served) -> None:
    served.do(story.running)
    open_job(page, served)
    expect(page.locator("#feed")).to_have_text("Live")
    port = served.port
    served.run(served.server.close())
    expect(page.locator("#feed")).to_have_text("Not connected")
    served.do(lambda job: job.change(incarnation=2))
    served.restart(port)
    served.do(lambda job: job.print("chief:0", "the program never noticed\n"))
    expect(page.locator("#feed")).to_have_text("Live", timeout=20_000)
    expect(page.locator("#log-lines div").last).to_have_text("the program never noticed")
    shown = page.locator("#log-lines div").all_text_contents()
    assert len(shown) == len(set(shown)), "lines came twice"
    expect(page.locator("#facts")).to_contain_text("life 2")
    assert all("ERR_CONNECTION" in t or "INCOMPLETE" in t for t in troubles(page))


def test_a_session_that_ends_is_said(page: Page, context: BrowserContext, served: Served) -> None:
    open_job(page, served)
    context.clear_cookies()
    served.run(served.server.close())
    served.restart(served.port)
    expect(page.locator("#feed")).to_have_text("Signed out", timeout=20_000)
    troubles(page)


def test_the_cookie_is_out_of_reach_of_scripts(page: Page, served: Served) -> None:
    open_job(page, served)
    assert page.evaluate("document.cookie") == ""
    (cookie,) = page.context.cookies()
    assert cookie["name"] == tickets.session_cookie(served.job.head.job_id)
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert cookie["path"] == "/"


def test_another_site_cannot_use_the_readers_session(
    page: Page, context: BrowserContext, served: Served
) -> None:
    open_job(page, served)

    def attack(request: Program) -> None:
        html = (
            "<!doctype html><title>x</title><script>"
            f"const at = '{served.url}/api/v1/';"
            "const tries = [fetch(at + 'stop', {method: 'POST', credentials: 'include',"
            " mode: 'no-cors', body: '{}'}), fetch(at + 'stop', {method: 'POST', credentials:"
            " 'include', headers: {'Content-Type': 'application/json'}, body: '{}'}),"
            "fetch(at + 'job', {credentials: 'include'}).then(r => r.text())];"
            "Promise.allSettled(tries).then(all => document.title = all.map(r =>"
            " r.status + ' ' + (r.value?.type ?? r.value ?? '')).join('|'));</script>"
            f"<form id=f method=post action='{served.url}/api/v1/stop'></form>"
        )
        request.answer(200, html.encode(), {"Content-Type": "text/html"})

    with program(attack=attack) as port:
        evil = context.new_page()
        # The same site to the browser (cookies know no ports), another origin.
        evil.goto(f"http://127.0.0.1:{port}/attack")
        evil.wait_for_function("document.title.includes('|')")
        assert [each.strip() for each in evil.title().split("|")[1:]] == ["rejected", "rejected"]
        evil.evaluate("document.getElementById('f').submit()")
        evil.wait_for_url("**/api/v1/stop")
    assert served.job.stops == []
