"""Clusters end with their last user, whatever happened to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.hadoop import daemons
from tests.hadoop.guard import door, users
from tests.hadoop.polling import wait

_ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]

_USER = """\
import sys, time
from pathlib import Path
from tests.hadoop.options import Options
from tests.hadoop.shared import Use
use = Use(Path(sys.argv[1]), Options(node_managers=1, labels=False, gpus="none"))
print("up", use.cluster.pid("namenode"), flush=True)
sys.stdin.read()
use.end()
"""


def _user(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _USER, str(folder)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(user: subprocess.Popen[str]) -> str:
    assert user.stdout is not None
    return user.stdout.readline().strip()


def _nothing_left(folder: Path) -> bool:
    places = (folder, users(folder), door(folder))
    return not daemons.marked(folder) and not any(place.exists() for place in places)


def _all_there(folder: Path) -> None:
    """The daemons, once what a script of theirs has started beside has ended."""
    wait("four daemons and nothing else", lambda: len(daemons.marked(folder)) == 4)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "cluster"
    yield place
    daemons.kill_marked(place)


def test_two_users_share_one_cluster_and_the_last_one_stops_it(folder: Path) -> None:
    with _user(folder) as first, _user(folder) as second:
        up = _line(first)
        assert up.startswith("up ")
        assert _line(second) == up
        first.communicate()
        _all_there(folder)
        second.communicate()
        assert (first.returncode, second.returncode) == (0, 0)
    wait("the end of everything", lambda: _nothing_left(folder))


def test_a_cluster_outlives_a_killed_user_while_there_is_another_and_not_longer(
    folder: Path,
) -> None:
    with _user(folder) as first:
        assert _line(first).startswith("up ")
        with _user(folder) as second:
            assert _line(second).startswith("up ")
            first.kill()
            first.wait()
            _all_there(folder)
            second.send_signal(signal.SIGKILL)
    wait("the end of everything", lambda: _nothing_left(folder))


def test_the_guard_of_a_cluster_that_ended_in_order_leaves_the_next_one_alone(folder: Path) -> None:
    with _user(folder) as first:
        assert _line(first).startswith("up ")
        guard = _guard(folder)
        guard.suspend()
        first.communicate()
    with _user(folder) as second:
        assert _line(second).startswith("up ")
        guard.resume()
        guard.wait(60)
        _all_there(folder)
        assert users(folder).exists() and door(folder).exists()
        second.communicate()
    wait("the end of everything", lambda: _nothing_left(folder))


def _guard(folder: Path) -> psutil.Process:
    command = ["-m", "tests.hadoop.guard", str(folder)]
    all_now = psutil.process_iter(["cmdline"])
    (found,) = (each for each in all_now if (each.info["cmdline"] or [])[-3:] == command)
    return found


def test_a_user_killed_while_the_cluster_starts_leaves_nothing(folder: Path) -> None:
    with _user(folder) as user:
        wait("the first daemon", lambda: daemons.marked(folder))
        user.kill()
    wait("the end of everything", lambda: _nothing_left(folder))


_TESTS = """\
import pathlib, time, pytest

@pytest.mark.parametrize("number", range(2))
def test_it(hadoop, number, tmp_path_factory):
    base = pathlib.Path({base!r})
    (base / f"folder{{number}}").write_text(f"{{hadoop.folder}} {{hadoop.pid('namenode')}}")
    while len(list(base.glob("folder*"))) < 2:  # each waits for the other
        time.sleep(0.05)
"""


def test_the_processes_of_a_test_run_share_a_cluster_that_ends_with_the_run(
    tmp_path: Path,
) -> None:
    tests = tmp_path / "test_it.py"
    tests.write_text(_TESTS.format(base=str(tmp_path)))
    command = [sys.executable, "-m", "pytest", "-p", "tests.hadoop.plugin", "-c", "/dev/null"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-n", "2", str(tests)]
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment = {**own, "PYTHONPATH": str(_ROOT)}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = [(tmp_path / f"folder{number}").read_text() for number in range(2)]
    assert first == second
    wait("the end of everything", lambda: _nothing_left(Path(first.split()[0])))
