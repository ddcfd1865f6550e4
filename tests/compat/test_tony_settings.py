"""Where TonY's configuration is looked for, and what wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from howdah.compat.tony.settings import Settings, SettingSource, read
from howdah.spec.problems import JobFileError
from tests.compat.given import xml


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """The folder of the site's configuration."""
    folder = tmp_path / "conf"
    folder.mkdir()
    return folder


def found(
    tmp_path: Path, file: dict[str, str], site: dict[str, str], *given: str, **rest: tuple[str, ...]
) -> Settings:
    own = tmp_path / "tony.xml"
    own.write_text(xml(file, **rest))
    (tmp_path / "conf" / "tony-site.xml").write_text(xml(site))
    return read(own, given, {"TONY_CONF_DIR": str(tmp_path / "conf")})


def test_the_command_line_wins_over_the_site_and_the_site_over_the_jobs_file(
    tmp_path: Path, site: Path
) -> None:
    settings = found(
        tmp_path,
        {"tony.a": "file", "tony.b": "file", "tony.c": "file"},
        {"tony.b": "site", "tony.c": "site"},
        "tony.c=option",
    )
    assert [settings[f"tony.{key}"].text for key in "abc"] == ["file", "site", "option"]
    assert [settings[f"tony.{key}"].source for key in "abc"] == [
        SettingSource.FILE,
        SettingSource.SITE,
        SettingSource.COMMAND_LINE,
    ]


def test_a_final_value_of_the_file_stands_against_the_site_but_not_against_the_command_line(
    tmp_path: Path, site: Path
) -> None:
    both = {"tony.a": "file", "tony.b": "file"}
    settings = found(
        tmp_path,
        both,
        {"tony.a": "site", "tony.b": "site"},
        "tony.b=option",
        final=("tony.a", "tony.b"),
    )
    assert settings["tony.a"].text == "file"
    assert settings["tony.b"].text == "option"


def test_environments_and_resources_on_the_command_line_are_added(
    tmp_path: Path, site: Path
) -> None:
    settings = found(
        tmp_path,
        {
            "tony.containers.envs": "A=1",
            "tony.containers.resources": "a",
            "tony.worker.resources": "a",
        },
        {},
        "tony.containers.envs=B=2",
        "tony.containers.envs=C=3",
        "tony.execution.envs=D=4",
        "tony.containers.resources=b",
        "tony.worker.resources=b",
    )
    assert settings["tony.containers.envs"].text == "A=1,B=2,C=3"
    assert settings["tony.execution.envs"].text == "D=4"
    assert settings["tony.containers.resources"].text == "a,b"
    assert settings["tony.worker.resources"].text == "b"


def test_values_refer_to_each_other_and_to_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "tony.xml"
    file.write_text(
        xml({"tony.worker.command": "python ${script} --user ${env.WHO}", "script": "t.py"})
    )
    settings = read(file, (), {"WHO": "ann"})
    assert settings["tony.worker.command"].text == "python t.py --user ann"


def test_there_may_be_no_file_at_all() -> None:
    assert [*read(None, ["tony.worker.instances=2"], {})] == ["tony.worker.instances"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobFileError, match="nowhere.xml: there is no such file"):
        read(tmp_path / "nowhere.xml", (), {})


def test_a_file_that_is_no_configuration_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tony.xml"
    file.write_text("<configuration><property>")
    with pytest.raises(JobFileError, match="not well-formed"):
        read(file, (), {})


def test_values_that_refer_to_each_other_in_a_circle_are_problems_of_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "tony.xml"
    file.write_text(xml({"tony.a": "${tony.b}", "tony.b": "${tony.a}"}))
    with pytest.raises(JobFileError) as error:
        read(file, [], {})
    assert [problem.key for problem in error.value.problems] == ["tony.a", "tony.b"]
    assert "in a circle?" in str(error.value)
