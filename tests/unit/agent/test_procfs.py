"""Processes, as both ways of looking at them show them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO

import pytest

from howdah.agent.host import portable, procfs


@pytest.fixture(params=[procfs, portable], ids=["proc", "psutil"])
def look(request: pytest.FixtureRequest) -> ModuleType:
    """Either implementation; they must agree."""
    return request.param


@pytest.fixture
def tree() -> Iterator[tuple[int, int]]:
    """A shell and its child, in a session of their own: their process ids."""
    shell = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 1000 & echo $!; wait"],
        stdout=subprocess.PIPE,
        env={"MARK": "a/b", "PATH": os.environ["PATH"]},
        start_new_session=True,
        text=True,
    )
    child = read_number(shell.stdout)
    until(lambda: procfs.command_line(child) == ["sleep", "1000"])
    yield shell.pid, child
    os.killpg(shell.pid, signal.SIGKILL)
    shell.communicate()


def read_number(stream: IO[str] | None) -> int:
    assert stream is not None
    return int(stream.readline())


def until(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_descendants_are_found(look: ModuleType, tree: tuple[int, int]) -> None:
    shell, child = tree
    until(lambda: {shell, child} <= set(look.descendants(os.getpid())))
    found = look.descendants(os.getpid())
    assert found[child].parent == shell
    assert found[child].group == found[child].session == shell
    assert os.getpid() not in found


@pytest.mark.nightly
def test_threads_that_end_while_we_look_hide_no_descendants() -> None:
    code = """
import subprocess, threading, time
for number in range(300):
    threading.Thread(target=time.sleep, args=(0.2 + number / 1000,)).start()
def later():
    child = subprocess.Popen(["sleep", "1000"])
    print(child.pid, flush=True)
    child.wait()
threading.Thread(target=later).start()
"""
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True, text=True
    )
    try:
        child = read_number(run.stdout)
        while len(list(Path(f"/proc/{run.pid}/task").iterdir())) > 2:
            assert child in procfs.descendants(run.pid)
    finally:
        os.killpg(run.pid, signal.SIGKILL)
        run.communicate()


def test_what_is_to_be_skipped_is_skipped_with_all_below_it(
    look: ModuleType, tree: tuple[int, int]
) -> None:
    assert not set(tree) & set(look.descendants(os.getpid(), {tree[0]}))


def test_both_ways_to_find_descendants_agree(tree: tuple[int, int]) -> None:
    def agree() -> bool:
        by_children = set(procfs._by_children(os.getpid(), ()))
        return set(tree) <= by_children == set(procfs._by_parents(os.getpid(), ()))

    until(agree)  # what earlier tests in this process have started may just be ending


def test_marked_processes_are_found_by_the_whole_value(
    look: ModuleType, tree: tuple[int, int]
) -> None:
    until(lambda: set(look.marked("MARK", "a/b")) == set(tree))
    assert not look.marked("MARK", "a/")
    assert not look.marked("MAR", "K=a/b")
    assert set(look.marked("MARK", "a/b", {tree[0]})) == {tree[1]}


def test_a_process_is_signalled(look: ModuleType, tree: tuple[int, int]) -> None:
    status = look.stat(tree[1])
    assert status is not None
    assert look.send_signal(status, signal.SIGKILL)
    until(lambda: (now := look.stat(tree[1])) is None or now.zombie)


def test_a_process_that_is_not_the_one_meant_is_not_signalled(
    look: ModuleType, tree: tuple[int, int]
) -> None:
    status = look.stat(tree[1])
    assert status is not None
    assert not look.send_signal(status._replace(start=status.start - 1), signal.SIGKILL)
    now = look.stat(tree[1])
    assert now is not None and not now.zombie
    assert not look.send_signal(status._replace(pid=2**22 - 3), signal.SIGKILL)


def test_a_process_that_is_gone_is_nobody(look: ModuleType) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    assert look.stat(gone.pid) is None
    assert look.command_line(gone.pid) == []
    assert look.program(gone.pid) == ""


def test_a_process_says_what_it_is(look: ModuleType, tree: tuple[int, int]) -> None:
    assert look.command_line(tree[1]) == ["sleep", "1000"]
    assert look.program(os.getpid()) == os.path.realpath(sys.executable)


def test_use_is_measured(look: ModuleType) -> None:
    code = "import sys; data = b'x' * 50_000_000; [n * n for n in range(600_000)]; print(1, flush=True); sys.stdin.read()"
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    read_number(run.stdout)
    status = look.stat(run.pid)
    assert status is not None
    used = look.usage([status])
    run.communicate()
    assert used.processes == 1
    assert used.cpu_s > 0.02
    assert 50_000_000 < used.rss_bytes < 200_000_000


def test_a_process_with_an_odd_name_is_read_right() -> None:
    run = subprocess.Popen(["bash", "-c", "exec -a ') R 1 (' sleep 1000"])
    try:
        until(lambda: procfs.command_line(run.pid)[:1] == [") R 1 ("])
        status = procfs.stat(run.pid)
        assert status is not None
        assert status.parent == os.getpid()
    finally:
        run.kill()
        run.wait()


def test_shared_pages_count_once() -> None:
    assert (procfs.shared_out_bytes([os.getpid()]) or 0) > 1_000_000
    assert procfs.shared_out_bytes([2**22 - 3]) is None


def test_reading_and_writing_is_counted() -> None:
    before = procfs.io_bytes([os.getpid()])
    with open(os.devnull, "wb", buffering=0) as sink:
        sink.write(b"x" * 1_000_000)
    after = procfs.io_bytes([os.getpid()])
    assert before is not None and after is not None
    assert after[1] - before[1] >= 1_000_000
