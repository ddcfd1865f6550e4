"""A system Chromium, driven by Playwright, in front of a real server over a job in memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.unit.web.serving import Served, serving

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def find_chromium() -> str:
    """Path of a browser: HOWDAH_CHROMIUM, or one on PATH."""
    named = os.environ.get("HOWDAH_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if not found or not Path(found).exists():
        pytest.fail(
            f"the tests of the job page need Chromium, and there is none ({named or 'on PATH'}). "
            "Install it: apt-get update && apt-get install -y chromium; "
            "or name one: HOWDAH_CHROMIUM=/path/to/chrome",
            pytrace=False,
        )
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Playwright keeps an event loop running in this thread: not longer than for its own tests.
    executable = find_chromium()
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=executable, args=ARGUMENTS, timeout=120_000
        )
        yield running
        running.close()


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as running:
        yield running


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    fresh = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    fresh.set_default_timeout(60_000)
    yield fresh
    fresh.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which nothing goes wrong and which asks nobody else for anything."""
    fresh = watched(context.new_page())
    yield fresh
    assert troubles(fresh) == []


_TROUBLES: dict[Page, list[str]] = {}


def watched(page: Page, host: str = "127.0.0.1") -> Page:
    """Note the page's errors, violated policies and requests to other hosts."""
    found = _TROUBLES[page] = []
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on(
        "console",
        lambda message: (
            found.append(f"console: {message.text}") if message.type == "error" else None
        ),
    )
    page.on(
        "request",
        lambda request: (
            found.append(f"request to {request.url}")
            if urlsplit(request.url).hostname not in (host, "localhost", None)
            else None
        ),
    )
    return page


def shoot(page: Page, name: str) -> None:
    """Keep a picture where HOWDAH_SCREENSHOTS says, for a person to look at."""
    folder = os.environ.get("HOWDAH_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def troubles(page: Page) -> list[str]:
    """What went wrong so far; forgotten when told."""
    found = list(_TROUBLES[page])
    _TROUBLES[page].clear()
    return found


def open_job(page: Page, served: Served) -> None:
    """Follow a one-time link and wait for the first status."""
    page.goto(served.login_link())
    page.wait_for_selector("#task-rows tr")
