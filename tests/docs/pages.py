"""The pages people read: where they are, and the blocks inside them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = (
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts),
    *sorted((ROOT / "examples").glob("*/README.md")),
)

_FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=fence)\s*$", re.M | re.S
)


class Block(NamedTuple):
    """A fenced block."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(kind: str) -> list[Block]:
    """All blocks of that kind (``toml``, ``python``, ``text``)."""
    return [block for page in PAGES for block in _blocks(page) if block.kind == kind]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["kind"].strip(), found["text"])
