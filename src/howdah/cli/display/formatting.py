"""How values look: colours, human units, and tables fitted to the window. Pure but for `wants_colour`."""

from __future__ import annotations

import datetime
import os
import re
import shutil
import unicodedata
from collections.abc import Sequence
from typing import IO, Any

import click
import msgspec

TASK_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_cyan", "bright_yellow")

_STATE_COLOURS = {
    "succeeded": "green",
    "running": "green",
    "failed": "red",
    "timed-out": "red",
    "lost": "red",
    "ended": "yellow",
    "stopped": "yellow",
    "failure-window": "yellow",
    "restarting": "yellow",
    "stopping": "yellow",
}


def wants_colour(stream: IO[Any]) -> bool:
    """Whether to colour what goes there: NO_COLOR and FORCE_COLOR win over what it is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


class Paint:
    """Styles text, or leaves it alone."""

    def __init__(self, colour: bool) -> None:
        self.colour = colour

    def __call__(self, text: str, fg: str | None = None, **style: Any) -> str:
        return click.style(text, fg=fg, **style) if self.colour else text

    def state(self, state: str, **style: Any) -> str:
        """A phase, outcome or task state in its colour."""
        return self(state.replace("-", " "), _STATE_COLOURS.get(state), **style)


def duration(seconds: float | None) -> str:
    """``0.4s``, ``12.3s``, ``4m 05s``, ``2h 03m``, ``3d 4h``; a dash for none."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    if seconds < 60:
        return f"{seconds:.1f}s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h {whole % 3600 // 60:02d}m"
    return f"{whole // 86400}d {whole % 86400 // 3600}h"


def moment(time: float | None) -> str:
    """Local date and time to the second; a dash for none."""
    if time is None:
        return "-"
    return datetime.datetime.fromtimestamp(time).strftime("%Y-%m-%d %H:%M:%S")


def clock(time: float) -> str:
    """Local time of day to the millisecond."""
    return datetime.datetime.fromtimestamp(time).strftime("%H:%M:%S.%f")[:-3]


def mebibytes(amount: float | None) -> str:
    """``40K``, ``512M``, ``1.5G``; a dash for none."""
    if amount is None:
        return "-"
    if 0 < amount < 1:
        return f"{amount * 1024:.0f}K"
    return f"{amount:.0f}M" if amount < 1024 else f"{amount / 1024:.1f}G"


def budget(counts: bool) -> str:
    """What a failure costs."""
    return f"{'counts' if counts else 'does not count'} against the restart budget"


def counted(number: int, noun: str) -> str:
    """``1 task``, ``2 tasks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_GAP = "  "


class TableColumn(msgspec.Struct, frozen=True):
    """One column of a table."""

    title: str
    right: bool = False
    """Numbers are aligned at their right."""
    gives: bool = False
    """Shortened when the window is too narrow; others keep their width."""


def render(
    columns: Sequence[TableColumn],
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


def _narrow(columns: Sequence[TableColumn], widths: list[int], room: int) -> None:
    over = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    for i, column in enumerate(columns):
        if column.gives and over > 0:
            least = max(len(column.title), 8)
            less = min(over, max(widths[i] - least, 0))
            widths[i] -= less
            over -= less


def _line(columns: Sequence[TableColumn], widths: Sequence[int], cells: Sequence[str]) -> str:
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
    return shutil.get_terminal_size().columns
