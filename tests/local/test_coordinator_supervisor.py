"""The node daemon keeps a coordinator alive: real processes, killed in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from howdah.backends.base import BackendError
from howdah.backends.local import processes, submit
from tests.conformance.local import wait_gone
from tests.local.conftest import Node, options
from tests.local.standins import begun

Make = Callable[..., Node]


def wait_until(holds: Callable[[], bool], what: str, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {timeout_s}s: {what}"
        time.sleep(0.01)


def test_a_daemon_whose_coordinator_ends_well_cleans_up_and_ends(make_node: Make) -> None:
    node = make_node("finishing")
    pid = node.start()
    wait_until(lambda: not psutil.pid_exists(pid), "the daemon ends")
    assert len(begun(node.path)) == 1
    assert not (node.path / "node.json").exists()
    assert not (node.path / "node.lock").exists()
    assert not (node.path / "containers").exists()


def test_a_killed_coordinator_is_started_again_at_once(make_node: Make) -> None:
    node = make_node("waiting")
    node.start()
    for lives in (1, 2, 3):
        wait_until(lambda lives=lives: len(begun(node.path)) == lives, f"life {lives} begins")
        os.kill(begun(node.path)[-1], signal.SIGKILL)
    wait_until(lambda: len(begun(node.path)) == 4, "the fourth life begins")
    (node.path / "done").touch()
    assert wait_gone(node.path, 30.0)
    assert len(set(begun(node.path))) == 4


def test_a_coordinator_that_cannot_be_imported_is_not_tried_again(make_node: Make) -> None:
    node = make_node("nothing_of_that_name")
    node.start()
    assert wait_gone(node.path, 30.0)
    final = node.directory.final()
    assert final is not None
    assert "could not be started" in final.reason
    assert "nothing_of_that_name" in final.reason


def test_a_coordinator_that_dies_after_the_job_has_ended_is_not_started_again(
    make_node: Make,
) -> None:
    node = make_node("finished_and_failing")
    node.start()
    assert wait_gone(node.path, 30.0)
    assert len(begun(node.path)) == 1
    assert (node.path / "final.json").read_text() == "{}"


def test_a_job_whose_daemon_and_coordinator_were_killed_can_be_brought_back(
    make_node: Make,
) -> None:
    node = make_node("waiting")
    pid = node.start()
    wait_until(lambda: len(begun(node.path)) == 1, "the coordinator begins")
    os.kill(pid, signal.SIGKILL)
    os.kill(begun(node.path)[0], signal.SIGKILL)
    wait_until(lambda: not submit.node_alive(node.path), "the daemon is gone")
    assert submit.revive(node.path, node.options) == node.pid
    wait_until(lambda: len(begun(node.path)) == 2, "a new coordinator begins")
    with pytest.raises(BackendError, match="has a node daemon already"):
        submit.revive(node.path, node.options)


def test_a_coordinator_s_process_id_that_somebody_else_has_is_left_alone(
    make_node: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator died just before the next daemon came, and its process id is given away again."""
    node = make_node("waiting")
    with subprocess.Popen(["sleep", "300"]) as stranger:
        try:
            start = processes.start_of(stranger.pid)
            assert start is not None
            monkeypatch.setattr(submit, "start_of", lambda pid: start - 1)
            pid = submit.begin(node.options, adopt=True).go(node.path, coordinator=stranger.pid)
            wait_until(lambda: len(begun(node.path)) == 1, "a new coordinator begins")
            os.kill(pid, signal.SIGTERM)
            assert wait_gone(node.path, 30.0)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_daemon_told_to_end_ends_the_job_in_words(make_node: Make) -> None:
    node = make_node("waiting")
    pid = node.start()
    wait_until(lambda: len(begun(node.path)) == 1, "the coordinator begins")
    os.kill(pid, signal.SIGTERM)
    assert wait_gone(node.path, 30.0)
    final = node.directory.final()
    assert final is not None
    assert "SIGTERM" in final.reason
    assert len(begun(node.path)) == 1


def test_a_daemon_is_nobodys_child_and_has_no_terminal(make_node: Make) -> None:
    node = make_node("waiting")
    process = psutil.Process(node.start())
    assert process.ppid() != os.getpid()
    assert process.terminal() is None
    assert os.getsid(process.pid) != os.getsid(0)


def test_a_job_has_one_daemon_only(make_node: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    node = make_node("waiting")
    node.start()
    with pytest.raises(BackendError, match="has a node daemon already"):
        node.start()
    wait_until(lambda: len(begun(node.path)) == 1, "the coordinator begins")
    assert len(begun(node.path)) == 1


def test_a_folder_that_is_no_job_directory_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="missing"):
        submit.begin(options("waiting")).go(tmp_path / "missing")


def test_a_broken_interpreter_is_reported(
    make_node: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no such thing: libpython' >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(broken))
    with pytest.raises(BackendError, match="no such thing: libpython"):
        submit.begin().go(tmp_path)


def test_a_coordinator_that_never_gets_anywhere_ends_the_job_in_words(make_node: Make) -> None:
    node = make_node("failing")
    node.start()
    assert wait_gone(node.path, 30.0)
    final = node.directory.final()
    assert final is not None
    assert final.outcome == "failed"
    assert final.exit_code == 1
    assert "died 7 times in a row" in final.reason
    assert "the journal is damaged" in final.reason
    assert "coordinator.log" in final.advice
    assert len(begun(node.path)) == 7
