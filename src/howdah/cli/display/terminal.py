"""The one door by which text that others wrote gets to a terminal: what tasks print, records, names.

A terminal obeys what it is sent: it moves the cursor, sets the clipboard, renames the window, switches
its characters. Only colours and other looks pass (SGR, ECMA-48 8.3.117). What goes to a pipe or a file
is not changed: it is data there.
"""

from __future__ import annotations

import os
import re
import sys
from typing import IO, Any

import click

_LOOK = r"\x1b\[[0-9;:]*m"
_SEQUENCE = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences
    r"|\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # strings: titles, the clipboard
    r"|\x1b[ -/]+[0-~]"  # character sets
    r"|\x1b[0-Z\\^-~]"
)
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
"""All but tab and line feed: C0 with a lone escape, C1, and what turns the direction of writing."""
_UNWANTED = re.compile(f"({_LOOK})|{_SEQUENCE}|{_CONTROL}")
_IN_JSON = re.compile(_CONTROL)
_RESET = "\x1b[0m"
_PLAIN = bytes({*range(32, 127), *b"\t\n"})


def is_terminal(stream: IO[Any] | int) -> bool:
    """Whether what is written there is obeyed by a terminal."""
    try:
        return os.isatty(stream if isinstance(stream, int) else stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False


def tame(text: str) -> str:
    """The text without anything that a terminal would obey but looks.

    What is left is never put together to something new: each escape that stays begins a whole look.
    """
    return _UNWANTED.sub(lambda found: found[1] or "", text)


def tame_bytes(data: bytes) -> bytes:
    """The same of bytes; those that are no UTF-8 become replacement characters."""
    if data.isascii() and not data.translate(None, _PLAIN):
        return data
    return tame(data.decode("utf-8", "replace")).encode()


def tame_line(line: bytes) -> bytes:
    """A task's line for a terminal: its looks end with it."""
    tamed = tame_bytes(line)
    return tamed + _RESET.encode() if b"\x1b" in tamed else tamed


def tame_json(data: bytes) -> bytes:
    """JSON documents with all control characters escaped: the same documents, for terminals too."""
    if data.isascii() and not data.translate(None, _PLAIN):
        return data
    text = data.decode("utf-8", "replace")
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def echo(text: str, *, err: bool = False, color: bool | None = None, nl: bool = True) -> None:
    """`click.echo` of text that others may have written parts of."""
    stream = sys.stderr if err else sys.stdout
    click.echo(tame(text) if is_terminal(stream) else text, err=err, color=color, nl=nl)


def echo_json(document: object) -> None:
    """`click.echo` of a document, as JSON."""
    from howdah.storage.confined_paths import encoded

    click.echo(tame_json(encoded(document)))
