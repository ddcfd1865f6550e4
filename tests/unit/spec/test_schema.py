"""The JSON Schema, the reference page and the templates agree with what is accepted."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from howdah.frameworks import planning, registry
from howdah.spec import model
from howdah.spec.load import load
from howdah.spec.templates import NAMES, template
from tests.unit.spec.test_load import FULL

REPOSITORY = Path(__file__).parents[3]
ENV = {"HOWDAH_SITE": ""}


def generator() -> ModuleType:
    path = REPOSITORY / "docs" / "generate_job_file.py"
    spec = importlib.util.spec_from_file_location("generate_job_file", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


schema = generator()


@pytest.fixture(scope="module")
def validator() -> Any:
    """Made here, not at the file's import: jsonschema compiles a grammar for seconds where one is installed."""
    import jsonschema

    return jsonschema.Draft202012Validator(schema.json_schema())


def test_the_schema_is_a_schema(validator: Any) -> None:
    validator.check_schema(schema.json_schema())


def test_every_key_is_described() -> None:
    for name, definition in schema.json_schema()["$defs"].items():
        assert definition["description"], name
        for key, described in definition.get("properties", {}).items():
            assert described.get("description"), f"{name}.{key}"


def test_every_field_has_a_docstring() -> None:
    for name, kind in vars(model).items():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and name[0] != "_":
            assert set(schema.field_descriptions()[name]) == set(kind.__struct_fields__), name


def test_the_schema_accepts_good_job_files(validator: Any, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(FULL)
    job = load(tmp_path / "job.toml", env=ENV).job
    documents: list[Any] = [tomllib.loads(FULL), json.loads(msgspec.json.encode(job))]
    documents += [tomllib.loads(template(name)) for name in NAMES]
    for document in documents:
        validator.validate(document)


@pytest.mark.parametrize(
    "document",
    [
        {"nmae": "x"},
        {"name": "a b"},
        {"mode": "gangs"},
        {"roles": {"worker": {"instances": 0}}},
        {"roles": {"worker": {"instances": "2...8"}}},
        {"roles": {"worker": {"processes": "gpu"}}},
        {"roles": {"worker": {"memory": "2"}}},
        {"roles": {"worker:0": {}}},
        {"timeouts": {"hang": 10}},
        {"env": {"A B": "x"}},
        {"env": {"A": 1}},
        {"checkpoint": {"source": "all"}},
        {"preprocess": {}},
    ],
)
def test_the_schema_refuses_wrong_job_files(validator: Any, document: Any) -> None:
    assert not validator.is_valid(document)


def test_every_built_in_framework_has_a_template() -> None:
    assert {*registry.BUILT_IN} <= {*NAMES}
    for name in NAMES:
        framework = tomllib.loads(template(name)).get("framework", "command")
        assert name.startswith(framework)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_has_no_problems(name: str, tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_text(template(name))
    loaded = load(
        tmp_path / "job.toml",
        env=ENV,
        frameworks=registry.names(),
        further=lambda job, _: planning.problems(job),
    )
    assert loaded.job.roles


@pytest.mark.parametrize("name", NAMES)
def test_every_option_of_a_template_works_once_it_is_no_comment(name: str, tmp_path: Path) -> None:
    text = template(name)
    head, _, options = text.partition("# ── More")
    top = re.sub(r"^# (source|restart|attempts)( =)", r"\1\2", head, flags=re.MULTILINE)
    tail = re.sub(r"^# (\[|[a-zA-Z_-]+ = )", r"\1", options.partition("\n")[2], flags=re.MULTILINE)
    (tmp_path / "job.toml").write_text(top + "\n" + tail)
    job = load(tmp_path / "job.toml", env=ENV, further=lambda job, _: planning.problems(job)).job
    assert job.attempts == 3
    assert job.preprocess is not None


def test_no_other_template_is_made_up() -> None:
    with pytest.raises(KeyError):
        template("../secrets")
