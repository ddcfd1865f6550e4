"""The documentation as it is built, and what readers do with it in a browser."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import browser, context, page
from tests.docs.pages import DOCS

__all__ = ["browser", "context", "page"]
pytestmark = [pytest.mark.nightly, pytest.mark.timeout(240)]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is built; a warning is an error."""
    for needed in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    command += ["-d", str(folder / "trees"), str(DOCS), str(folder / "html")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stderr
    return folder / "html"


@pytest.fixture
def site(html: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html)))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_documentation_is_built_without_a_warning(html: Path) -> None:
    assert (html / "index.html").exists()
    assert (html / "job-file.schema.json").exists()


def test_a_command_is_copied_without_its_prompt(
    site: str, context: BrowserContext, page: Page
) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{site}/tutorial.html")
    block = page.locator("article .highlight").filter(has_text="$ kill -9 $(howdah status").first
    block.hover()
    block.get_by_role("button", name="Copy").click()
    expect(block.get_by_role("button")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()").startswith("kill -9 $(howdah status")


def test_the_search_finds_what_a_page_says(site: str, page: Page) -> None:
    page.goto(f"{site}/index.html")
    page.get_by_placeholder("Search").first.fill("preemption")
    page.keyboard.press("Enter")
    results = page.locator("#search-results li a")
    expect(results.filter(has_text="Restarts").first).to_be_visible()


def test_pictures_follow_the_theme(site: str, page: Page) -> None:
    page.goto(f"{site}/guides/pages.html")
    light, dark = (page.locator(f'article img[src*="job-running-{theme}"]') for theme in THEMES)
    for theme, shown, hidden in (("light", light, dark), ("dark", dark, light)):
        page.emulate_media(color_scheme=theme)
        expect(shown).to_be_visible()
        expect(hidden).to_be_hidden()
        assert shown.evaluate("picture => picture.naturalWidth") > 1000


THEMES = ("light", "dark")
