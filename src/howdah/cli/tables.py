"""Tables: aligned columns, fitted to the window on a terminal and whole in pipes and files."""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Sequence

import msgspec

from howdah.cli.paint import Paint

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GAP = "  "


class Column(msgspec.Struct, frozen=True):
    """One column of a table."""

    title: str
    right: bool = False
    """Numbers are aligned at their right."""
    gives: bool = False
    """Shortened when the window is too narrow; others keep their width."""


def render(
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    paint: Paint,
    *,
    width: int | None = None,
    indent: str = "",
) -> list[str]:
    """The table's lines, titles first. Columns that are empty in every row are left out.

    ``width`` is the window's, or None to keep every cell whole. Cells may be painted already,
    except those of columns that give.
    """
    used = [i for i in range(len(columns)) if any(row[i] not in ("", "-") for row in rows)]
    columns = [columns[i] for i in used]
    rows = [[row[i] for i in used] for row in rows]
    widths = [
        max([len(column.title), *(display_width(row[i]) for row in rows)])
        for i, column in enumerate(columns)
    ]
    if width is not None:
        _narrow(columns, widths, width - len(indent))
    titles = [column.title for column in columns]
    lines = [_line(columns, widths, cells) for cells in [titles, *rows]]
    if paint.colour:
        lines[0] = paint(lines[0], bold=True)
    return [indent + line for line in lines]


def _narrow(columns: Sequence[Column], widths: list[int], room: int) -> None:
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    for i, column in enumerate(columns):
        if column.gives and over > 0:
            least = max(len(column.title), 8)
            less = min(over, max(widths[i] - least, 0))
            widths[i] -= less
            over -= less


def _line(columns: Sequence[Column], widths: Sequence[int], cells: Sequence[str]) -> str:
    parts: list[str] = []
    for column, width, cell in zip(columns, widths, cells, strict=True):
        if column.gives:
            cell = shortened(cell, width)
        room = " " * (width - display_width(cell))
        parts.append(room + cell if column.right else cell + room)
    return _GAP.join(parts).rstrip()


def shortened(text: str, width: int) -> str:
    """The text, cut with an ellipsis where it takes more than ``width`` columns."""
    if display_width(text) <= width:
        return text
    while display_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def display_width(text: str) -> int:
    """Columns the text takes on a terminal, painted or not."""
    plain = _ANSI.sub("", text) if "\x1b" in text else text
    if plain.isascii():
        return len(plain)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in plain
    )


def window_width() -> int:
    """Columns of the terminal."""
    return shutil.get_terminal_size().columns
