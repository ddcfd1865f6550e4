"""Writes docs/reference/cli.md from the commands themselves.

Run it after a change below `howdah.cli` or of `howdah.client.following.items`; a test compares what is
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
from howdah.client.errors import ExitCode
from howdah.client.following import items

PAGE = Path(__file__).parent / "reference" / "cli.md"

INTRODUCTION = """\
# Command line

<!-- Written by docs/generate_cli.py from src/howdah/cli. Change those. -->

This page has the output of `howdah COMMAND --help` for every command.

You name a job by its id, by its name, or by enough of the beginning of either. `@last` is the newest job. `attach`,
`exec` and the commands that only read take the newest job if you give no id. Jobs of the whole name come before those
whose names only begin so. If several jobs match, the command takes the one that still runs. If none of them runs, a whole
name stands for its newest job, and a beginning is refused.

Howdah looks for job directories in `$HOWDAH_HOME/jobs` or, without that variable, in `~/.howdah/jobs`. `--store` names
another place. If that is an `hdfs://` URL, names and beginnings of ids mean your jobs there, whichever machine submitted
them, and a command is refused if it can't read one that you may mean. `NO_COLOR` switches colours off and `FORCE_COLOR`
switches them on, whatever the output is.

What a job's tasks print goes to standard output, and so does the result of a command (a summary, a table, JSON).
Howdah's own messages and errors go to standard error.
"""

EXITS = """\
## Exit codes

| Code | Name | Meaning |
|---|---|---|
"""

JSON = """\
## JSON

With `--json`, a command prints one JSON document. Commands whose output comes over time (`run`, `attach`, `rerun`,
`logs`, `events`) print one JSON object per line. The help of each command says which. Later releases only add fields, so
ignore fields that you do not know. Times are seconds since the epoch.

The [HTTP API](http-api.md) describes **the status document**. `status` and `stop` print it, `list` prints a list of
them, and `run` prints it within other objects. The status document of a finished job is also in its `final.json`.

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
        items.StatusItem,
        items.WaitingItem,
        items.NoteItem,
        items.SummaryItem,
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
    names: dict[Any, str] = {
        str: "text",
        int: "number",
        float: "number",
        tuple[str, ...]: "list of text",
    }
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
