"""The status document of a state."""

from __future__ import annotations

from howdah.core.causes import RULES, FailureCause
from howdah.core.machine import Machine
from howdah.core.messages import Exit, JobSubmitted, Task
from howdah.core.plan import Plan, RolePlan
from howdah.core.state import Failure, FailureReport
from howdah.wire.status import FailureView, JobIdentity, view

IDENTITY = JobIdentity(
    name="digits", framework="command", user="ada", backend="local", directory=""
)


def failure(cause: FailureCause, exit: Exit) -> FailureView:
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
    machine.state.failures.append(Failure(report=report, counted=True))
    (found,) = view(machine.state, IDENTITY).failures
    return found


def test_a_port_the_program_chose_itself_is_named_with_what_to_do() -> None:
    found = failure(FailureCause.USER_CODE, Exit(code=1, port=8765))
    assert found.advice.startswith("Port 8765 was in use. Howdah did not reserve it")
    assert "HOWDAH_PORT" in found.advice


def test_a_reserved_port_that_was_taken_is_no_fault_of_the_program() -> None:
    found = failure(FailureCause.PORT_TAKEN, Exit(code=1, port=21525, port_taken=True))
    assert found.advice == RULES[FailureCause.PORT_TAKEN].advice


def test_an_error_of_the_program_has_its_own_advice() -> None:
    found = failure(FailureCause.USER_CODE, Exit(code=1))
    assert found.advice == RULES[FailureCause.USER_CODE].advice
