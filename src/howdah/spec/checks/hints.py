"""What to say to someone who wrote the wrong kind of value, or a key in the wrong place."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import cast

import msgspec
import msgspec.inspect as kinds

from howdah.spec import units
from howdah.spec.model import COUNT_PATTERN, DURATION_PATTERN, MEMORY_PATTERN, Job
from howdah.spec.problems import KeyPath, dotted, one_of, shown

OTHER_WORDS = {
    "cpu": "cores",
    "cpus": "cores",
    "vcores": "cores",
    "num-cpus": "cores",
    "num-gpus": "gpus",
    "mem": "memory",
    "ram": "memory",
    "replicas": "instances",
    "count": "instances",
    "num": "instances",
    "number": "instances",
    "workers": "instances",
    "size": "instances",
    "nproc": "processes",
    "nproc-per-node": "processes",
    "depends-on": "after",
    "requires": "after",
    "cmd": "command",
    "run": "command",
    "script": "command",
    "entrypoint": "command",
    "args": "command",
    "environment-variables": "env",
    "variables": "env",
    "src": "source",
    "src-dir": "source",
    "workdir": "source",
    "working-dir": "source",
    "retries": "attempts",
    "max-restarts": "attempts",
    "timeout": "timeouts",
    "role": "roles",
    "tasks": "roles",
    "node-label": "label",
    "checkpoints": "checkpoint",
    "type": "framework",
}
"""What other tools call it."""


class Quantity(msgspec.Struct, frozen=True):
    """Text that stands for a number."""

    words: str
    example: str
    read: Callable[[str], object]
    """Raises `ValueError` in a user's words."""
    likely: Callable[[object], str | None]
    """What was probably meant by something that is none."""


def _unguessable(value: object) -> str | None:
    return None


QUANTITIES = {
    DURATION_PATTERN: Quantity(
        "a time",
        'a number with ms, s, m, h or d, such as "10s"',
        units.seconds,
        units.likely_duration,
    ),
    MEMORY_PATTERN: Quantity(
        "an amount of memory",
        'a number with k, m, g or t, such as "2g"',
        units.octets,
        units.likely_memory,
    ),
    COUNT_PATTERN: Quantity(
        'a number of tasks or a range such as "2..8"',
        'a number such as 4, or a range "2..8"',
        units.instance_range,
        _unguessable,
    ),
}
"""By the pattern of their type."""


def bare(kind: kinds.Type) -> kinds.Type:
    """The kind without its descriptions."""
    while isinstance(kind, kinds.Metadata):
        kind = kind.type
    return kind


def choices(kind: kinds.Type) -> list[str] | None:
    """The only texts that may be written, where the type names them."""
    while isinstance(kind, kinds.Metadata):
        schema = cast("dict[str, list[str]]", kind.extra_json_schema or {})  # pyright: ignore
        if "enum" in schema:
            return schema["enum"]
        kind = kind.type
    return None


def in_words(kind: kinds.Type) -> str:
    """What may be written, as a noun."""
    if (only := choices(kind)) is not None:
        return one_of(shown(choice) for choice in only)
    kind = bare(kind)
    match kind:
        case kinds.StrType():
            quantity = QUANTITIES.get(kind.pattern or "")
            return quantity.words if quantity else "text"
        case kinds.IntType():
            return "a number"
        case kinds.BoolType():
            return "true or false"
        case kinds.ListType() | kinds.VarTupleType():
            return 'a list such as ["a", "b"]'
        case kinds.EnumType():
            return one_of(shown(member.value) for member in kind.cls)
        case kinds.UnionType():
            options = [o for o in kind.types if not isinstance(o, kinds.NoneType)]
            # A count is a number in one of its forms: said once is enough.
            if any(getattr(bare(o), "pattern", None) == COUNT_PATTERN for o in options):
                return QUANTITIES[COUNT_PATTERN].words
            return one_of(in_words(option) for option in options)
        case _:
            return "a table"


def needed(kind: kinds.Type) -> str:
    """For a key without a value."""
    defaults = " ({} has all its defaults)" if in_words(kind) == "a table" else ""
    return f"write {in_words(kind)}{defaults}, or leave the key out"


def quoted(value: object) -> str | None:
    """For something that should be text."""
    if isinstance(value, bool):
        return f'write "{str(value).lower()}"'
    text = shown(value)
    return f'write "{text}"' if isinstance(value, int | float) and len(text) < 40 else None


def unquoted(value: object) -> str | None:
    """For something that should be a whole number."""
    if isinstance(value, str) and value.strip().isdecimal():
        return f"write {value.strip()[:20]} without quotes"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"write {value:.0f}"
    return None


def switch(value: object) -> str | None:
    """For something that should be true or false."""
    word = str(value).lower() if isinstance(value, str | int) else ""
    if word in ("yes", "on", "1", "true"):
        return "write true"
    return "write false" if word in ("no", "off", "0", "false") else None


def too_few(path: KeyPath, value: int) -> str | None:
    """For a number below the least."""
    if path[-1:] == ("instances",):
        return "a role has at least one task: leave the role out to have none"
    if value < 0:
        return "leave the key out for no limit" if "limits" in path else None
    return None


def table(value: object, kind: kinds.StructType, path: KeyPath) -> str:
    """For something that should be a table of known keys."""
    is_role = path[:1] == ("roles",) and len(path) == 2
    if is_role and isinstance(value, int | str) and not isinstance(value, bool):
        return f"write {dotted(path)}.instances = {shown(value)}"
    return f"its keys are {', '.join(field.encode_name for field in kind.fields)}"


def mapping(path: KeyPath) -> str:
    """For something that should be a table of names the user chooses."""
    if path == ("roles",):
        return "write each role as a table under its name, such as roles.worker"
    if path[-1:] == ("env",):
        return 'write env = { NAME = "value" }'
    return "write { name = 1 }"


def table_name(path: KeyPath) -> str:
    """The table as the reference calls it: ``roles.NAME.timeouts``."""
    parts = [str(part) for part in path]
    if parts[:1] == ["roles"] and len(parts) > 1:
        parts[1] = "NAME"
    return ".".join(parts)


@functools.cache
def tables_with() -> dict[str, tuple[str, ...]]:
    """Every key of the job file, and the tables it may be in ("" is the top)."""
    found: dict[str, list[str]] = {}

    def visit(kind: kinds.Type, name: str) -> None:
        kind = bare(kind)
        if isinstance(kind, kinds.UnionType):
            for option in kind.types:
                visit(option, name)
        elif isinstance(kind, kinds.DictType) and isinstance(kind.value_type, kinds.StructType):
            visit(kind.value_type, f"{name}.NAME")
        elif isinstance(kind, kinds.StructType):
            for field in kind.fields:
                found.setdefault(field.encode_name, []).append(name)
                visit(field.type, f"{name}.{field.encode_name}" if name else field.encode_name)

    visit(kinds.type_info(Job), "")
    return {
        key: tuple(sorted((name for name in names if name != "limits"), key=len))
        for key, names in found.items()
    }
