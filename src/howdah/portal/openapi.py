"""The portal's API, described: the list of jobs, and each job's own operations below its address."""

from __future__ import annotations

from typing import Any

import msgspec

from howdah.client.advice import Finding
from howdah.coordinator.web import openapi
from howdah.portal import notebooks
from howdah.portal.documents import JobList, NotebookRequest, RerunRequest, SinceBefore, StartedJob
from howdah.portal.job_pages import ADVICE, BEFORE, RERUN, STOP
from howdah.portal.query import PARAMETERS

NO_JOB = "There is no such job, or none that the reader may see."

_JOB_ID = {
    "name": "job_id",
    "in": "path",
    "required": True,
    "description": "The whole id of the job.",
    "schema": {"type": "string"},
}


def document(user_header: str = "") -> dict[str, Any]:
    """The OpenAPI 3.1 document, as ``/api/v1/openapi.json`` of the portal answers it.

    ``user_header``: of a team's portal, in which its proxy says who reads.
    """
    found = openapi.document()
    found["info"] = {
        **found["info"],
        "title": "Howdah portal API",
        "description": "All jobs, and each one. Times are seconds since the epoch. Addresses are "
        "relative to the list of jobs.",
    }
    (schema, wanted, rerun, started), components = msgspec.json.schema_components(
        [JobList, NotebookRequest, RerunRequest, StartedJob],
        ref_template="#/components/schemas/{name}",
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
    answered = {"application/json": {"schema": started}}

    def starting(name: str, summary: str, body: dict[str, Any], conflict: str) -> dict[str, Any]:
        return {
            "operationId": name,
            "summary": summary,
            "parameters": [],
            "requestBody": {"required": False, "content": {"application/json": {"schema": body}}},
            "responses": {
                "201": {"description": "Started.", "content": answered},
                **{
                    status: {"description": text, "content": problem}
                    for status, text in {
                        "400": "An option is wrong; the text says which, as the command does.",
                        "401": errors["401"],
                        "403": "It comes from another site.",
                        "409": conflict,
                        "415": "The body is not JSON.",
                        "421": errors["421"],
                        "503": "It was not started in time.",
                    }.items()
                },
            },
        }

    notebook = starting(
        "notebook",
        "Start a notebook, as `howdah notebook --detach` does: its options are those of the command.",
        wanted,
        "The backend does not take it.",
    )
    found["paths"][RERUN] = {
        "post": starting(
            "rerun",
            "Run the job again, as `howdah rerun --detach` does. The answer names the new job.",
            rerun,
            "It can't be run again, or the backend does not take it; the text says why.",
        )
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
                    "401": {"description": errors["401"], "content": problem},
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
    for methods in below.values():
        for operation in methods.values():
            operation["responses"].setdefault("404", {"description": NO_JOB, "content": problem})
    found["paths"] = {
        "/api/v1/jobs": {"get": listed},
        notebooks.ROOT: {"post": notebook},
        **below,
    }
    if user_header:
        _for_team(found, user_header)
    return found


def _for_team(found: dict[str, Any], user_header: str) -> None:
    found["security"] = [{"proxy": []}]
    found["components"]["securitySchemes"] = {
        "proxy": {
            "type": "apiKey",
            "in": "header",
            "name": user_header,
            "description": "Who reads. Set by the reverse proxy, and believed from there only.",
        }
    }
    # A job can be looked at and stopped, no more.
    found["paths"] = {
        path: methods
        for path, methods in found["paths"].items()
        if set(methods) == {"get"} or path.endswith(STOP)
    }
    for methods in found["paths"].values():
        for operation in methods.values():
            operation["responses"]["401"]["description"] = "The proxy did not say who reads."
