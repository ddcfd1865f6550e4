"""The list of all jobs, in a real browser, over what real runs have left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import shoot, watched
from tests.browser.prefix_proxy import prefix_proxy
from tests.portal.conftest import Portal

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(180)]


def row(page: Page, name: str):
    return page.locator("#jobs tbody tr").filter(has_text=name)


@pytest.fixture
def plain(browser: Browser) -> Iterator[Page]:
    """A browser without JavaScript."""
    context = browser.new_context(java_script_enabled=False)
    context.set_default_timeout(60_000)
    yield watched(context.new_page())
    context.close()


def test_all_works_without_javascript(plain: Page, portal: Portal) -> None:
    plain.goto(portal.login_link())
    expect(plain.locator("#jobs tbody tr")).to_have_count(5)
    plain.get_by_role("searchbox").fill("ODE 1")
    plain.get_by_role("button", name="Filter").click()
    expect(plain.locator("#jobs tbody tr")).to_have_count(1)
    expect(row(plain, "letters")).to_be_visible()
    plain.get_by_role("link", name="Show all").click()
    plain.locator("select[name=tag]").select_option("night")
    plain.locator("select[name=state]").select_option("succeeded")
    plain.get_by_role("button", name="Filter").click()
    expect(plain.locator("#jobs tbody tr .name > a:first-child")).to_have_text(["digits"])
    # All that was chosen is in the address, and the form shows it.
    saved = plain.url
    plain.goto(portal.url)
    expect(plain.locator("#jobs tbody tr")).to_have_count(5)
    plain.goto(saved)
    expect(plain.locator("#jobs tbody tr")).to_have_count(1)
    expect(plain.locator("select[name=tag]")).to_have_value("night")
    plain.goto(f"{portal.url}/?name=[dl]*&sort=name")
    expect(plain.locator("#jobs tbody tr .name > a:first-child")).to_have_text(
        ["digits", "letters"]
    )
    plain.locator("thead a").first.click()
    expect(plain.locator("#jobs tbody tr .name > a:first-child")).to_have_text(
        ["letters", "digits"]
    )
    plain.goto(f"{portal.url}/?limit=2&sort=submitted")
    plain.get_by_role("link", name="More").click()
    expect(plain.locator(".pages")).to_contain_text("3–4 of 5")
    plain.goto(f"{portal.url}/?since=yesterday")
    expect(plain.get_by_role("alert")).to_contain_text("'yesterday' is neither a span of time")
    plain.goto(f"{portal.url}/?text=no-such-thing")
    expect(plain.locator("#jobs")).to_contain_text("No job matches")


def test_the_list_filters_as_one_types_and_goes_by_keys(page: Page, portal: Portal) -> None:
    page.goto(portal.login_link())
    expect(page.locator("#jobs tbody tr")).to_have_count(5)
    page.wait_for_load_state()  # its script runs by then
    page.keyboard.press("/")
    page.keyboard.type("letters")
    expect(page.locator("#jobs tbody tr")).to_have_count(1)
    expect(page).to_have_url(f"{portal.url}/?text=letters")
    page.reload()
    expect(page.get_by_role("searchbox")).to_have_value("letters")
    page.get_by_role("searchbox").fill("")
    expect(page.locator("#jobs tbody tr")).to_have_count(5)
    page.locator("select[name=state]").select_option("failed")
    expect(page.locator("#jobs tbody tr")).to_have_count(2)
    page.locator("select[name=cause]").select_option("user-code")
    expect(page.locator("#jobs tbody tr .name > a:first-child")).to_have_text(["letters"])


def test_the_list_on_a_phone_in_the_dark_and_below_a_prefix(
    browser: Browser, portal: Portal
) -> None:
    context = browser.new_context(
        viewport={"width": 390, "height": 800}, color_scheme="dark", reduced_motion="reduce"
    )
    context.set_default_timeout(60_000)
    phone = watched(context.new_page())
    with prefix_proxy(portal.port) as address:
        phone.goto(f"{address}?sort=name")
        expect(row(phone, "letters")).to_be_visible()
        expect(phone.locator(":root")).to_have_attribute("data-dark", "")
        phone.locator(".states").get_by_role("link", name="Succeeded").click()
        expect(phone).to_have_url(f"{address}?sort=name&state=succeeded")
        expect(phone.locator("#jobs tbody tr")).to_have_count(1)
        phone.locator(".states").get_by_role("link", name="All").click()
        expect(phone.locator("#jobs tbody tr")).to_have_count(5)
        width = phone.evaluate("document.documentElement.scrollWidth")
        assert width <= 390
        shoot(phone, "jobs-phone-dark")
    context.close()
