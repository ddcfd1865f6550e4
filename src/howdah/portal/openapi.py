"""The portal's API, described: the list of jobs, and each job's own operations below its address."""

from __future__ import annotations

from typing import Any

import msgspec

from howdah.client.advice import Finding
from howdah.coordinator.web import openapi
from howdah.portal.documents import JobList, NotebookRequest, RerunRequest, SinceBefore, StartedJob
from howdah.portal.job_pages import ADVICE, BEFORE, RERUN, STOP
from howdah.portal.query import PARAMETERS
from howdah.portal.starting import notebooks

NO_JOB = "There is no such job, or none that the reader may see."
NOT_YOURS = "The request does not prove that it is yours."
STRANGE = "It was sent to a strange name."

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
    (*schemas,), components = msgspec.json.schema_components(
        [JobList, NotebookRequest, RerunRequest, StartedJob, list[Finding], SinceBefore],
        ref_template="#/components/schemas/{name}",
    )
    found["components"]["schemas"] |= components
    jobs, notebook, rerun, started, findings, before = map(_json, schemas)
    problem = _json({"$ref": "#/components/schemas/ErrorAnswer"})

    def operation(
        name: str, summary: str, answer: dict[str, Any], errors: dict[str, str], **more: Any
    ) -> dict[str, Any]:
        status, text = ("201", "Started.") if "requestBody" in more else ("200", "Done.")
        refused = {each: {"description": why, "content": problem} for each, why in errors.items()}
        responses = {status: {"description": text, "content": answer}, **refused}
        return {
            "operationId": name,
            "summary": summary,
            "parameters": [],
            **more,
            "responses": responses,
        }

    def starting(name: str, summary: str, body: dict[str, Any], conflict: str) -> dict[str, Any]:
        errors = {
            "400": "An option is wrong; the text says which, as the command does.",
            "401": NOT_YOURS,
            "403": "It comes from another site.",
            "409": conflict,
            "415": "The body is not JSON.",
            "421": STRANGE,
            "503": "It was not started in time.",
        }
        body = {"required": False, "content": body}
        return {"post": operation(name, summary, started, errors, requestBody=body)}

    unread = {"401": NOT_YOURS, "404": "What is needed cannot be read."}
    found["paths"][RERUN] = starting(
        "rerun",
        "Run the job again, as `howdah rerun --detach` does. The answer names the new job.",
        rerun,
        "It can't be run again, or the backend does not take it; the text says why.",
    )
    for path, name, answer, summary in (
        (ADVICE, "advice", findings, "What the job wasted, as `howdah advice --json` prints it."),
        (BEFORE, "before", before, "What of the job file differs from that of the run before."),
    ):
        found["paths"][path] = {"get": operation(name, summary, answer, unread)}
    below = {
        f"/jobs/{{job_id}}{path}": {
            method: {**each, "parameters": [_JOB_ID, *each["parameters"]]}
            for method, each in methods.items()
        }
        for path, methods in found["paths"].items()
    }
    for methods in below.values():
        for each in methods.values():
            each["responses"].setdefault("404", {"description": NO_JOB, "content": problem})
    found["paths"] = {
        "/api/v1/jobs": {
            "get": operation(
                "jobs",
                "Jobs that match, running and past.",
                jobs,
                {"400": "A parameter is wrong.", "401": NOT_YOURS, "421": STRANGE},
                parameters=[
                    {
                        "name": name,
                        "in": "query",
                        "required": False,
                        "description": text,
                        "schema": kind,
                    }
                    for name, (text, kind) in PARAMETERS.items()
                ],
            )
        },
        notebooks.ROOT: starting(
            "notebook",
            "Start a notebook, as `howdah notebook --detach` does: its options are those of the command.",
            notebook,
            "The backend does not take it.",
        ),
        **below,
    }
    if user_header:
        _for_team(found, user_header)
    return found


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


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
