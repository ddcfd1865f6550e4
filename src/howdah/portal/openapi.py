"""The portal's API, described: the list of jobs, and each job's own operations below its address."""

from __future__ import annotations

from typing import Any

import msgspec

from howdah.client.advice import Finding
from howdah.coordinator.web import openapi
from howdah.portal.documents import JobList, SinceBefore
from howdah.portal.job_pages import ADVICE, BEFORE
from howdah.portal.query import PARAMETERS

_JOB_ID = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "description": "The whole id of the job.",
    "schema": {"type": "string"},
}


def document() -> dict[str, Any]:
    """The OpenAPI 3.1 document, as ``/api/v1/openapi.json`` of the portal answers it."""
    found = openapi.document()
    found["info"] = {
        **found["info"],
        "title": "Howdah portal API",
        "description": "All jobs, and each one. Times are seconds since the epoch. Addresses are "
        "relative to the list of jobs.",
    }
    (schema,), components = msgspec.json.schema_components(
        [JobList], ref_template="#/components/schemas/{name}"
    )
    found["components"]["schemas"] |= components
    problem = {
        "application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}},
    }
    errors = {
        "400": "A parameter is wrong.",
        "401": "The request does not prove that it is yours.",
        "421": "It was sent to a strange name.",
    }
    listed = {
        "operationId": "jobs",
        "summary": "Jobs that match, running and past.",
        "parameters": [
            {"name": name, "in": "query", "required": False, "description": text, "schema": kind}
            for name, (text, kind) in PARAMETERS.items()
        ],
        "responses": {
            "200": {"description": "Done.", "content": {"application/json": {"schema": schema}}},
            **{
                status: {"description": text, "content": problem} for status, text in errors.items()
            },
        },
    }
    own = (
        (
            ADVICE,
            "advice",
            list[Finding],
            "What the job wasted, as `howdah advice --json` prints it.",
        ),
        (
            BEFORE,
            "before",
            SinceBefore,
            "What of the job file differs from that of the run before.",
        ),
    )
    (*kinds,), components = msgspec.json.schema_components(
        [kind for _, _, kind, _ in own], ref_template="#/components/schemas/{name}"
    )
    found["components"]["schemas"] |= components
    for (path, name, _, summary), kind in zip(own, kinds):
        content = {"application/json": {"schema": kind}}
        found["paths"][path] = {
            "get": {
                "operationId": name,
                "summary": summary,
                "parameters": [],
                "responses": {
                    "200": {"description": "Done.", "content": content},
                    "404": {"description": "What is needed cannot be read.", "content": problem},
                },
            }
        }
    below = {
        f"/jobs/{{job_id}}{path}": {
            method: {**operation, "parameters": [_JOB_ID, *operation["parameters"]]}
            for method, operation in methods.items()
        }
        for path, methods in found["paths"].items()
    }
    found["paths"] = {"/api/v1/jobs": {"get": listed}, **below}
    return found
