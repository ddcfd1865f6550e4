"""The API's description fits what the API does."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from howdah.coordinator.web import api, openapi
from tests.unit.web.serving import Served


def refs(document: Any) -> set[str]:
    if isinstance(document, dict):
        own = {document["$ref"]} if "$ref" in document else set()
        return own.union(*(refs(each) for each in document.values()))
    if isinstance(document, list):
        return set().union(*(refs(each) for each in document))
    return set()


def test_every_reference_leads_somewhere() -> None:
    document = openapi.document()
    names = set(document["components"]["schemas"])
    assert {ref.rpartition("/")[2] for ref in refs(document)} <= names


def test_the_description_is_served(served: Served) -> None:
    told = served.get("/api/v1/openapi.json").body
    assert told == msgspec.json.encode(openapi.document())


def test_path_parameters_are_described() -> None:
    for operation in api.OPERATIONS:
        named = {p.name for p in operation.parameters if p.place is api.In.PATH}
        assert named == set(re.findall(r"\{(\w+)\}", operation.path))


@pytest.mark.parametrize(
    "operation", [op for op in api.OPERATIONS if op.answers], ids=lambda op: op.name
)
def test_answers_have_the_fields_that_are_described(served: Served, operation: Any) -> None:
    served.job.print("worker:0", "a line\n", attempt=1)
    served.job.measure("worker:0", cpu=1.0, values={"loss": 1.0})
    served.do(lambda job: job.say("submitted", "job"))
    path = api.ROOT + operation.path.replace("{task}", "worker:0")
    if operation.name == "series":
        path += "?task=worker:0"
    if operation.name == "changes":
        path += "?log=worker:0"
    answer = served.ask(
        operation.method,
        path,
        headers={"Authorization": f"Bearer {served.job.token}"},
    )
    document = openapi.document()
    described = document["paths"][api.ROOT + operation.path][operation.method.lower()]
    response = described["responses"][str(answer.status)]
    check(answer.json(), response["content"]["application/json"]["schema"], document)


def check(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> None:
    """A small JSON Schema check: types, required and known fields."""
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        problems = []
        for each in schema["anyOf"]:
            try:
                check(value, each, document)
            except AssertionError as problem:
                problems.append(problem)
            else:
                return
        raise AssertionError(problems)
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if "type" in schema:
        assert isinstance(value, kinds[schema["type"]]), (value, schema)
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema.get("required", ())) <= set(value)
        assert set(value) <= set(schema["properties"])
        for name, each in value.items():
            check(each, schema["properties"][name], document)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        for each in value:
            check(each, schema["items"], document)
