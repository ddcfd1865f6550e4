"""What axe-core finds wrong with a page: see vendor/README.md."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def violations(page: Page) -> list[str]:
    """A line for each element that breaks a rule."""
    # Evaluated, not put into the page: its policy lets in no script but its own.
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")
    return [
        f"{page.url}: {each['id']} ({each['impact']}): {node['html'][:150]}: "
        + "; ".join(check["message"] for check in [*node["any"], *node["all"], *node["none"]])
        for each in found["violations"]
        for node in each["nodes"]
    ]
