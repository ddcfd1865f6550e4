"""The API's description, made from the table the routes are made from."""

from __future__ import annotations

from typing import Any

import msgspec

from howdah.coordinator.web.api import OPERATIONS, ROOT, Operation, Parameter
from howdah.coordinator.web.documents import (
    ErrorAnswer,
    LogChange,
    RecordLine,
    Span,
    StatusPatch,
)
from howdah.version import __version__

_REF = "#/components/schemas/{name}"
_STREAMED = (StatusPatch, RecordLine, LogChange, Span, ErrorAnswer)
"""Types that stand in no answer's type but are spoken of."""


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document, as ``/api/v1/openapi.json`` answers it."""
    types = [answer for op in OPERATIONS for answer in op.answers]
    types += [op.takes for op in OPERATIONS if op.takes is not None]
    types += _STREAMED
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        path = paths.setdefault(ROOT + operation.path, {})
        path[operation.method.lower()] = _described(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Howdah job API",
            "version": __version__,
            "description": (
                "One job, served by its own coordinator. Times are seconds since the epoch. "
                "Addresses are relative to the job page."
            ),
        },
        "security": [{"token": []}, {"session": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The content of `secrets/token` in the job directory.",
                },
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "howdah-<job id>",
                    "description": "Set by a one-time link, `/login?ticket=…`.",
                },
            },
        },
    }


def _described(operation: Operation, by_type: dict[str, Any]) -> dict[str, Any]:
    answers = [by_type[repr(answer)] for answer in operation.answers] or [{"type": "string"}]
    schema = answers[0] if len(answers) == 1 else {"anyOf": answers}
    content = {operation.media: {"schema": schema}}
    problem = {"application/json": {"schema": {"$ref": _REF.format(name="ErrorAnswer")}}}
    errors = {
        401: "The request does not prove the job's token.",
        403: "It comes from another site.",
        421: "It was sent to a name that is not the job's.",
        **({400: "A parameter or the body is wrong."} if operation.parameters else {}),
        **operation.errors,
    }
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [_parameter(parameter) for parameter in operation.parameters],
        "responses": {
            "202" if operation.name == "stop" else "200": {
                "description": "Done.",
                "content": content,
            },
            **{
                str(status): {"description": text, "content": problem}
                for status, text in sorted(errors.items())
            },
        },
    }
    if operation.takes is not None:
        described["requestBody"] = {
            "required": False,
            "content": {"application/json": {"schema": by_type[repr(operation.takes)]}},
        }
    return described


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.type}
    if parameter.many:
        schema = {"type": "array", "items": schema}
    return {
        "name": parameter.name,
        "in": parameter.place.value,
        "required": parameter.place.value == "path",
        "description": parameter.text,
        "schema": schema,
    }
