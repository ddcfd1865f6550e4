"""Writes docs/reference/job-file.md and spec/job-file.schema.json from the structs of the job file.

Run it after a change of `howdah.spec.model`; a test compares what is committed with it.
"""

from __future__ import annotations

import ast
import enum
import functools
import inspect
import json
from pathlib import Path
from typing import Any

import msgspec
import msgspec.inspect as kinds

from howdah.backends.support import unsupported
from howdah.frameworks import registry
from howdah.spec import model
from howdah.spec.checks import hints, rules
from howdah.spec.units import MAX_TASKS
from howdah.spec.values import Table, is_list, is_table

PAGE = Path(__file__).parent / "reference" / "job-file.md"
SCHEMA = Path(model.__file__).parent / "job-file.schema.json"

DIALECT = "https://json-schema.org/draft/2020-12/schema"

INTRODUCTION = f"""\
# Job file

<!-- Written by docs/generate_job_file.py from src/howdah/spec/model.py. Change those. -->

A job file describes one distributed training job. Its ending says whether it is TOML, YAML or JSON (`.toml`, `.yaml` or
`.yml`, `.json`); a file with any other ending is read as TOML. `howdah init` writes a job file with comments for your
framework. `howdah check` lists everything that is wrong with a job file.

```toml
name = "digits"
framework = "pytorch"
command = "python train.py --epochs 5"

[env]
OMP_NUM_THREADS = "4"

[roles.worker]
instances = 4
memory = "8g"
gpus = 1

[checkpoint]
folder = "checkpoints"

[tensorboard]
```

In TOML, the job's own keys (`name`, `command`, …) come before the first `[table]`.

## Values

- **Time** is a number and a unit: `"500ms"`, `"10s"`, `"5m"`, `"2h"`, `"1d"`. `"off"` means no limit.
- **Memory** is a number and a unit, in powers of 1024: `"512m"`, `"2g"`, `"1.5t"`.
- **Instances** are a number, or a range such as `"2..8"`: the job starts with two tasks of the role and grows to eight as
  containers come. A job has at most {MAX_TASKS:,} tasks.
- **A command** is a shell command line, or a list of arguments that no shell sees.

In YAML, only `true` and `false` are switches. `off`, `no` and `12:30` are text, as in YAML 1.2. A key with nothing behind it
(`checkpoint:`) is refused, except a role's name: `checkpoint: {{}}` is the table with all its defaults. Anchors and merge keys
work. Tags, and files with more than one document, are refused.

### Substitution

You can use these in any text value:

| Written | Means |
|---|---|
| `${{env:NAME}}` | the environment variable `NAME` where you submit the job; it must be set |
| `${{env:NAME:-default}}` | the same, or `default` if the variable is not set or is empty |
| `${{job.id}}` | the job's id |
| `$${{` | a plain `${{` |

Everything else with a dollar sign is left to the shell that runs the command, such as `${{HOME}}` and `$HOWDAH_RANK`. A value
that is one variable and nothing else may stand for a number or a switch: `instances = "${{env:WORKERS}}"`. All values,
also those from the environment, are written to the job's `job.json`, which only its owner can read.

### Secrets

`[secrets]` names variables whose values are for the programs and nobody else:

```toml
command = "python train.py"
[roles.worker]
[secrets]
HF_TOKEN = "${{env:HF_TOKEN}}"           # a variable where you submit the job
DB_PASSWORD = "${{file:~/.db-password}}" # a file's text without its last line break
```

`secrets = ["HF_TOKEN", "WANDB_API_KEY"]`, above all tables, takes variables of the same names. Howdah reads the values when
you submit and keeps them in the job directory's `secrets` folder, which only you can read. `job.json`, the job page, dry
runs, comparisons and Howdah's own logs have the references only. A value written into the job file is refused.
`howdah rerun` reads the values again; for one that is not there any more, it takes the earlier job's. What a program
prints is not searched for them. Values of `[env]` are shown to you; other people who may look at the job see the names only.

### On the command line

`--set roles.worker.instances=4` overrides a value of the file. You can use `--set` any number of times. A value that is
TOML (`4`, `true`, `["ps"]`, `{{instances = 2}}`) is read as TOML; any other value is text. Put a name with dots into
quotes: `--set 'roles.worker.resources."yarn.io/fpga"=1'`.

`howdah run --framework pytorch --role worker=4 -- python train.py` needs no file at all.

## The site file

A site file has the defaults for every job of a site. `HOWDAH_SITE` names the file (empty for none). Otherwise it is
`/etc/howdah/site.toml` or, if that does not exist, `~/.config/howdah/site.toml`. It has the keys below, without `name`,
`framework`, `command`, `source`, `roles` and `preprocess`. A job's own value overrides the site's. `[environment]` is
overridden as a whole.

Only a site file can have `[limits]`, and they hold for every job. They protect honest users from mistakes. If a limit must
hold against everyone, let the cluster's queues enforce it.

```toml
store = "hdfs:///user/shared/howdah"

[network]
interface = "eth1"

[limits]
max-instances = 64
max-gpus = 16
```

## In your editor

Editors complete, explain and check the keys of a job file by its JSON Schema. `howdah schema` prints the one of the
Howdah that you have; write it beside your job files:

```text
howdah schema > job-file.schema.json
```

VS Code needs the extension *Even Better TOML* for that, and *YAML* (Red Hat) for job files in YAML; other editors do it
by the language servers that these use, Taplo and yaml-language-server. The first line of a job file names the schema.
`howdah init` writes that line:

```toml
#:schema ./job-file.schema.json
```

In a YAML file:

```yaml
# yaml-language-server: $schema=./job-file.schema.json
```

## Keys
"""


def page() -> str:
    """The whole reference page."""
    parts = [INTRODUCTION]
    parts += [_section(table, kind) for table, kind in tables()]
    parts.append(_unsupported())
    return "\n".join(parts)


def _unsupported() -> str:
    rows = [
        "## What a backend does not honour\n",
        "This table lists the keys that a backend does not honour. A key is refused, with its line, if "
        "the job's programs would not run as the file says. It is noted if they run all the same. "
        "`howdah check --backend NAME`, `howdah run` and `howdah submit` say so before anything "
        "starts. Keys such as `queue` in a site file are not noted. yarn honours all keys.\n",
        "| Key | Backend | | Why |",
        "|---|---|---|---|",
    ]
    for backend, keys in unsupported().items():
        for rule in keys:
            key = rule.key.replace("*", "NAME")
            verdict = "refused" if rule.refused else "noted"
            why = f"{rule.why}; {rule.hint}" if rule.hint else rule.why
            rows.append(f"| `{key}` | {backend} | {verdict} | {why} |")
    return "\n".join(rows) + "\n"


def schema() -> str:
    """The schema file's text."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def json_schema() -> Table:
    """The schema of a job file, every table and key described."""
    schema = _tidy(msgspec.json.schema(model.Job))
    definitions: Table = schema["$defs"]
    for name, definition in definitions.items():
        kind = getattr(model, name)
        definition["description"] = _markdown(description(kind))
        if not issubclass(kind, enum.Enum):
            _describe_fields(definition, kind)
    job: Table = definitions["Job"]["properties"]
    job["name"]["pattern"] = f"^{rules.JOB_NAME}$"
    del job["framework"]["type"]
    job["framework"]["anyOf"] = [{"enum": list(registry.BUILT_IN)}, {"type": "string"}]
    job["roles"]["propertyNames"] = {"pattern": f"^{rules.ROLE_NAME}$"}
    for name in ("Job", "Role", "Preprocess"):
        env: Table = definitions[name]["properties"]["env"]
        env["propertyNames"] = {"pattern": f"^{rules.VARIABLE_NAME}$"}
    return {
        "$schema": DIALECT,
        "title": "Howdah job file",
        "$ref": schema["$ref"],
        "$defs": definitions,
    }


def _describe_fields(definition: Table, kind: type[msgspec.Struct]) -> None:
    properties: Table = definition["properties"]
    described = field_descriptions().get(kind.__name__, {})
    for name, key in zip(kind.__struct_fields__, kind.__struct_encode_fields__):
        if name in described:
            properties[key]["description"] = _markdown(described[name])


def _tidy(value: Any) -> Any:
    """Without what msgspec adds that tells an editor nothing."""
    if is_table(value):
        return {
            key: _tidy(item)
            for key, item in value.items()
            if not (key == "default" and (item is None or is_table(item)))
            and not (key == "required" and not item)
        }
    if is_list(value):
        return [_tidy(item) for item in value]
    return value


@functools.cache
def field_descriptions() -> dict[str, dict[str, str]]:
    """The docstring of every field, by struct and Python name.

    Empty where Python has only byte code and no source: descriptions are a courtesy.
    """
    try:
        source = inspect.getsource(model)
    except OSError:
        return {}
    found: dict[str, dict[str, str]] = {}
    for struct in ast.parse(source).body:
        if isinstance(struct, ast.ClassDef):
            found[struct.name] = _fields_of(struct)
    return found


def _fields_of(struct: ast.ClassDef) -> dict[str, str]:
    """A docstring is the text that stands alone after a field."""
    described: dict[str, str] = {}
    for field, after in zip(struct.body, struct.body[1:]):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
        ):
            described[field.target.id] = " ".join(after.value.value.split())
    return described


def description(kind: type) -> str:
    """The docstring of a struct, in one line."""
    return " ".join((kind.__doc__ or "").split())


def tables() -> list[tuple[str, type[msgspec.Struct]]]:
    """Every table of the job file by its place, in the order a reader meets them."""
    found: list[tuple[str, type[msgspec.Struct]]] = []

    def visit(kind: kinds.Type, place: str) -> None:
        kind = hints.bare(kind)
        if isinstance(kind, kinds.UnionType):
            for option in kind.types:
                visit(option, place)
        elif isinstance(kind, kinds.DictType) and isinstance(kind.value_type, kinds.StructType):
            visit(kind.value_type, f"{place}.NAME")
        elif isinstance(kind, kinds.StructType):
            found.append((place, kind.cls))
            for field in kind.fields:
                visit(field.type, f"{place}.{field.encode_name}" if place else field.encode_name)

    visit(kinds.type_info(model.Job), "")
    return found


def _section(table: str, kind: type[msgspec.Struct]) -> str:
    title = f"`[{table}]`" if table else "The job"
    rows = [f"### {title}\n", _markdown(description(kind)) + "\n"]
    rows += ["| Key | Value | Default | Meaning |", "|---|---|---|---|"]
    described = field_descriptions()[kind.__name__]
    info = kinds.type_info(kind)
    assert isinstance(info, kinds.StructType)
    for field in info.fields:
        place = f"{table}.{field.encode_name}" if table else field.encode_name
        default = "required" if field.required else _default(field)
        if place == "name":
            default = ""  # The struct's is for programs; a file's own name comes before it.
        meaning = _markdown(described[field.name])
        row = (f"`{field.encode_name}`", _value(field.type, place), default, meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(rows) + "\n"


def _value(kind: kinds.Type, place: str) -> str:
    choices: list[str] | None = None
    while isinstance(kind, kinds.Metadata):
        choices = (kind.extra_json_schema or {}).get("enum", choices)
        kind = kind.type
    match kind:
        case _ if choices:
            return " or ".join(f'`"{choice}"`' for choice in choices)
        case kinds.UnionType():
            options = [o for o in kind.types if not isinstance(o, kinds.NoneType)]
            if any(getattr(hints.bare(o), "pattern", None) == model.COUNT_PATTERN for o in options):
                return "number or range"
            if any(isinstance(hints.bare(o), kinds.ListType) for o in options):
                return "command"
            return " or ".join(_value(option, place) for option in options)
        case kinds.StructType():
            return f"table [`[{place}]`](#{place.replace('.', '').lower()})"
        case kinds.DictType() if isinstance(kind.value_type, kinds.StructType):
            below = f"{place}.NAME"
            return f"tables [`[{below}]`](#{below.replace('.', '').lower()})"
        case kinds.DictType() if isinstance(hints.bare(kind.value_type), kinds.DictType):
            return "tables with text"
        case kinds.DictType():
            text = isinstance(hints.bare(kind.value_type), kinds.StrType)
            return "names with text" if text else "names with numbers"
        case kinds.ListType() | kinds.VarTupleType():
            return "list of text"
        case kinds.EnumType():
            return ", ".join(f'`"{member.value}"`' for member in kind.cls)
        case kinds.StrType(pattern=model.DURATION_PATTERN):
            return "time"
        case kinds.StrType(pattern=model.MEMORY_PATTERN):
            return "memory"
        case kinds.StrType():
            return "text"
        case kinds.IntType(ge=least):
            return "number" if not least else f"number, at least {least}"
        case kinds.BoolType():
            return "`true` or `false`"
        case _:
            raise NotImplementedError(str(kind))


def _default(field: kinds.Field) -> str:
    if field.default is kinds.NODEFAULT and field.default_factory is not kinds.NODEFAULT:
        return ""
    value = msgspec.to_builtins(field.default)
    if value in (None, {}, [], ()) or isinstance(value, dict):
        return ""
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def _markdown(text: str) -> str:
    return text.replace("``", "`")


def main() -> None:
    """Write both files."""
    PAGE.write_text(page(), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")


if __name__ == "__main__":
    main()
