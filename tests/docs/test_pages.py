"""Pages lead where they say they lead."""

from __future__ import annotations

import re
import runpy
import sys
import unicodedata
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, prose

_LINK = re.compile(r"\]\((?P<target>[^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)")
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*$", re.M)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and MyST name them, and those written out."""
    found: set[str] = set()
    for heading in _HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        kept = "".join(c for c in plain if c in " -_" or unicodedata.category(c)[0] in "LN")
        found.add(kept.strip().replace(" ", "-"))
    return found | set(re.findall(r"^\(([\w-]+)\)=$", page.read_text(encoding="utf-8"), re.M))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for match in _LINK.finditer(prose(page)):
        target = match["target"]
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{page.relative_to(ROOT)} links to {target}, which is not there"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file), (
                f"{page.relative_to(ROOT)}: {target} has no such heading"
            )


def test_the_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named = set(re.findall(r"`make ([a-z]+)|^make ([a-z]+)", text, re.M))
        wanted = {name for pair in named for name in pair if name}
        assert wanted <= targets, f"{page.relative_to(ROOT)} names {wanted - targets}"


def test_the_readme_has_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert [line.split()[1] for line in lines if line.startswith("make ")][:2] == ["demo", "test"]


def test_the_demo_ends_with_how_to_go_on_and_the_readme_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "howdah"
    job.write_text("#!/bin/sh\necho 'chief:0 | final accuracy 0.9776'\n")
    job.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert runpy.run_path(str(ROOT / "tools/demo.py"))["main"]() == 0
    *_, accuracy, going_on = capsys.readouterr().out.splitlines()
    assert "source .venv/bin/activate" in going_on
    assert f"{accuracy}\n{going_on}\n" in (ROOT / "README.md").read_text(encoding="utf-8")
