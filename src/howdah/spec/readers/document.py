"""A job file as it was written: one document with the origin of every value, nothing checked."""

from __future__ import annotations

import functools
import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec

from howdah.spec.problems import (
    JobFileError,
    JobFileProblem,
    KeyPath,
    Origins,
    Problems,
    ValueOrigin,
    closest,
    printable,
    shown,
)
from howdah.spec.readers import json_reader, toml_reader, yaml_reader
from howdah.spec.readers.reading import MAX_BYTES, MAX_DEPTH, MAX_VALUES, Unreadable
from howdah.spec.values import Table, is_table

_READERS = {
    ".toml": toml_reader.read,
    ".yaml": yaml_reader.read,
    ".yml": yaml_reader.read,
    ".json": json_reader.read,
}
STDIN = Path("-")
_JOB_FILES = ("job.toml", "job.yaml", "job.yml", "job.json")


class Document(msgspec.Struct):
    """What was written, and where."""

    table: Table
    origins: Origins


def read_file(path: Path) -> Document:
    """The document in a file; its ending says TOML, YAML or JSON, any other means TOML, or JSON where
    it begins with a brace. `STDIN` is standard input.

    Raises:
        JobFileError: there is no such file, it is too large, no text, or not of its kind.
    """
    file = "standard input" if path == STDIN else str(path)
    text = _decoded(_standard_input() if path == STDIN else _content(path, file), file)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        reader = json_reader.read if text.lstrip().startswith("{") else toml_reader.read
    try:
        table, reading = reader(text)
    except Unreadable as unreadable:
        raise _error(file, unreadable.message, unreadable.hint, unreadable.line) from None
    if table is None:
        table = {}
    if not is_table(table):
        hint = "a job file is a table of keys, such as name and roles"
        raise _error(file, f"this is {shown(table)}, not a job", hint, 1)
    problems = Problems(Origins.of_lines(file, reading.lines, reading.empty))
    for key, line in reading.repeated:
        first = reading.lines[key]
        hint = f"the first is on line {first}"
        problems.add(key, "written twice", hint, origin=ValueOrigin(file, line))
    problems.raise_any()
    return Document(table, problems.origins)


def _error(file: str, message: str, hint: str | None = None, line: int | None = None):
    return JobFileError([JobFileProblem(file=file, line=line, message=message, hint=hint)])


@functools.cache
def _standard_input() -> bytes:
    """All of it, or more than a job file may have; kept, for it can be read once."""
    return sys.stdin.buffer.read(MAX_BYTES + 1)


def _content(path: Path, file: str) -> bytes:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise _error(file, "there is no such file", _sibling(path)) from None
    except NotADirectoryError:
        raise _error(file, "it cannot be inside something that is no folder") from None
    except (OSError, ValueError) as error:
        raise _error(file, f"it cannot be read: {_reason(error)}") from None
    if stat.S_ISDIR(mode):
        inside = next((name for name in _JOB_FILES if (path / name).is_file()), None)
        hint = (
            f"did you mean {printable(str(path / inside))}?"
            if inside
            else "name the job file in it"
        )
        raise _error(file, "this is a folder, not a job file", hint)
    if not stat.S_ISREG(mode):
        raise _error(file, "this is no regular file", "write the job to a file and name that")
    if path.suffix == ".py":
        hint = "to run it without one: howdah run --framework NAME --role worker=4 -- python "
        raise _error(file, "this is a Python program, not a job file", hint + path.name)
    try:
        with path.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _error(file, f"it cannot be read: {_reason(error)}") from None


def _decoded(content: bytes, file: str) -> str:
    if len(content) > MAX_BYTES:
        raise _error(file, "larger than 1 MiB", "is it really a job file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = "it looks like UTF-16: save it as UTF-8" if utf16 else "save it as UTF-8"
        message = f"not UTF-8 text: byte 0x{content[error.start]:02x}"
        raise _error(file, message, hint, line) from None


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _sibling(path: Path) -> str | None:
    """What a missing file was probably meant to be."""
    folder = path.parent
    try:
        names = [entry.name for _, entry in zip(range(1000), os.scandir(folder), strict=False)]
    except OSError:
        return f"there is no folder {printable(str(folder))} either"
    near = closest(path.name, names)
    if near is None:
        near = next((name for name in names if Path(name).suffix in _READERS), None)
    return f"did you mean {printable(str(folder / near))}?" if near else None


def from_mapping(mapping: Mapping[str, Any], label: str | None) -> Document:
    """A document made by a program, copied so that nothing in it is shared or surprising.

    Raises:
        JobFileError: it is nested too deep, too large, or has keys that are no text.
    """
    problems = Problems(Origins(label))
    table: Table = _Copy(problems).value(mapping, ())
    problems.raise_any()
    return Document(table, problems.origins)


class _Copy:
    """Copies plain values; notes what a document cannot hold."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._values = 0

    def value(self, value: Any, path: KeyPath) -> Any:
        self._values += 1
        if self._values == MAX_VALUES:
            self._problems.add((), f"more than {MAX_VALUES:,} values")
        if self._values >= MAX_VALUES:
            return None
        if len(path) > MAX_DEPTH:
            self._problems.add((path[0],), f"nested more than {MAX_DEPTH} levels deep")
            return None
        if isinstance(value, Mapping):
            return self._table(cast("Mapping[object, object]", value), path)
        if isinstance(value, list | tuple):
            items = enumerate(cast("Sequence[object]", value))
            return [self.value(item, (*path, index)) for index, item in items]
        if isinstance(value, PurePath):
            return str(value)
        return value

    def _table(self, mapping: Mapping[object, object], path: KeyPath) -> Table:
        table: Table = {}
        for key, item in mapping.items():
            if isinstance(key, str):
                table[str(key)] = self.value(item, (*path, key))
            else:
                self._problems.add(path, f"the key {shown(key)} is not text")
        return table
