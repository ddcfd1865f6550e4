"""``--set roles.worker.instances=4``: values from the command line put over a document."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from howdah.spec.problems import KeyPath, Problems, ValueOrigin, closest, dotted, shown
from howdah.spec.readers.document import Document
from howdah.spec.readers.reading import MAX_DEPTH, Unreadable
from howdah.spec.readers.toml_reader import read as read_toml
from howdah.spec.values import Table, is_list, is_table

OPTION = "--set"

_PART = re.compile(r"""\s*([A-Za-z0-9_-]+|"[^"]*"|'[^']*')\s*""")


class Loose(str):
    """Text from where types cannot be written: it is a number or a switch if one is wanted."""

    def plain(self) -> Any:
        """The number or switch it stands for, or the text itself."""
        value = _toml_value(self)
        return value if isinstance(value, bool | int | float) else str(self)


def apply(document: Document, overrides: Iterable[str], problems: Problems) -> None:
    """Put each ``key=value`` over the document; what is wrong with one goes to ``problems``.

    A value is read as TOML where it is TOML (``4``, ``true``, ``["ps"]``, ``{instances = 2}``),
    and is text otherwise, so that nothing needs quotes twice.
    """
    origin = ValueOrigin(OPTION)
    for override in overrides:
        key, equals, text = override.partition("=")
        path = parse_key(key)
        if not equals or path is None or len(path) > MAX_DEPTH:
            hint = "write key=value, such as roles.worker.instances=4"
            problems.add((), f"{shown(override)} is no setting", hint, origin=origin)
            continue
        if (unknown := _unknown_role(document.table, path)) is not None:
            problems.add(path[:2], *unknown, origin=origin)
            continue
        table, blocked = _table_at(document, path[:-1], origin)
        if table is None:
            message = f"cannot be set, for {dotted(blocked)} is not a table"
            problems.add(path, message, origin=origin)
            continue
        try:
            table[path[-1]] = parse_value(text)
        except Unreadable as error:
            problems.add(path, f"the value has {error.message}", origin=origin)
            continue
        document.origins.put(path, origin)


def parse_key(text: str) -> tuple[str, ...] | None:
    """The parts of a dotted key, quoted parts without their quotes; None if it is no key."""
    keys: list[str] = []
    at = 0
    while (part := _PART.match(text, at)) is not None:
        keys.append(part[1][1:-1] if part[1][0] in "\"'" else part[1])
        at = part.end()
        if at == len(text):
            return tuple(keys)
        if text[at] != ".":
            return None
        at += 1
    return None


def parse_value(text: str) -> Any:
    """The value of ``key=text``.

    Raises:
        Unreadable: a list or table past the bounds of a job file.
    """
    value = _toml_value(text)
    if isinstance(value, str) or is_list(value) or is_table(value):
        return value
    return Loose(text)


def _toml_value(text: str) -> Any:
    """The TOML value the text is; the text itself if it is none."""
    if "\n" in text.strip():
        return text
    try:
        table, _ = read_toml(f"value = {text}")
    except Unreadable as error:
        if text.strip()[:1] in ("[", "{") and not error.message.startswith("not TOML"):
            raise
        return text
    return table["value"] if len(table) == 1 else text


def _unknown_role(document: Table, path: tuple[str, ...]) -> tuple[str, str] | None:
    """A slip of the keyboard should not make a role: message and hint, or None if it is none."""
    roles = document.get("roles")
    if path[0] != "roles" or len(path) < 3 or not is_table(roles) or not roles:
        return None
    if path[1] in roles:
        return None
    near = closest(path[1], roles)
    add = f"--set '{dotted(path[:2])}={{}}' first adds one"
    hint = f"did you mean {shown(near)}? {add}" if near else add
    return f"there is no role {shown(path[1])}", hint


def _table_at(
    document: Document, path: tuple[str, ...], origin: ValueOrigin
) -> tuple[Table | None, KeyPath]:
    """The table at a path, made where nothing is; or None and what stands in the way."""
    table = document.table
    for length, key in enumerate(path, start=1):
        if table.get(key) is None:
            table[key] = {}
            document.origins.put(path[:length], origin)
        below = table[key]
        if not is_table(below):
            return None, path[:length]
        table = below
    return table, path
