"""What a training script may import: inside Howdah, outside it, and in old Pythons."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import howdah.task as task_module
from howdah import task

FILE = Path(task_module.__file__)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket in the agent's place."""
    task._told.forked()  # nothing waits from another test
    with tempfile.TemporaryDirectory(dir=os.environ["HOWDAH_RUNTIME_DIR"]) as folder:
        path = f"{folder}/s"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(path)
            receiver.setblocking(False)
            monkeypatch.setenv("HOWDAH_TASK_SOCKET", path)
            yield receiver


def received(agent: socket.socket) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        try:
            found.append(json.loads(agent.recv(65536)))
        except BlockingIOError:
            return found


def test_inside_howdah_the_context_is_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in {
        "HOWDAH_JOB_ID": "digits-1",
        "HOWDAH_ROLE": "chief",
        "HOWDAH_INDEX": "0",
        "HOWDAH_RANK": "0",
        "HOWDAH_WORLD_SIZE": "3",
        "HOWDAH_LOCAL_RANK": "0",
        "HOWDAH_LOCAL_WORLD_SIZE": "1",
        "HOWDAH_IS_CHIEF": "true",
        "HOWDAH_GENERATION": "2",
        "HOWDAH_ATTEMPT": "4",
        "HOWDAH_HOST": "10.0.0.1",
        "HOWDAH_PORTS": "20001,20002",
        "HOWDAH_CLUSTER": '{"chief": ["10.0.0.1:20001"]}',
        "HOWDAH_CHECKPOINT_DIR": str(tmp_path / "c"),
        "HOWDAH_RESTORED": "000003",
        "HOWDAH_OUTPUT_DIR": str(tmp_path / "o"),
        "HOWDAH_TENSORBOARD_DIR": "s3://bucket/tb",
        "HOWDAH_LOG_DIR": str(tmp_path / "l"),
        "HOWDAH_SHARED_DIR": str(tmp_path / "s"),
    }.items():
        monkeypatch.setenv(name, value)
    me = task.context()
    assert (me.role, me.index, me.rank, me.world_size, me.is_chief) == ("chief", 0, 0, 3, True)
    assert (me.generation, me.attempt, me.job_id) == (2, 4, "digits-1")
    assert (me.host, me.ports, me.cluster) == (
        "10.0.0.1",
        (20001, 20002),
        {"chief": ["10.0.0.1:20001"]},
    )
    assert (me.restored, me.tensorboard_dir) == ("000003", "s3://bucket/tb")
    assert all(f.is_dir() for f in (me.checkpoint_dir, me.output_dir, me.log_dir, me.shared_dir))


def test_a_role_without_ranks_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOWDAH_JOB_ID", "digits-1")
    me = task.context()
    assert me.rank is None
    assert not me.is_chief


def test_outside_howdah_there_is_one_process_and_one_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    me = task.context()
    assert (me.role, me.rank, me.world_size, me.is_chief, me.job_id) == ("worker", 0, 1, True, "")
    assert me.restored is None
    assert [p.name for p in tmp_path.iterdir()] == ["howdah-local"]
    assert me.checkpoint_dir.is_dir()
    task.report(step=1, loss=2.0)
    task.checkpoint_saved(1)
    task.announce_web("x", 1)
    assert not task.checkpoint_requested()


def test_reports_are_sent(agent: socket.socket) -> None:
    task.report(step=3, loss=0.5)
    task.report(accuracy=0.9)
    assert received(agent) == [{"step": 3, "loss": 0.5}, {"accuracy": 0.9}]


def test_scalars_of_other_libraries_are_numbers_and_the_rest_is_left_out(
    agent: socket.socket,
) -> None:
    numpy = pytest.importorskip("numpy")
    task.report(step=numpy.int64(3), loss=numpy.float32(0.5), note="text", what=object())
    assert received(agent) == [{"step": 3.0, "loss": 0.5}]


def all_received(agent: socket.socket) -> list[dict[str, Any]]:
    """What waits comes with later reports."""
    found = received(agent)
    while task._told._waiting:
        task.report()
        found += received(agent)
    return [document for document in found if document]


def test_reports_that_come_too_fast_never_wait_and_all_arrive(agent: socket.socket) -> None:
    for step in range(5000):
        task.report(step=step, loss=1 / (step + 1))
    assert [document["step"] for document in all_received(agent)] == list(range(5000))


def test_reports_that_are_far_too_many_are_merged(
    agent: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_MOST_WAITING", 10)
    for step in range(5000):
        task.report(step=step, loss=1 / (step + 1))
    found = all_received(agent)
    assert len(found) < 5000
    assert (found[-1]["step"], found[-1]["loss"]) == (4999, 1 / 5000)


def test_an_announcement_is_not_merged_into_numbers(agent: socket.socket) -> None:
    for step in range(1000):
        task.report(step=step)
    task.announce_web("Notebook", 8888, path="/lab")
    task.checkpoint_saved(999)
    task.report(step=1000)
    found = all_received(agent)
    (web,) = [document["web"] for document in found if "web" in document]
    assert (web["name"], web["port"], web["path"]) == ("Notebook", 8888, "/lab")
    assert {"checkpoint": True, "step": 999} in found


def test_an_agent_that_is_gone_harms_nobody(agent: socket.socket) -> None:
    agent.close()
    for _ in range(3):
        task.report(step=1)


def test_a_forked_child_does_not_repeat_its_parent_s_reports(agent: socket.socket) -> None:
    # In a process of its own: a fork of this one may find locks there that its other threads hold.
    code = (
        "import os; from howdah import task\n"
        "for step in range(1000): task.report(step=step)\n"
        "if (pid := os.fork()) == 0: os._exit(len(task._told._waiting))\n"
        "assert task._told._waiting and os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_signal_handler_may_report_while_its_thread_does(agent: socket.socket) -> None:
    signal.signal(signal.SIGALRM, lambda *_: task.report(alarm=1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        for step in range(3000):
            task.report(step=step)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_threads_may_report_at_once(agent: socket.socket) -> None:
    threads = [
        threading.Thread(target=lambda: [task.report(step=n) for n in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_a_request_stands_until_it_is_answered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "request"
    monkeypatch.setenv("HOWDAH_CHECKPOINT_REQUEST", str(file))
    assert not task.checkpoint_requested()
    file.write_text("preempted")
    assert task.checkpoint_requested()
    assert task.checkpoint_requested()
    task.checkpoint_saved()
    assert not task.checkpoint_requested()
    os.utime(file, ns=(1, 1))  # asked again
    assert task.checkpoint_requested()


def test_it_is_one_file_of_the_standard_library_alone(tmp_path: Path) -> None:
    (tmp_path / "howdah").mkdir()
    shutil.copy(FILE, tmp_path / "howdah/task.py")
    code = (
        "import sys; from howdah import task; me = task.context(); task.report(step=1);"
        "assert not any(n.startswith(('howdah.', 'msgspec')) and n != 'howdah.task' for n in sys.modules);"
        "print(me.role)"
    )
    for python in pythons():
        done = subprocess.run(
            [python, "-S", "-c", code],
            env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == ("worker\n", ""), python


def pythons() -> list[str]:
    """This interpreter, and older ones that are installed here and work."""
    found = [sys.executable]
    for minor in range(8, 11):
        path = shutil.which(f"python3.{minor}")
        if (
            path
            and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0
        ):
            found.append(path)
    return found
