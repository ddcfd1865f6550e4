"""TonY's command lines as they are written: ``java -cp PATH com.linkedin.tony.cli.ClusterSubmitter …``.

What Java itself is told is dropped, but for the class path: TonY looks for ``tony.xml``, and its users keep
the file of ``-conf_file``, in the folders of it (README.md, "TonY configurations").
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

_SUBMITTER = re.compile(r"(?:[A-Za-z_$][\w$]*\.)*(\w+Submitter)")
_BACKENDS = {"ClusterSubmitter": "yarn", "LocalSubmitter": "local"}
_CLASS_PATH = ("-cp", "-classpath", "--class-path")


class NotTonY(ValueError):
    """The words are no command line of TonY's that can be run; the text says why and what to do."""


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command line of TonY's, taken apart."""

    backend: str | None
    """Where its submitter would have run the job; None if it names none."""
    arguments: tuple[str, ...]
    """What TonY's client is given."""
    class_path: tuple[str, ...] = ()

    def find(self, name: str) -> str | None:
        """A file by its name in the current folder, else in a folder of the class path."""
        if Path(name).is_file() or Path(name).is_absolute():
            return name
        places = (Path(folder, name) for folder in self.class_path if "*" not in folder)
        return next((str(place) for place in places if place.is_file()), None)


def command_line(words: Sequence[str]) -> CommandLine:
    """Take a command line apart, with or without ``java`` and the class of a submitter.

    Raises:
        NotTonY: it is something else's, or that of a submitter with another command here.
    """
    rest = [*words]
    class_path: tuple[str, ...] = ()
    java = bool(rest) and os.path.basename(rest[0]) == "java"
    if java:
        del rest[0]
        class_path = _take_java_options(rest)
    found = _SUBMITTER.fullmatch(rest[0]) if rest else None
    if found is None:
        if java:
            what = repr(rest[0]) if rest else "no class"
            raise NotTonY(
                f"java is told to run {what}, which is no submitter of TonY's; name "
                "com.linkedin.tony.cli.ClusterSubmitter"
            )
        return CommandLine(backend=None, arguments=tuple(rest))
    if found[1] not in _BACKENDS:
        hint = "howdah notebook --backend yarn" if found[1] == "NotebookSubmitter" else ""
        known = " and ".join(_BACKENDS)
        raise NotTonY(
            f"{found[1]} is not run by this command; " + (f"use {hint}" if hint else f"{known} are")
        )
    return CommandLine(
        backend=_BACKENDS[found[1]], arguments=tuple(rest[1:]), class_path=class_path
    )


def _take_java_options(words: list[str]) -> tuple[str, ...]:
    """Take Java's own options from the front; returns the class path."""
    class_path = os.environ.get("CLASSPATH", "")
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name in _CLASS_PATH:
            class_path = value if equals else words.pop(0) if words else ""
    return tuple(filter(None, class_path.split(os.pathsep)))
