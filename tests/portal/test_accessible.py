"""Every page of the portal, light and dark, without a violation of axe-core's rules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.accessible import violations
from tests.portal.conftest import Holding, Past, Portal

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(params=["light", "dark"])
def coloured(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme=request.param, reduced_motion="reduce"
    )
    context.set_default_timeout(60_000)
    yield context.new_page()
    context.close()


@pytest.mark.nightly
def test_no_page_of_the_portal_breaks_a_rule(
    coloured: Page, portal: Portal, past: Past, holding: Holding
) -> None:
    page = coloured
    found: list[str] = []

    def look() -> None:
        found.extend(violations(page))

    page.goto(portal.url)  # without proof
    look()
    page.goto(portal.login_link())
    expect(page).to_have_title("Jobs · Howdah")
    page.wait_for_load_state()
    expect(page.locator("#jobs tbody tr")).to_have_count(6)
    look()
    for query in ("?text=no-such-thing", "?since=yesterday", "?limit=2", "?state=unreadable"):
        page.goto(f"{portal.url}/{query}")
        look()
    page.goto(f"{portal.url}/compare?job={past.good.job_id}&job={past.failed.job_id}")
    look()
    page.goto(f"{portal.url}/jobs/nobody/")
    look()
    page.goto(f"{portal.url}/notebooks")
    page.get_by_text("Environment and queue").click()
    expect(page.get_by_label("Node label")).to_be_visible()
    look()
    page.goto(f"{portal.url}/jobs/{past.failed.job_id}/")
    expect(page.locator("#log-lines")).to_contain_text("ValueError")
    expect(page.locator(".chart").first).to_be_visible()
    look()
    page.goto(f"{portal.url}/jobs/{holding.directory.job_id}/")
    expect(page.locator("#feed")).to_have_text("Live")
    expect(page.locator("#log-lines")).to_contain_text("holding on")
    look()
    page.get_by_role("button", name="Stop", exact=True).click()
    expect(page.locator("#stop-dialog")).to_be_visible()
    look()
    assert not found, "\n".join(found)
