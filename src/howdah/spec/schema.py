"""The job file described by its own structs and their docstrings: a JSON Schema, which editors complete and check
with, and what the reference page says of each key."""

from __future__ import annotations

import ast
import enum
import functools
import inspect
from typing import Any

import msgspec

from howdah.spec import model
from howdah.spec.checks import rules
from howdah.spec.values import Table, is_list, is_table

DIALECT = "https://json-schema.org/draft/2020-12/schema"

FRAMEWORKS = (
    "command",
    "tensorflow",
    "pytorch",
    "jax",
    "xgboost",
    "lightgbm",
    "dask",
    "ray",
    "horovod",
    "mpi",
    "mxnet",
)
"""Those that come with Howdah; an editor offers them, and others are not refused."""


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
    job["framework"]["anyOf"] = [{"enum": list(FRAMEWORKS)}, {"type": "string"}]
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


def _markdown(text: str) -> str:
    return text.replace("``", "`")


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
