"""Draw the diagrams of docs/diagrams as pictures in docs/images.

The build of the documentation calls `main` (see conf.py). The pictures are committed, because the pages
are also read where nothing is built; a test compares them with their texts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
TEXTS = DOCS / "diagrams"
PICTURES = DOCS / "images"

_CELL = (310, 130)
_BOX = (210, 62)
_COLUMN = 168
_ROW = 34
_INK, _LINE, _FILL = "#1d2733", "#5b6775", "#eef3f8"


class Arrow(NamedTuple):
    """One arrow between two names."""

    begin: str
    end: str
    kind: str
    """``->`` or ``<->``"""
    text: str
    """Empty if the arrow has none."""


class Box(NamedTuple):
    """One box of an architecture, by its middle."""

    x: float
    y: float
    lines: list[str]


def architecture(text: str) -> str:
    """Boxes on a grid, with arrows between them."""
    title, *lines = _lines(text)
    arrows = [arrow for line in lines if (arrow := _arrow(line))]
    boxes: dict[str, Box] = {}
    for line in lines:
        if found := re.fullmatch(r"(\w+)\s+(\d)\s+(\d)\s+(.+)", line):
            x = 20 + _BOX[0] / 2 + int(found[2]) * _CELL[0]
            y = 20 + _BOX[1] / 2 + int(found[3]) * _CELL[1]
            boxes[found[1]] = Box(x, y, [part.strip() for part in found[4].split(" / ")])
    width = max(box.x for box in boxes.values()) + _BOX[0] / 2 + 20
    height = max(box.y for box in boxes.values()) + _BOX[1] / 2 + 20
    parts = [_connect(boxes[arrow.begin], boxes[arrow.end], arrow) for arrow in arrows]
    for x, y, words in boxes.values():
        parts.append(
            f'<rect x="{x - _BOX[0] / 2:g}" y="{y - _BOX[1] / 2:g}" width="{_BOX[0]}" height="{_BOX[1]}" '
            f'rx="6" fill="{_FILL}" stroke="{_LINE}"/>'
        )
        top = y + 5 - 8 * (len(words) - 1)
        parts.append(_text(x, top, words[0], bold=True))
        parts += [_text(x, top + 16 * n, word, 12) for n, word in enumerate(words[1:], 1)]
    return _picture(title, width, height, parts)


def sequence(text: str) -> str:
    """Arrows in the order of time between those who take part."""
    title, names, *lines = _lines(text)
    places = {name.strip(): 80 + n * _COLUMN for n, name in enumerate(names.split("|"))}
    width, y = max(places.values()) + 80, 70.0
    bottom = y + _ROW * (len(lines) - 1) + 20
    parts: list[str] = []
    for name, x in places.items():
        parts.append(f'<path d="M{x} 50V{bottom:g}" stroke="{_LINE}" stroke-dasharray="3 4"/>')
        parts.append(
            f'<rect x="{x - 62}" y="16" width="124" height="34" rx="6" fill="{_FILL}" stroke="{_LINE}"/>'
        )
        parts.append(_text(x, 38, name, bold=True))
    for line in lines:
        arrow = _arrow(line)
        if arrow is None:
            parts.append(
                f'<rect x="14" y="{y - 20:g}" width="{width - 28}" height="24" rx="4" fill="#f7f3e8"/>'
            )
            parts.append(_text(width / 2, y - 4, line.removeprefix("--").strip(), 12))
        else:
            a, b = places[arrow.begin], places[arrow.end]
            parts.append(_path(f"M{a} {y:g}H{b + (-2 if b > a else 2)}", arrow.kind))
            # In the first gap of the arrow: where it crosses others' lines it stays readable.
            middle = a + math.copysign(_COLUMN / 2, b - a)
            parts.append(_text(middle, y - 8, arrow.text, 11, halo=True))
        y += _ROW
    return _picture(title, width, bottom + 10, parts)


def documents() -> dict[Path, str]:
    """Each picture's file and its text."""
    read = {name: (TEXTS / f"{name}.txt").read_text("utf-8") for name in ("architecture", "job")}
    return {
        PICTURES / "architecture.svg": architecture(read["architecture"]),
        PICTURES / "job.svg": sequence(read["job"]),
    }


def _lines(text: str) -> Iterator[str]:
    return (line for line in map(str.strip, text.splitlines()) if line and line[0] != "#")


def _arrow(line: str) -> Arrow | None:
    found = re.fullmatch(r"([\w ]+?) (<?->) ([\w ]+)(?:: (.+))?", line)
    return Arrow(found[1], found[3], found[2], found[4] or "") if found else None


def _connect(a: Box, b: Box, arrow: Arrow) -> str:
    """A line from the edge of a box to that of another."""
    (x1, y1), (x2, y2) = _edge(a, b), _edge(b, a)
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    text = _text(x, y - 6 if y1 == y2 else y + 4, arrow.text, 12, halo=True) if arrow.text else ""
    return _path(f"M{x1:.0f} {y1:.0f}L{x2:.0f} {y2:.0f}", arrow.kind) + text


def _edge(box: Box, towards: Box) -> tuple[float, float]:
    """Where the line from a box's middle to another's leaves the box."""
    dx, dy = towards.x - box.x, towards.y - box.y
    scale = min(
        _BOX[0] / 2 / abs(dx) if dx else math.inf, _BOX[1] / 2 / abs(dy) if dy else math.inf
    )
    return box.x + dx * scale, box.y + dy * scale


def _path(line: str, kind: str) -> str:
    ends = ' marker-end="url(#tip)"' + (' marker-start="url(#tip)"' if kind == "<->" else "")
    return f'<path d="{line}" fill="none" stroke="{_LINE}" stroke-width="1.4"{ends}/>'


def _text(
    x: float,
    y: float,
    words: str,
    size: int = 14,
    *,
    bold: bool = False,
    halo: bool = False,
) -> str:
    look = ' font-weight="bold"' if bold else ""
    if halo:
        look += ' stroke="#fff" stroke-width="3" paint-order="stroke"'
    return (
        f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="middle"{look}>'
        f"{escape(words)}</text>"
    )


def _picture(title: str, width: float, height: float, parts: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
            f'font-family="sans-serif" fill="{_INK}" role="img" aria-label="{escape(title)}">',
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
            f'markerHeight="8" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z" fill="{_LINE}"/>'
            "</marker></defs>",
            f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Write the pictures that are not what their texts say."""
    for path, picture in documents().items():
        if not path.exists() or path.read_text(encoding="utf-8") != picture:
            path.write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
