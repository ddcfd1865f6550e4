"""Finding frameworks, ours and those of other packages."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint

import pytest

from howdah.cli.main import main
from howdah.frameworks import registry
from howdah.frameworks.base import Framework
from howdah.spec.model import Job, Role
from tests.unit.frameworks.gangs import problems


class Mine(Framework):
    """A framework of another package."""

    name = "mine"


class NotOne:
    """Something else."""


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch):
    here = __name__
    points = [
        EntryPoint("mine", f"{here}:Mine", registry.GROUP),
        EntryPoint("gone", "no.such.module:Gone", registry.GROUP),
        EntryPoint("odd", f"{here}:NotOne", registry.GROUP),
        EntryPoint("pytorch", f"{here}:Mine", registry.GROUP),
    ]
    monkeypatch.setattr(registry, "entry_points", lambda *, group: points)
    registry.get.cache_clear()
    yield
    registry.get.cache_clear()


@pytest.mark.parametrize("name", registry.BUILT_IN)
def test_every_built_in_framework_has_the_name_it_is_found_by(name: str):
    assert registry.get(name).name == name


def test_a_plugin_is_found_and_used(plugged: None):
    assert isinstance(registry.get("mine"), Mine)
    assert problems("mine", {"worker": Role()}) == []


def test_init_writes_a_job_file_for_a_plugin(
    plugged: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", "--framework", "mine", "-"]) == 0
    written = capsys.readouterr().out
    assert tomllib.loads(written)["framework"] == "mine"
    assert "plug-in" in written
    of_plain_programs = ("[roles.server]", "mode =", "after =")
    assert not [part for part in of_plain_programs if part in written]


def test_a_broken_plugin_is_reported_where_it_is_asked_for(plugged: None):
    with pytest.raises(registry.UnknownFramework) as error:
        registry.get("gone")
    assert str(error.value) == (
        "the framework 'gone' cannot be used: its plug-in no.such.module:Gone (of an unknown "
        "package) failed with ModuleNotFoundError: No module named 'no'"
    )


def test_a_broken_plugin_hides_nothing(plugged: None):
    assert registry.get("tensorflow").name == "tensorflow"
    assert registry.names() == [*registry.BUILT_IN, "gone", "mine", "odd"]


def test_a_plugin_never_takes_a_built_in_ones_name(plugged: None):
    assert registry.get("pytorch").name == "pytorch"


def test_all_unusable_plugins_are_listed_with_reasons(plugged: None):
    found = registry.broken()
    assert set(found) == {"gone", "odd", "pytorch"}
    assert "is no subclass of howdah.frameworks.base.Framework" in found["odd"]
    assert "'pytorch' is built in" in found["pytorch"]


def test_an_unknown_framework_is_a_problem_of_the_job():
    (problem,) = problems("tensorflwo", {"worker": 1})
    assert problem.key == "framework"
    assert problem.message.endswith("Did you mean 'tensorflow'?")


def test_a_framework_that_overrides_nothing_runs_independent_programs():
    made = Job(framework="mine", command="x", roles={"a": Role()})
    assert Mine().check(made) == []
    assert not Mine().role(made, "a").ranked
