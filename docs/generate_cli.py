"""Writes docs/reference/cli.md from the commands themselves.

Run it after a change below `howdah.cli` or of `howdah.client.items`; a test compares what is
committed with it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from howdah.cli.main import COMMANDS, GROUPS, cli
from howdah.client import items
from howdah.client.exits import ExitCode

PAGE = Path(__file__).parent / "reference" / "cli.md"

INTRODUCTION = """\
# Command line

<!-- Written by docs/generate_cli.py from src/howdah/cli. Change those. -->

`howdah COMMAND --help` prints what is below. A job is named by its id, by its name, or by enough
of the id's beginning; `@last` is the newest job, and `attach`, `exec` and the commands that only read take it
when no id is given. Where several jobs answer, the one that still runs is meant; if none runs, a whole
name stands for its newest job, and a beginning is refused.

Job directories are looked for in `$HOWDAH_HOME/jobs`, else in `~/.howdah/jobs`; `--store` names
another place. `NO_COLOR` turns colours off, `FORCE_COLOR` on, whatever the output is.

What a job's tasks print goes to standard output, and so does what a command was asked for (a
summary, a table, JSON). What Howdah has to say meanwhile, and errors, go to standard error.
"""

EXITS = """\
## Exit codes

| Code | Name | Meaning |
|---|---|---|
"""

JSON = """\
## JSON

With `--json` a command prints one JSON document, or one JSON object a line where output comes over
time (`run`, `attach`, `rerun`, `logs`, `events`); its help says which. Fields are only ever added,
and what is unknown should be ignored. Times are seconds since the epoch.

**The status document** (`status`, `stop`, the elements of `list`, and inside `run`) is described in
[HTTP API](http-api.md); a finished job's is also its `final.json`.

**Lines** have a `type`:

"""


def page() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for heading, commands in GROUPS.items():
        parts.append(f"## {heading}\n")
        parts += [_command(name) for name in commands]
    parts.append(EXITS + "".join(_exit_rows()))
    parts.append(JSON + "\n".join(_lines()))
    return "\n".join(parts)


def _command(name: str) -> str:
    context = click.Context(cli, info_name="howdah", terminal_width=92, **cli.context_settings)
    command = cli.get_command(context, name)
    assert command is not None
    own = click.Context(command, parent=context, info_name=name, **command.context_settings)
    text = command.get_help(own).strip()
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        below = click.Context(inner, parent=own, info_name=inner.name, **inner.context_settings)
        text += "\n\n" + inner.get_help(below).strip()
    return f"### howdah {name}\n\n{COMMANDS[name]}\n\n```text\n{text}\n```\n"


def _exit_rows() -> Iterator[str]:
    for code, meaning in _documented(ExitCode).items():
        member = ExitCode[code]
        name = member.name.lower().replace("_", " ")
        yield f"| {member.value} | {name} | {meaning} |\n"


def _lines() -> Iterator[str]:
    for item in (
        items.Submitted,
        items.Page,
        items.LogLine,
        items.JobEvent,
        items.Status,
        items.Waiting,
        items.Note,
        items.Summary,
    ):
        tag = item.__struct_config__.tag
        yield f"- `{tag}`: {_first(item)}"
        meanings = _documented(item)
        for field in msgspec.structs.fields(item):
            meaning = meanings.get(field.name, "")
            kind = _kind(field.type)
            yield f"    - `{field.name}` ({kind})" + (f": {meaning}" if meaning else "")
    yield ""


def _first(item: type) -> str:
    return " ".join((inspect.getdoc(item) or "").split())


def _kind(type_: Any) -> str:
    names = {str: "text", int: "number", float: "number"}
    text = str(type_)
    if type_ in names:
        return names[type_]
    if text.endswith("| None"):
        inner = next(kind for kind in names if kind.__name__ in text)
        return f"{names[inner]} or null"
    return "status document" if "JobView" in text else "object"


def _documented(owner: type) -> dict[str, str]:
    """Names of a class's attributes and the texts below them."""
    import ast
    import textwrap

    tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    body = tree.body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for before, node in zip(body.body, body.body[1:], strict=False):
        named = isinstance(before, (ast.Assign, ast.AnnAssign))
        if named and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            target = before.targets[0] if isinstance(before, ast.Assign) else before.target
            assert isinstance(target, ast.Name)
            text = " ".join(str(node.value.value).split())
            found[target.id] = text.replace("``", "`")
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
