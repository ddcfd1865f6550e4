"""What a failed program's last lines say of a defect of its own: facts that no restart changes. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

_EXCEPTION = re.compile(r"(?:[\w.]+\.)?([A-Z]\w*)(?::\s.*)?")
_FRAME = re.compile(r'\s*File "([^"]+)", line (\d+)')
_NO_SCRIPT = re.compile(r".*: (can't open file '.*': \[Errno 2\] No such file or directory)")
"""``python gone.py``"""
_NO_MAIN = re.compile(r"\S*python\S*: ((?:Error while finding module|No module named) .*)")
"""``python -m gone``"""
_REFUSED = re.compile(r"howdah: refused: (.*)")
"""A helper of a framework that won't go on."""
_CERTAIN = {"ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError"}
_LIKELY = {"AttributeError", "ImportError", "NameError", "TypeError", "UnboundLocalError"}


class Defect(msgspec.Struct, frozen=True):
    """A defect of the program."""

    text: str
    """The exception, and the line of the program it came from."""
    certain: bool
    """It will be the same each time; else only if it has been the same twice."""


def defect(tail: Sequence[str], folder: str, python: str) -> Defect | None:
    """The defect that the last line names; None if it names none.

    Args:
        tail: the last lines of its standard error.
        folder: the program's working folder; lines of files in it are preferred.
        python: the interpreter of the job, named where something is not found.
    """
    lines = [line for line in tail if line.strip()]
    if not lines:
        return None
    last = lines[-1]
    if found := _NO_SCRIPT.fullmatch(last) or _NO_MAIN.fullmatch(last):
        return Defect(f"{found[1]} (Python: {python})", True)
    if found := _REFUSED.fullmatch(last):
        return Defect(found[1], True)
    found = _EXCEPTION.fullmatch(last)
    if found is None or found[1] not in _CERTAIN | _LIKELY:
        return None
    frames = [frame for line in lines if (frame := _FRAME.match(line))]
    if not frames:
        return None
    own = [frame for frame in frames if frame[1].startswith(f"{folder}/")]
    frame = (own or frames)[-1]
    text = f"{last.strip()} ({frame[1].removeprefix(f'{folder}/')}, line {frame[2]})"
    if found[1] == "ModuleNotFoundError":
        text += f", Python: {python}"
    return Defect(text, found[1] in _CERTAIN)
