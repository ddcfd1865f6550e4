"""A converted job as a commented job file in TOML: where every value came from, what was left out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from howdah.compat.tony.conversion import About, Conversion
from howdah.compat.tony.settings import Settings
from howdah.compat.tony.table import row_of
from howdah.spec.values import Table, is_list, is_table

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ARROW = " -> "


def job_file(made: Conversion, settings: Settings, source: str) -> str:
    """The text of a job file. ``source`` names what it was made of."""
    lines = [
        f"# Made of {source} by 'howdah init --from-tony'.",
        "# 'howdah check' says what is wrong with it, 'howdah run' runs it.",
        "",
        *_table(made.document, (), _origins(settings, made.document)),
    ]
    left_out = [note for note in made.notes if note.about is not About.CHANGED]
    if left_out:
        lines += ["", "# Left out:"]
        lines += [f"# {note.key}: {_one_line(note.text)}" for note in left_out]
    return "\n".join(lines) + "\n"


def moved(document: Table, here: str, folder: str) -> Table:
    """The document with its paths relative to ``folder`` instead of to ``here``."""

    def path(text: str) -> str:
        if not text or "://" in text:
            return text
        whole = os.path.join(here, text)
        return text if whole == text else os.path.relpath(whole, folder)

    def entry(text: str) -> str:
        place, arrow, name = text.partition(_ARROW)
        return path(place) + arrow + name

    made = dict(document)
    made["source"] = path(made["source"])
    if "files" in made:
        made["files"] = [entry(item) for item in made["files"]]
    made["roles"] = {
        name: role | {"files": [entry(item) for item in role["files"]]} if "files" in role else role
        for name, role in made["roles"].items()
    }
    if "conf" in made.get("hadoop", {}):
        made["hadoop"] = made["hadoop"] | {"conf": os.path.join(here, made["hadoop"]["conf"])}
    return made


def _table(table: Table, path: tuple[str, ...], origins: dict[str, str]) -> Iterator[str]:
    """A table's own values, then the tables in it, each with its header."""
    for key, value in table.items():
        if is_table(value):
            continue
        line = f"{_key(key)} = {_value(value)}"
        origin = origins.get(".".join([*path, key]))
        yield f"{line}  # {origin}" if origin else line
    for key, value in table.items():
        if not is_table(value):
            continue
        below = (*path, key)
        if not value or any(not is_table(item) for item in value.values()):
            origin = origins.get(".".join(below))
            yield ""
            yield f"[{'.'.join(map(_key, below))}]" + (f"  # {origin}" if origin else "")
        yield from _table(value, below, origins)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if is_list(value):
        return f"[{', '.join(_value(item) for item in value)}]"
    return str(value)


def _text(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _origins(settings: Settings, document: Table) -> dict[str, str]:
    """Which of the keys that are set each place of the document came from."""
    found: dict[str, list[str]] = {}
    for key in settings:
        match = row_of(key)
        if match is None:
            continue
        row, names = match
        for place in _places(row.to):
            for role in [names["type"]] if "type" in names else document.get("roles", {}):
                at = place.replace("<type>", role)
                if key not in found.setdefault(at, []):
                    found[at].append(key)
    return {place: ", ".join(keys) for place, keys in found.items()}


def _places(to: str) -> list[str]:
    return [part.partition(" = ")[0] for part in to.split(", ")]
