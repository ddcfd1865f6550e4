"""What a command prints, line by line with the times, and the same as an SVG that CSS alone moves."""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

COLUMNS, ROWS = 108, 26
CHARACTER, LINE = 7.83, 18.0
"""Pixels of a character's width (13 px, monospace) and of a line's height."""
HOLD_S, LONGEST_S = 4.0, 20.0
"""The last picture stays so long; it all takes no longer than that, or is shown faster."""
COLOURS = {
    "30": "#6e7781", "31": "#ff7b72", "32": "#7ee787", "33": "#e3b341", "34": "#79c0ff",
    "35": "#d2a8ff", "36": "#76e3ea", "37": "#e6edf3", "90": "#8b949e", "91": "#ffa198",
    "92": "#a5f3b0", "93": "#f2cc60", "94": "#a5d6ff", "95": "#e2c5ff", "96": "#b3f0ff",
}  # fmt: skip
_SGR = re.compile(r"\x1b\[([\d;]*)m")
_TICKET = re.compile(r"ticket=[\w.-]+")


class Line(NamedTuple):
    """One line of the terminal."""

    time: float
    text: str
    """With colours as a terminal gets them."""
    kind: str = ""


class Recorder:
    """Runs a command and keeps its lines."""

    def __init__(self, command: list[str], cwd: Path) -> None:
        self._command, self._cwd = command, cwd
        self._begin = time.monotonic()
        self.lines: list[Line] = []

    def say(self, text: str, kind: str) -> None:
        """A line that the command does not print: it is typed."""
        self.lines.append(Line(time.monotonic() - self._begin, text, kind))

    def start(self) -> None:
        env = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
        self._process = subprocess.Popen(
            self._command, cwd=self._cwd, env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            text = _TICKET.sub("ticket=…", text.rstrip("\n"))
            self.lines.append(Line(time.monotonic() - self._begin, text))

    def has(self, text: str) -> bool:
        return any(text in line.text for line in self.lines)

    def wait(self) -> None:
        self._process.wait()
        self._reader.join(10)

    def replace(self, before: str, after: str) -> None:
        self.lines = [line._replace(text=line.text.replace(before, after)) for line in self.lines]


def draw(lines: list[Line]) -> str:
    """The SVG. Who asks for reduced motion sees its last picture."""
    took = lines[-1].time
    pace = min(1.0, (LONGEST_S - HOLD_S) / took)
    whole = took * pace + HOLD_S
    rules, rows, scroll = [], [], []
    for number, line in enumerate(lines):
        at = 100 * line.time * pace / whole
        rules.append(
            f"@keyframes l{number}{{0%,{at:.2f}%{{opacity:0}}{at + 0.01:.2f}%{{opacity:1}}}}"
        )
        rules.append(f".l{number}{{animation-name:l{number}}}")
        y = 52 + number * LINE
        rows.append(f'<text class="l{number}" x="16" y="{y:g}">{spans(line)}</text>')
        up = max(0, number + 1 - ROWS) * LINE
        if up:
            scroll.append(f"{at:.2f}%{{transform:translateY(-{up:g}px)}}")
    height = 44 + ROWS * LINE + 8
    width = 32 + COLUMNS * CHARACTER
    last = max(0, len(lines) - ROWS) * LINE
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:g}" width="{width:.0f}" height="{height:g}" role="img" aria-label="A terminal: howdah run starts a job of two workers, one is killed, both go on from the last checkpoint, and the job succeeds">
<style>
text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#e6edf3;white-space:pre}}
text,.s{{animation:{whole:.1f}s step-end infinite both}}
.s{{animation-name:s;transform:translateY(-{last:g}px)}}
@keyframes s{{0%{{transform:none}}{"".join(scroll)}}}
{"".join(rules)}
@media (prefers-reduced-motion:reduce){{text,.s{{animation:none}}}}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
<circle cx="20" cy="18" r="5" fill="#ff5f57"/><circle cx="38" cy="18" r="5" fill="#febc2e"/><circle cx="56" cy="18" r="5" fill="#28c840"/>
<svg y="39" width="100%" height="{ROWS * LINE:g}" viewBox="0 39 {width:.0f} {ROWS * LINE:g}"><g class="s">
{chr(10).join(rows)}
</g></svg>
</svg>
"""


def spans(line: Line) -> str:
    """The line's text; parts in colour are spans."""
    if line.kind:
        fill = {"prompt": "#7ee787", "aside": "#e3b341"}[line.kind]
        return f'<tspan fill="{fill}">{escape(line.text)}</tspan>'
    parts: list[str] = []
    style: dict[str, str] = {}
    at = shown = 0
    for found in [*_SGR.finditer(line.text), None]:
        text = line.text[at : found.start() if found else None][: COLUMNS - shown]
        shown += len(text)
        if text:
            given = "".join(f' {name}="{value}"' for name, value in style.items())
            parts.append(f"<tspan{given}>{escape(text)}</tspan>" if given else escape(text))
        if found is None:
            break
        at = found.end()
        for code in found[1].split(";"):
            if code in ("", "0"):
                style = {}
            elif code == "1":
                style["font-weight"] = "bold"
            elif code == "2":
                style["fill"] = "#8b949e"
            elif code == "4":
                style["text-decoration"] = "underline"
            elif code in COLOURS:
                style["fill"] = COLOURS[code]
    return "".join(parts)
