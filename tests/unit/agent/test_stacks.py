"""Stacks as text, and the line to name."""

from __future__ import annotations

import json
import os

import pytest

from howdah.agent.host.processes import Stat
from howdah.agent.monitoring.stacks import (
    Dump,
    Frame,
    Thread,
    _explain,
    choose,
    group,
    innermost_line,
    kernel_view,
    parse,
    shortened,
    summarise,
)

LIB = "/usr/lib/python3.11/threading.py"
SITE = "/venv/lib/python3.11/site-packages/torch/nn.py"
USER = "/home/me/code/train.py"


def thread(*frames: tuple[str, str, int], number: int = 7, gil: bool = False) -> Thread:
    return Thread(
        os_thread_id=number,
        owns_gil=gil,
        frames=tuple(Frame(name=name, filename=file, line=line) for name, file, line in frames),
    )


def dump(*threads: Thread) -> Dump:
    return Dump(pid=7, command="python train.py", threads=threads)


def test_the_user_s_innermost_line_is_named() -> None:
    found = dump(
        thread(("wait", LIB, 5), ("forward", SITE, 9), ("step", USER, 31), ("main", USER, 50))
    )
    assert innermost_line(found, ()) == "train.py:31 in step"


def test_the_main_thread_comes_first() -> None:
    found = dump(thread(("work", USER, 1), number=8, gil=True), thread(("step", USER, 31)))
    assert innermost_line(found, ()) == "train.py:31 in step"


def test_without_a_line_of_the_user_s_a_library_s_is_named() -> None:
    assert (
        innermost_line(dump(thread(("wait", LIB, 5), ("forward", SITE, 9))), ())
        == "nn.py:9 in forward"
    )
    assert innermost_line(dump(thread(("wait", LIB, 5))), ()) == "threading.py:5 in wait"
    assert innermost_line(dump(), ()) == ""


def test_code_in_the_source_folder_is_the_user_s_wherever_it_is() -> None:
    inside = "/venv/lib/python3.11/site-packages/mine/a.py"
    found = dump(thread(("helper", "/opt/x.py", 3), ("step", inside, 4)))
    assert innermost_line(found, (os.path.dirname(inside),)) == "a.py:4 in step"
    assert innermost_line(found, ()) == "x.py:3 in helper"


def test_the_text_has_all_processes_and_what_the_kernel_says_of_the_others() -> None:
    taken = summarise(
        [
            [
                Dump(
                    pid=6, command="bash", problem="not Python", kernel="State: S\nwaits in do_wait"
                ),
                dump(thread(("step", USER, 31), gil=True)),
            ]
        ],
        (),
    )
    assert taken.problem == ""
    assert taken.innermost == "train.py:31 in step"
    assert "waits in do_wait" in taken.text
    assert f"step ({USER}:31)" in taken.text
    assert "has the interpreter lock" in taken.text


def test_where_nothing_could_be_taken_it_is_said_why() -> None:
    assert summarise([], ()).problem == "the attempt has no process"
    lost = Dump(pid=1, command="x", problem="Permission denied")
    assert summarise([[lost]], ()).problem == "Permission denied"


def test_py_spy_s_json_is_understood() -> None:
    frame = {"name": "f", "filename": USER, "module": None, "line": 4, "locals": None}
    document = [
        {
            "pid": 7,
            "thread_id": 1,
            "thread_name": None,
            "active": False,
            "owns_gil": False,
            "os_thread_id": 7,
            "frames": [frame],
        }
    ]
    found = parse(7, "python", json.dumps(document).encode())
    assert innermost_line(found, ()) == "train.py:4 in f"
    for odd in (b"{}", b"no json", b'[{"frames": 3}]'):
        with pytest.raises(ValueError):
            parse(7, "python", odd)


def test_the_kernel_tells_something_of_every_process() -> None:
    assert "State:" in kernel_view(os.getpid())


def test_programs_of_a_task_that_stand_elsewhere_are_named_one_by_one() -> None:
    same = [[dump(thread(("step", USER, 31)))] for _ in range(3)]
    assert summarise(same, ()).innermost == "train.py:31 in step"
    other = [*same, [dump(thread(("load", USER, 7)))], []]
    assert summarise(other, ()).innermost == (
        "process 0: train.py:31 in step; process 1: train.py:31 in step; "
        "process 2: train.py:31 in step; process 3: train.py:7 in load"
    )


def test_each_program_s_own_process_is_looked_at_before_anybody_s_children() -> None:
    programs = [[10 * n + child for child in range(5)] for n in range(4)]
    assert choose(programs, 6) == ([[0, 1], [10, 11], [20], [30]], 14)
    assert choose([[1, 2, 3], [], [4]], 3) == ([[1, 2], [], [4]], 1)
    assert choose(programs, 20) == (programs, 0)


def test_the_text_begins_with_the_programs_and_ends_with_how_many_were_not_looked_at() -> None:
    dumps = {pid: Dump(pid=pid, command=f"p{pid}") for pid in (1, 2, 3, 4)}
    text = summarise([[dumps[1], dumps[3]], [dumps[2], dumps[4]]], (), 40).text
    assert [line.split(":")[0] for line in text.splitlines() if line] == [
        *("Process 1", "Process 2", "Process 3", "Process 4"),
        "40 more processes were not looked at",
    ]


def test_a_text_too_long_to_send_says_so_at_its_end() -> None:
    assert shortened("short", "stacks/worker-0-1.txt") == "short"
    sent = shortened("x" * 2_000_000, "stacks/worker-0-1.txt")
    assert sent.startswith("x" * 1024 * 1024 + "\n… ")
    assert sent.endswith("left out here; all is in stacks/worker-0-1.txt in the job directory\n")
    assert shortened("x" * 2_000_000, "").endswith("the rest is left out here\n")


def test_processes_go_with_the_program_they_descend_from() -> None:
    parents = {10: 1, 11: 10, 12: 11, 20: 1, 21: 20, 30: 1, 31: 30}
    found = {pid: Stat(pid, parent, 0, 0, False, 0, 0.0, 0) for pid, parent in parents.items()}
    assert group(found, (20, 10)) == [[20, 21, 30, 31], [10, 11, 12]]
    del found[20]
    assert group(found, (20, 10)) == [[21, 30, 31], [10, 11, 12]]
    assert group({}, (20,)) == [[]]


def test_a_host_that_lets_nobody_look_is_explained() -> None:
    assert "ptrace_scope" in _explain("py-spy failed: Permission Denied: Try running again")
    assert _explain("py-spy failed: no such process") == "py-spy failed: no such process"
