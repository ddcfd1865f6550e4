"""What a person who runs the tests relies on: nothing of a cluster outlives its run, and what is missing is said."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hadoop import daemons
from tests.hadoop.polling import wait

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]

SHARED = """
import pathlib, pytest, time

@pytest.mark.xdist_group("a")
def test_one(hadoop): note(hadoop, "one", "two")

@pytest.mark.xdist_group("b")
def test_two(hadoop): note(hadoop, "two", "one")

def note(hadoop, mine, other):
    folder = pathlib.Path({folder!r})
    (folder / mine).write_text(f"{{hadoop.folder}} {{hadoop.pid('namenode')}}")
    while {waits} or not (folder / other).exists():
        time.sleep(0.05)
"""


def run(folder: Path, text: str, *options: str, **env: str) -> subprocess.Popen[str]:
    """A test run of its own."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.hadoop.plugin", "-c", "/dev/null"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(folder), *options]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.Popen(
        [*command, str(folder / "test_it.py")],
        cwd=folder,
        env={**own, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def gone(cluster: Path) -> None:
    wait("the end of everything", lambda: not daemons.marked(cluster) and not cluster.exists())


def test_the_processes_of_a_run_share_a_cluster_that_ends_with_it(tmp_path: Path) -> None:
    text = SHARED.format(folder=str(tmp_path), waits=False)
    with run(tmp_path, text, "-n", "2", "--dist", "loadgroup") as pytest_run:
        told, _ = pytest_run.communicate(timeout=250)
    assert pytest_run.returncode == 0, told
    one, two = [(tmp_path / name).read_text() for name in ("one", "two")]
    assert one == two
    gone(Path(one.split()[0]))


def test_a_cluster_ends_with_a_run_that_was_killed(tmp_path: Path) -> None:
    with run(tmp_path, SHARED.format(folder=str(tmp_path), waits=True)) as pytest_run:
        wait("the cluster", (tmp_path / "one").exists)
        pytest_run.send_signal(signal.SIGKILL)
    gone(Path((tmp_path / "one").read_text().split()[0]))


def test_without_java_or_maven_tests_fail_and_say_what_to_install(tmp_path: Path) -> None:
    """They are not skipped: who runs them must not think that they passed."""
    (programs := tmp_path / "bin").mkdir()
    env = {"PATH": str(programs), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def told() -> str:
        with run(tmp_path, "def test_it(hadoop): pass\n", **env) as pytest_run:
            return pytest_run.communicate(timeout=140)[0]

    assert "there is no mvn on PATH. Install it (Debian: apt-get install maven)" in told()
    (programs / "mvn").touch(mode=0o755)
    assert "the Hadoop tests need Java 17, and there is none (no java on PATH)" in told()
