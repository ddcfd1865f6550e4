"""A JSON Schema of the job file, from the structs: editors complete and check with it."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from howdah.spec import describe, model, rules
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
        definition["description"] = _markdown(describe.struct(kind))
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
    described = describe.fields().get(kind.__name__, {})
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
