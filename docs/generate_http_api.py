"""Writes docs/reference/http-api.md from the descriptions that the job page and the portal serve of their APIs.

Run it after a change of an operation or of what it answers; a test compares what is committed with it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from howdah.coordinator.web import openapi
from howdah.portal import openapi as portal

PAGE = Path(__file__).parent / "reference" / "http-api.md"

INTRODUCTION = """\
# HTTP API

<!-- Written by docs/generate_http_api.py from the operations of howdah.coordinator.web.api and the portal's. Change those. -->

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

OF_THE_PORTAL = """\
(http-api-portal)=
## The portal

`howdah ui` and `howdah portal` serve the list of jobs. Below `jobs/<job id>/` they serve all operations above for each
job, running or past. Addresses are relative to the list. `api/v1/openapi.json` there describes them all. `metrics`
beside them has, in Prometheus' text format, the number of jobs by state, and up to 1,000 jobs that wait or run:
[what it has](../guides/portal-team.md).

**`howdah ui`** lets in its user, with the cookie of the link that it prints.

**`howdah portal`** answers only its [reverse proxy](../guides/portal-team.md). Any other address gets 403, and a request
in which the proxy does not name the user gets 401. A job that the user may not see looks like one that does not exist,
with 404. A `POST` must carry the `Origin` of the portal's own address. Only `stop` is possible (`notebooks` and `rerun` are a 403), for users whom the job
allows it; others who see the job get 403. Of `[env]` everyone sees the names only, also the
job's owner. Answers about a running job come live from its coordinator. If the portal cannot reach the coordinator, they
come from the job directory, and `stream` ends at once; ask again, or ask `changes`. `jobs/<job id>/proxy/<task>/` leads
to the page of a task at the job's own host name, if the portal has a `--pages-url`; otherwise it is a 404.
"""


def page() -> str:
    """The page's text."""
    job, whole = openapi.document(), portal.document()
    own = {
        path: methods
        for path, methods in whole["paths"].items()
        if path.partition("/jobs/{job_id}")[2] not in job["paths"]
    }
    schemas = job["components"]["schemas"] | whole["components"]["schemas"]
    lines = [INTRODUCTION, "## Operations", "", *_operations(job["paths"])]
    lines += [OF_THE_PORTAL, *_operations(own)]
    lines += ["## Documents", "", *_documents(schemas)]
    return "\n".join(lines).rstrip() + "\n"


def _operations(paths: dict[str, dict[str, Any]]) -> list[str]:
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


def _documents(schemas: dict[str, Any]) -> list[str]:
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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
