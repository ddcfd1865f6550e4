"""Runs beside each other, and a run's job file against that of the run before."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from howdah.storage.jobdir import JobDirectory
from tests.browser.conftest import shoot
from tests.cli.howdah import gone, howdah, job_file, newest
from tests.portal.conftest import Past, Portal
from tests.portal.test_list import plain, row  # noqa: F401 - a fixture

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]

REPORTS = """
import sys, time
from howdah import task

for step in range(int(sys.argv[1])):
    task.report(step=step, loss=1 / (step + 1))
    time.sleep(0.6)
"""


@pytest.fixture(scope="module")
def runs(past: Past, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[JobDirectory]]:
    """Three runs of one name, each with other parameters."""
    folder = tmp_path_factory.mktemp("runs")
    made: list[JobDirectory] = []
    for number, fields in enumerate(
        (
            {"env": {"HF_TOKEN": "hf_one_of_ada"}, "tags": ["first"]},
            {"env": {"HF_TOKEN": "hf_two_of_ada"}, "roles": {"worker": {"memory": "3g"}}},
            {"env": {"HF_TOKEN": "hf_two_of_ada"}, "roles": {"worker": {"memory": "3g"}}},
        )
    ):
        steps = str(2 if number == 0 else 3)
        file = job_file(folder / str(number), REPORTS, name="tuned", **fields)
        howdah("run", str(file), "--set", f"command=python train.py {steps}")
        made.append(newest())
        gone(made[-1])
    yield made
    for directory in made:
        shutil.rmtree(directory.path)


def log_in(page: Page, portal: Portal) -> None:
    page.goto(portal.login_link())
    expect(page).to_have_title("Jobs · Howdah")  # the link's own page goes on by itself


def row_of(page: Page, label: str) -> Locator:
    """The cells of that row."""
    found = page.locator(".compared tbody tr").filter(has=page.get_by_role("rowheader", name=label))
    return found.locator("td")


def cells(page: Page, label: str) -> list[str]:
    """What they say now."""
    return row_of(page, label).all_inner_texts()


def test_runs_are_compared_from_the_list_without_javascript(
    plain: Page,  # noqa: F811
    portal: Portal,
    runs: list[JobDirectory],
) -> None:
    log_in(plain, portal)
    plain.goto(f"{portal.url}/?name=tuned&sort=submitted")
    boxes = plain.get_by_role("checkbox", name="Compare tuned")
    boxes.nth(0).check()
    boxes.nth(1).check()
    plain.get_by_role("button", name="Compare the chosen jobs").click()
    expect(plain.locator("thead small")).to_have_text([each.job_id for each in runs[:2]])
    assert cells(plain, "State") == ["succeeded", "succeeded"]
    assert cells(plain, "command") == ["python train.py 2", "python train.py 3"]
    assert cells(plain, "tags") == ['["first"]', "as by default"]
    assert cells(plain, "roles.worker.memory") == ["as by default", "3g"]
    assert cells(plain, "env.HF_TOKEN") == ["(not shown)", "(not shown; another value)"]
    assert "of_ada" not in plain.content()
    assert all(text.endswith("s") for text in cells(plain, "Running"))
    loss = [float(text) for text in cells(plain, "loss")]
    assert len(loss) == 2 and loss[0] >= loss[1]
    assert cells(plain, "name") == []
    shoot(plain, "compare")
    plain.locator("thead a").nth(1).click()
    expect(plain).to_have_title("tuned · Howdah")


def test_what_several_runs_reported_is_plotted_in_one_chart(
    page: Page, portal: Portal, past: Past, runs: list[JobDirectory]
) -> None:
    log_in(page, portal)
    page.goto(f"{portal.url}/compare?job={'&job='.join(each.job_id for each in runs[:2])}")
    loss = page.get_by_role("figure", name="loss:")
    # Points are means of a second: their values depend on how fast the programs were.
    both = re.compile(rf"loss: {runs[0].job_id} [0-9.]+, {runs[1].job_id} [0-9.]+")
    expect(loss).to_have_accessible_name(both)
    loss.locator(".u-over").hover()
    expect(loss.locator(".tip small")).to_contain_text("after")
    page.get_by_label("Plotted over").select_option("Over steps")
    page.get_by_label("Log scale").check()
    loss.locator(".u-over").hover()
    expect(loss.locator(".tip small")).to_contain_text("step ")
    shoot(page, "compare-metrics")
    page.get_by_role("button", name=runs[0].job_id).click()
    expect(loss).to_have_accessible_name(re.compile(rf"loss: {runs[1].job_id} [0-9.]+$"))
    # What one of them alone has is in no chart.
    page.goto(f"{portal.url}/compare?job={runs[0].job_id}&job={past.good.job_id}")
    expect(page.get_by_role("heading", name="Metrics")).to_be_visible()
    expect(loss).to_have_count(0)


def test_what_cannot_be_compared_is_said(
    page: Page, portal: Portal, past: Past, runs: list[JobDirectory]
) -> None:
    one = runs[0].job_id
    log_in(page, portal)
    odd = "&job=".join([one, past.hostile.job_id, "torn-20261121-143503-k3f9", past.failed.job_id])
    page.goto(f"{portal.url}/compare?job={odd}")
    expect(row_of(page, "State")).to_have_text(["succeeded", "failed", "unreadable", "failed"])
    expect(page.locator(".compared")).to_contain_text("of one of them it cannot be read")
    expect(page.get_by_role("figure", name="loss:")).to_be_visible()
    expect(page).to_have_title("Compare · Howdah")


def test_the_page_shows_what_differs_from_the_run_before(
    page: Page, portal: Portal, runs: list[JobDirectory]
) -> None:
    log_in(page, portal)
    page.goto(f"{portal.url}/jobs/{runs[1].job_id}/")
    before = page.locator("#before")
    expect(before).to_contain_text("4 keys differ from the run before")
    expect(before.locator("tbody tr").filter(has_text="roles.worker.memory")).to_contain_text("3g")
    expect(before).to_contain_text("(not shown; another value)")
    shoot(page, "before")
    page.goto(f"{portal.url}/jobs/{runs[2].job_id}/")
    expect(before).to_contain_text("The same as of the run before")
    expect(before.locator("table")).to_be_hidden()
    before.get_by_role("link", name="compare the two").click()
    expect(page.locator("thead small")).to_have_text([each.job_id for each in runs[1:]])
    page.goto(f"{portal.url}/jobs/{runs[0].job_id}/")
    expect(page.locator("#config-text")).to_contain_text('"tuned"')
    expect(before).to_be_hidden()


def test_chosen_jobs_stay_chosen_while_the_list_is_brought_up_to_date(
    page: Page, portal: Portal, runs: list[JobDirectory]
) -> None:
    log_in(page, portal)
    expect(row(page, "letters")).to_be_visible()
    page.wait_for_load_state()
    row(page, "letters").get_by_role("checkbox").check()
    with page.expect_response(lambda answer: answer.request.method == "GET"):
        page.locator("#filters select[name=state]").select_option("failed")
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    expect(row(page, "letters").get_by_role("checkbox")).to_be_checked()
    shoot(page, "list-chosen")
