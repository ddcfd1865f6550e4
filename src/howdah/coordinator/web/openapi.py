"""The API's description, made from the table the routes are made from."""

from __future__ import annotations

import re
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


# -- the reference page --------------------------------------------------------------------------


def operations(paths: dict[str, dict[str, Any]]) -> list[str]:
    """Lines about these operations of a document, for people."""
    lines: list[str] = []
    for path, methods in paths.items():
        for method, operation in methods.items():
            lines += [f"### `{method.upper()} {path.lstrip('/')}`", "", operation["summary"], ""]
            if operation["parameters"]:
                lines += ["| Parameter | | |", "|---|---|---|"]
                lines += [
                    f"| `{p['name']}` | {p['in']}, {_type(p['schema'])} | {p['description']} |"
                    for p in operation["parameters"]
                ]
                lines.append("")
            body = operation.get("requestBody")
            if body:
                schema = body["content"]["application/json"]["schema"]
                lines += [f"Body (may be left out): {_type(schema)}.", ""]
            for status, answer in operation["responses"].items():
                if status in ("401", "403", "421"):
                    continue
                ((media, content),) = answer["content"].items()
                if status < "300":
                    kind = _type(content["schema"]) if "json" in media else f"`{media}`"
                    lines.append(f"* {status}: {kind}")
                else:
                    lines.append(f"* {status}: {answer['description']}")
            lines.append("")
    return lines


def documents(schemas: dict[str, Any]) -> list[str]:
    """Lines about these schemas, for people."""
    lines: list[str] = []
    for name, schema in sorted(schemas.items()):
        lines += [f"(http-api-{name.lower()})=", f"### {name}", ""]
        if "description" in schema:
            lines += [_plain(schema["description"]), ""]
        if "enum" in schema:
            lines += ["One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".", ""]
        if schema.get("properties"):
            required = set(schema.get("required", ()))
            lines += ["| Field | Type | |", "|---|---|---|"]
            lines += [
                f"| `{field}` | {_type(kind)} | "
                f"{'always' if field in required else _default(kind)} |"
                for field, kind in schema["properties"].items()
            ]
            lines.append("")
    return lines


INTRODUCTION = """
# HTTP API

<!-- Generated by `python -m howdah.portal.openapi`; do not edit. -->

The coordinator of a running job serves its page, this API, `metrics` (in Prometheus' text format) and the
web pages of its tasks (`proxy/<task>/`) on one port. `howdah status` prints the address. All addresses
below are relative to the job page, which works under any prefix. `api/v1/openapi.json` describes the same
API for programs. [The portal](#http-api-portal) has an API of its own.

**Authentication.** Every request has to prove that it knows the job's token, in one of two ways. A program
sends `Authorization: Bearer <token>`; the token is the content of `secrets/token` in the job directory,
which only the job's owner can read. A browser sends the session cookie that it gets from a one-time link
(`login?ticket=…`). `howdah status` makes such a link; it works once, within ten minutes. With
`&to=proxy/<task>/` it leads to that task's page. With the cookie, only the job's own page may change
something or open a stream (`Origin` and `Sec-Fetch-Site` are checked). Every request must name localhost,
an address, or a host name that the job is known by.

**Errors** have a status of 400 or more and an `ErrorAnswer`: 401 if the proof is missing, 403 for a request
from another site, 413 for a body over 64 KiB, 421 for an unknown host name, and those named below.

**Following a job.** Ask `stream`, or ask `changes` again and again. Say what you have: `since` is the
`version` of the last `StatusPatch`, `after` is the `seq` of the last record, and `offset` is where your log
ends. Apply each `StatusPatch` to the document that you have. Where the status document has `progress_s`, an
age, the tasks of a patch have `progress_at`, a point in time.

**Not guaranteed:**

- You may not see every intermediate state: several changes may come as one.
- If a log grows too fast, parts are not streamed. `skipped` says how much; `logs` can read them.
- Later releases may add fields and values.

**Not protected.** The port speaks HTTP, not HTTPS. Anyone who can read the network between the browser and
the coordinator can read the session; if that matters, forward the port through SSH. Browsers tell hosts
apart, not ports, when they send cookies. If you open a page of another user's program on the *same host
name* in the same browser, it gets the session too, so do not open strangers' pages there. Links to your own
machine have a host name for each job (`<job id>.localhost`). A task's own web page shares the job page's
origin, so its scripts may do whatever you may do there; it is the job's own program.

Give a program the token in a file. Never put it into an argument, which every user of the machine can read:

    (umask 077; printf 'Authorization: Bearer %s' "$(cat JOB_DIRECTORY/secrets/token)" > header)
    curl -H @header http://127.0.0.1:PORT/api/v1/job
"""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#http-api-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(each) for each in schema["anyOf"])
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return "array of " + ", ".join(_type(each) for each in schema["prefixItems"])
        return "array of " + _type(schema.get("items", {}))
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "object of " + _type(schema["additionalProperties"])
    return "null" if kind == "null" else str(kind or "anything")


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "may be absent"
    default = schema["default"]
    return f"`{msgspec.json.encode(default).decode()}` unless set"


def _plain(text: str) -> str:
    """A docstring as one paragraph each, without Sphinx's marks."""
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))
