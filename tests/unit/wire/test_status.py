"""The status document of a state."""

from __future__ import annotations

import msgspec
import pytest

from howdah.core.causes import KERNEL_KILL, RULES, FailureCause
from howdah.core.machine import Machine
from howdah.core.messages import Exit, JobSubmitted, Task
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import Failure, FailureReport
from howdah.wire.status import FailureView, JobIdentity, view

IDENTITY = JobIdentity(
    name="digits", framework="command", user="ada", backend="local", directory=""
)


def failure(cause: FailureCause, exit: Exit | None) -> FailureView:
    machine = Machine()
    plan = Plan(job_id="digits-1", roles=(RolePlan(name="worker", minimum=2, maximum=2),))
    machine.handle(JobSubmitted(plan=plan), 0.0)
    report = FailureReport(
        task=Task("worker", 0),
        attempt=1,
        generation=1,
        cause=cause,
        time=1.0,
        what="worker:0 exited with code 1",
        exit=exit,
    )
    lines = exit.tail if exit is not None else ()
    machine.state.failures.append(Failure(report=report, counted=True, lines=lines))
    (found,) = view(machine.state, IDENTITY).failures
    return found


def test_a_port_the_program_chose_itself_is_named_with_what_to_do() -> None:
    found = failure(FailureCause.USER_CODE, Exit(code=1, port=8765))
    assert found.advice.startswith("Port 8765 was in use. Howdah did not reserve it")
    assert "HOWDAH_PORT" in found.advice


def test_a_reserved_port_that_was_taken_is_no_fault_of_the_program() -> None:
    found = failure(FailureCause.PORT_TAKEN, Exit(code=1, port=21525, port_taken=True))
    assert found.advice == RULES[FailureCause.PORT_TAKEN].advice


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '../data/x.csv'",
        "FileNotFoundError: ../data/x.csv not found.",
        "cat: ../data/x.csv: No such file or directory",
        "ls: cannot access '../data/x.csv': No such file or directory",
    ],
)
def test_a_file_that_is_not_in_the_copy_of_the_source_is_advised_on(line: str) -> None:
    found = failure(FailureCause.USER_CODE, Exit(code=1, tail=("Traceback", line)))
    assert found.advice.startswith("../data/x.csv is not where the program ran: in a copy of")
    assert "`files`" in found.advice and "absolute path" in found.advice


@pytest.mark.parametrize(
    "line",
    [
        "FileNotFoundError: [Errno 2] No such file or directory: '/data/x.csv'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'hdfs://data/x.csv'",
        "libcuda.so.1: cannot open shared object file: No such file or directory",
        "ValueError: no rows",
    ],
)
def test_what_a_copy_of_the_source_does_not_explain_is_not_advised_on(line: str) -> None:
    found = failure(FailureCause.USER_CODE, Exit(code=1, tail=("Traceback", line)))
    assert found.advice == RULES[FailureCause.USER_CODE].advice
    frame = "    raise child_exception_type(errno_num, err_msg, err_filename)  # _execute_child"
    lost = "FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'"
    found = failure(FailureCause.USER_CODE, Exit(code=1, tail=(frame, lost)))
    assert found.advice == RULES[FailureCause.USER_CODE].advice


@pytest.mark.parametrize(
    "line",
    [
        "/bin/sh: 1: exec: ./run.sh: Permission denied",
        "sh: line 1: ./run.sh: Permission denied",
        "bash: ./run.sh: Permission denied",
    ],
)
def test_a_script_that_is_not_executable_is_named_with_what_makes_it_so(line: str) -> None:
    found = failure(FailureCause.START_FAILED, Exit(code=126, tail=(line,)))
    assert found.advice.startswith("./run.sh is not executable: `chmod +x ./run.sh`")
    assert "`sh ./run.sh`" in found.advice
    other = failure(FailureCause.START_FAILED, Exit(code=126, tail=("exec format error",)))
    assert other.advice == RULES[FailureCause.START_FAILED].advice
    python = failure(
        FailureCause.START_FAILED, Exit(code=126, tail=(line.replace(".sh:", ".py:"),))
    )
    assert "`python ./run.py`" in python.advice


def test_a_missing_module_is_advised_to_be_installed_into_the_python_that_ran() -> None:
    defect = "ModuleNotFoundError: No module named 'torch.nn' (train.py, line 3), Python: /opt/py/bin/python"
    exit = Exit(code=1, defect=defect, defect_certain=True)
    advice = failure(FailureCause.START_FAILED, exit).advice
    assert "`/opt/py/bin/python -m pip install …`" in advice and "has no module torch" in advice
    assert "[environment]" in advice
    of_main = msgspec.structs.replace(
        exit, defect="No module named gone (Python: /opt/py/bin/python)"
    )
    assert failure(FailureCause.START_FAILED, of_main).advice == advice.replace("torch", "gone")


def test_who_ran_out_of_memory_is_told_which_limit_to_raise() -> None:
    by_agent = Exit(signal=9, out_of_memory=True, detail="used 213 MB of 200 MB")
    for exit in (by_agent, None):
        found = failure(FailureCause.OUT_OF_MEMORY, exit)
        assert found.advice.startswith("Raise `roles.worker.memory`, which limits each")
    by_kernel = Exit(signal=9, out_of_memory=True, detail=f"{KERNEL_KILL}: oom_kill")
    advice = failure(FailureCause.OUT_OF_MEMORY, by_kernel).advice
    assert "`roles.worker.memory`" in advice and "`spark.executor.memoryOverhead`" in advice


def test_an_error_of_the_program_has_its_own_advice() -> None:
    found = failure(FailureCause.USER_CODE, Exit(code=1))
    assert found.advice == RULES[FailureCause.USER_CODE].advice
