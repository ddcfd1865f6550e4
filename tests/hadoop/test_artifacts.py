"""What is fetched and kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hadoop import artifacts
from tests.hadoop.errors import ClusterError

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(300)  # Maven looks for things in a network


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "howdah-tests"


_ONE_OF_MANY = """\
from tests.hadoop import artifacts

def make(place):
    with (place.parents[1] / "calls").open("a") as calls:
        calls.write("made\\n")
    for number in range(300):
        (place / str(number)).write_text("x" * number)

print(len(list(artifacts.once("thing/part", make).iterdir())))
"""


def test_processes_that_want_the_same_make_it_once_and_see_all_of_it(cache: Path) -> None:
    command = [sys.executable, "-c", _ONE_OF_MANY]
    many = [
        subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [process.communicate()[0] for process in many] == ["300\n"] * 4
    assert (cache / "thing" / "calls").read_text() == "made\n"


def test_what_failed_is_not_kept_and_is_tried_again(cache: Path) -> None:
    def fail(place: Path) -> None:
        (place / "half").touch()
        raise ClusterError("no network")

    with pytest.raises(ClusterError):
        artifacts.once("thing/part", fail)
    assert not (cache / "thing" / "part").exists()
    assert artifacts.once("thing/part", lambda place: (place / "whole").touch()).is_dir()


def test_what_an_interrupted_process_left_is_thrown_away(cache: Path) -> None:
    (cache / "thing" / ".part.abc123" / "made").mkdir(parents=True)
    artifacts.once("thing/part", lambda place: None)
    assert sorted(path.name for path in (cache / "thing").iterdir()) == ["part", "part.lock"]


def test_another_list_of_artifacts_is_another_folder(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = "copied.jar"
    monkeypatch.setattr(artifacts, "_copy_with_maven", lambda _, place: (place / copied).touch())
    first, second = (artifacts.fetch("jars", [f"group:thing:{version}"])[0] for version in "12")
    assert first.name == second.name == copied
    assert first.parent != second.parent


def test_an_artifact_that_does_not_exist_is_named_with_what_maven_said(cache: Path) -> None:
    with pytest.raises(ClusterError) as told:
        artifacts.jars("0.0.1")
    assert "Maven could not fetch org.apache.hadoop:hadoop-common:0.0.1" in str(told.value)
    assert "Is the repository reachable?" in str(told.value)
    assert "Could not" in str(told.value)


def test_tests_fail_in_words_where_a_tool_is_missing(cache: Path, tmp_path: Path) -> None:
    """They are not skipped: who runs them must not think that they passed."""
    tests = tmp_path / "test_it.py"
    tests.write_text("def test_it(hadoop): pass\n")
    programs = tmp_path / "bin"
    programs.mkdir()
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**own, "PATH": str(programs), "PYTHONPATH": str(_ROOT)}
    environment.pop("JAVA_HOME", None)

    def run() -> str:
        command = [sys.executable, "-m", "pytest", "-p", "tests.hadoop.plugin", "-c", "/dev/null"]
        command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tests)]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=140
        )
        assert done.returncode == 1, done.stdout + done.stderr
        assert "1 error" in done.stdout
        return done.stdout

    assert "there is no mvn on PATH. Install it (Debian: apt-get install maven)" in run()
    (programs / "mvn").touch(mode=0o755)
    assert "the Hadoop tests need Java 17, and there is none (no java on PATH)" in run()
