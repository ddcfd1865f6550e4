"""Colour and human units. Pure but for `wants_colour`."""

from __future__ import annotations

import datetime
import os
from typing import IO, Any

import click

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
