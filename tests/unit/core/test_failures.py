"""FailureCause, restarts in place, budgets, hangs, and how a job ends."""

from __future__ import annotations

import pytest

from howdah.core.causes import RULES, FailureCause, describe_exit, of_exit
from howdah.core.messages import (
    AgentDisconnected,
    AgentRegistered,
    CheckpointSaved,
    ContainerEnded,
    ContainerEndKind,
    ContainerGranted,
    CoordinatorStarted,
    DumpStacks,
    Exit,
    Held,
    HeldPhase,
    Level,
    PreemptionNoticed,
    PrepareTask,
    Record,
    ReleaseContainer,
    StacksTaken,
    StopRequested,
    StopTask,
    Task,
    TaskHung,
)
from howdah.core.plan import Join, RolePlan
from howdah.core.state import JobPhase, Outcome, TaskState
from howdah.spec.model import Restart, Tracking
from tests.unit.core.bench import WORKER, Bench, workers


@pytest.mark.parametrize(
    ("exit", "cause"),
    [
        (Exit(code=1), FailureCause.USER_CODE),
        (Exit(code=42), FailureCause.USER_CODE),
        (Exit(signal=9), FailureCause.SIGNAL),
        (Exit(signal=15), FailureCause.SIGNAL),
        (Exit(code=137), FailureCause.SIGNAL),  # 137 alone never proves a lack of memory
        (Exit(signal=6), FailureCause.USER_CODE),  # an abort is the program's own, or an echo
        (Exit(signal=11), FailureCause.USER_CODE),
        (Exit(signal=13), FailureCause.USER_CODE),  # a broken pipe: its reader went first
        (Exit(signal=9, out_of_memory=True), FailureCause.OUT_OF_MEMORY),
        (Exit(code=1, port_taken=True), FailureCause.PORT_TAKEN),
        (Exit(code=127), FailureCause.START_FAILED),
        (Exit(failed_to_start="train.py: no such file"), FailureCause.START_FAILED),
        (Exit(signal=9, timed_out=True), FailureCause.RUN_TIMEOUT),
    ],
)
def test_an_exit_is_put_down_to(exit: Exit, cause: FailureCause) -> None:
    assert of_exit(exit) is cause


def test_only_what_is_the_jobs_own_fault_counts() -> None:
    free = {cause for cause, rule in RULES.items() if not rule.counted}
    assert free == {
        FailureCause.NODE_LOST,
        FailureCause.PREEMPTED,
        FailureCause.LAUNCH_FAILED,
        FailureCause.COORDINATOR_LOST,
        FailureCause.AGENT_LOST,
        FailureCause.PORT_TAKEN,
        FailureCause.NOT_READY,
    }
    assert set(RULES) == set(FailureCause)


def test_exit_texts_name_the_signal_and_the_code() -> None:
    assert describe_exit(Exit(code=42)) == "exited with code 42"
    assert describe_exit(Exit(signal=9)) == "'s user process was killed (SIGKILL)"
    assert describe_exit(Exit(timed_out=True), 90.0) == "ran longer than its run time-out of 90s"
    assert "its shell exited with code 137" in describe_exit(Exit(code=137))


def test_survivors_are_ended_at_once_and_the_gang_restarts_in_its_containers() -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[1], signal=9)
    assert [(s.task, s.grace_s) for s in bench.of(StopTask)] == [(WORKER[0], 0.5)]
    bench.end_stopping()
    bench.due()
    assert [(p.task, p.attempt, p.generation) for p in bench.of(PrepareTask)] == [
        (WORKER[0], 2, 2),
        (WORKER[1], 2, 2),
    ]
    (failure,) = bench.state.failures
    assert failure.report.what == "worker:1's user process was killed (SIGKILL)"
    assert failure.counted


@pytest.mark.parametrize("stopped", [True, None])  # None: an agent that does not say
def test_a_kill_by_our_own_stop_accuses_nobody(stopped: bool | None) -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[0], code=1, stopped=False)
    bench.exit(WORKER[1], signal=9, stopped=stopped)
    bench.due()
    (failure,) = bench.state.failures
    assert failure.report.task == WORKER[0]
    assert failure.secondary == 0
    assert bench.told("task-stopped") == ["worker:1 was stopped"]


@pytest.mark.parametrize(
    ("first", "echo"),
    [
        ({"signal": 9}, {"code": 1}),
        ({"signal": 9}, {"signal": 6}),
        ({"code": 42}, {"code": 1}),  # equals: the one that was heard first
        ({"code": 42}, {"signal": 6}),
        ({"code": 42}, {"signal": 13}),
    ],
)
def test_a_survivor_that_fails_by_itself_before_our_stop_is_an_echo(
    first: dict[str, int], echo: dict[str, int]
) -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[1], **first, stopped=False)
    bench.exit(WORKER[0], **echo, stopped=False)
    bench.due()
    (failure,) = bench.state.failures
    assert failure.report.task == WORKER[1]
    assert bench.state.units["gang"].counted == 1


def test_a_survivor_that_fails_before_our_stop_does_not_outweigh_a_lost_node() -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[0], signal=9, stopped=False)
    bench.tell(ContainerEnded(container_id="c2", kind=ContainerEndKind.NODE_LOST))
    bench.due()
    (failure,) = bench.state.failures
    assert failure.report.cause is FailureCause.NODE_LOST
    assert not failure.counted


def test_a_success_that_is_heard_while_the_gang_is_ended_accuses_nobody() -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[0], code=1, stopped=False)
    bench.exit(WORKER[1], code=0, stopped=False)
    bench.due()
    (failure,) = bench.state.failures
    assert (failure.report.task, failure.secondary) == (WORKER[0], 0)


def test_who_fails_while_the_job_ends_accuses_nobody() -> None:
    bench = Bench()
    bench.run()
    bench.tell(StopRequested(by="a user"))
    bench.exit(WORKER[0], code=1, stopped=False)
    bench.exit(WORKER[1], signal=15, stopped=True)
    assert bench.told("task-failed") == []
    assert bench.state.outcome is Outcome.STOPPED


def test_a_preempted_container_is_blamed_on_preemption_and_programs_are_asked_to_save() -> None:
    bench = Bench()
    bench.run()
    bench.tell(PreemptionNoticed(container_id="c2", deadline_s=5.0))
    assert bench.kinds() == ["NotifyCheckpoint", "NotifyCheckpoint"]
    bench.tell(ContainerEnded(container_id="c2", kind=ContainerEndKind.EXITED))
    bench.restart()
    assert bench.state.failures[0].report.cause is FailureCause.PREEMPTED


@pytest.mark.parametrize(
    ("kind", "cause", "counted"),
    [
        (ContainerEndKind.PREEMPTED, FailureCause.PREEMPTED, False),
        (ContainerEndKind.OUT_OF_MEMORY, FailureCause.OUT_OF_MEMORY, True),
        (ContainerEndKind.NODE_LOST, FailureCause.NODE_LOST, False),
        (ContainerEndKind.EXITED, FailureCause.AGENT_LOST, False),
    ],
)
@pytest.mark.parametrize("how", [{"code": 0}, {"signal": 15}, {"code": 1}])
def test_a_program_ended_by_its_agent_is_put_down_to_what_the_backend_says(
    kind: ContainerEndKind, cause: FailureCause, counted: bool, how: dict[str, int]
) -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[1], **how, stopped=True)
    assert bench.told("task-succeeded") == []
    assert bench.of(ReleaseContainer) == [], "that would become the reason"
    assert [s.task for s in bench.of(StopTask)] == [WORKER[0]]
    bench.end_stopping()
    bench.due()
    assert bench.phase is JobPhase.FAILURE_WINDOW, "the backend's word is awaited"
    bench.tell(ContainerEnded(container_id="c2", kind=kind))
    (failure,) = bench.state.failures
    assert (failure.report.cause, failure.counted) == (cause, counted)
    assert failure.report.task == WORKER[1]
    assert list(bench.state.requests.values()) == [WORKER[1]]


def test_a_container_whose_agent_was_ended_is_given_back_if_the_backend_says_nothing() -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[1], signal=15, stopped=True)
    bench.end_stopping()
    bench.tell(AgentDisconnected(container_id="c2"))
    bench.due()
    assert [r.container_id for r in bench.of(ReleaseContainer)] == ["c2"]
    bench.tell(ContainerEnded(container_id="c2", kind=ContainerEndKind.RELEASED))
    bench.due()
    (failure,) = bench.state.failures
    assert failure.report.cause is FailureCause.AGENT_LOST


def test_a_container_whose_agent_was_ended_is_given_back_at_once_when_the_job_ends() -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[1], signal=15, stopped=True)
    bench.tell(StopRequested(by="a user"))
    assert "c2" in [r.container_id for r in bench.of(ReleaseContainer)]


def test_a_node_is_not_at_fault_for_what_was_taken_back() -> None:
    bench = Bench()
    bench.run()
    bench.exit(WORKER[1], signal=15, stopped=True)
    assert bench.state.node_faults == {}


def test_a_lone_task_waits_for_the_backends_word_too() -> None:
    bench = Bench(workers(restart=Restart.TASK))
    bench.run()
    bench.exit(WORKER[1], signal=15, stopped=True)
    bench.wait(1.0)
    assert bench.state.failures == []
    bench.tell(ContainerEnded(container_id="c2", kind=ContainerEndKind.OUT_OF_MEMORY))
    (failure,) = bench.state.failures
    assert (failure.report.cause, failure.counted) == (FailureCause.OUT_OF_MEMORY, True)
    assert bench.task(WORKER[0]).state.value == "running"


def test_a_connection_that_comes_back_in_time_changes_nothing() -> None:
    bench = Bench()
    bench.run()
    bench.tell(AgentDisconnected(container_id="c1"))
    held = Held(task=WORKER[0], attempt=1, generation=1, phase=HeldPhase.RUNNING, joined=True)
    bench.tell(AgentRegistered(container_id="c1", host="host", held=held))
    assert bench.kinds() == []
    bench.wait(100.0)
    assert bench.phase is JobPhase.RUNNING


def test_a_task_waits_no_longer_for_an_agent_that_comes_back_with_another_one() -> None:
    board = RolePlan(
        name="board", minimum=1, maximum=1, tracking=Tracking.SIDECAR, ranked=False, join=Join.NOW
    )
    bench = Bench(workers(), board)
    task = Task("board", 0)
    (request,) = [number for number, asked in bench.state.requests.items() if asked == task]
    bench.tell(ContainerGranted(request_id=request, container_id="c", node="node"))
    bench.tell(AgentRegistered(container_id="c", host="host"))
    bench.tell(AgentDisconnected(container_id="c"))
    while bench.task(task).container_id is not None:
        bench.due()
    bench.wait(5.0)  # its failure window closes
    held = Held(task=WORKER[0], attempt=0, generation=1, phase=HeldPhase.PREPARED)
    bench.tell(AgentRegistered(container_id="c", host="host", held=held))
    assert "task-restarting" in [record.kind for record in bench.of(Record)]


def test_repeated_failures_wait_longer_until_a_checkpoint_shows_progress() -> None:
    bench = Bench(workers(1, attempts=9), backoff_s=1.0)
    delays: list[float] = []
    for progress in (False, False, False, True):
        bench.run()
        if progress:
            bench.tell(CheckpointSaved(task=WORKER[0], attempt=4, name="000007"))
        bench.exit(WORKER[0], code=1)
        failed_at = bench.now
        while bench.task(WORKER[0]).state is TaskState.ENDED:
            bench.due()
        delays.append(bench.now - failed_at - bench.plan.failure_window_s)
    assert delays[0] == pytest.approx(0.0)
    assert 0.5 <= delays[1] < 1.5 <= 2 * delays[1] < 3.0
    assert 1.0 <= delays[2] < 3.0
    assert delays[3] == pytest.approx(0.0)
    assert bench.of(PrepareTask)[0].restore == "000007"


def test_restart_never_fails_the_job_with_the_tasks_own_exit_code() -> None:
    bench = Bench(workers(2, restart=Restart.NEVER))
    bench.run()
    bench.exit(WORKER[1], code=42, tail=("ValueError: bad label",))
    bench.end_stopping()
    bench.due()
    assert bench.state.outcome is Outcome.FAILED
    (failure,) = bench.state.failures
    assert failure.report.exit is not None
    assert failure.report.exit.code == 42
    assert failure.lines == ("ValueError: bad label",)


def test_a_command_that_does_not_exist_is_not_tried_again() -> None:
    bench = Bench(workers(1, attempts=5))
    bench.run()
    bench.exit(WORKER[0], code=127)
    bench.due()
    assert bench.state.outcome is Outcome.FAILED
    assert "trying again would not help" in bench.state.reason


def test_a_task_that_restarts_alone_leaves_its_peers_running_and_keeps_its_port() -> None:
    bench = Bench(workers(2, restart=Restart.TASK, sticky_ports=True))
    bench.run()
    bench.exit(WORKER[1], code=1)
    assert bench.of(StopTask) == []
    bench.due()
    (prepare,) = bench.of(PrepareTask)
    assert (prepare.task, prepare.attempt, prepare.generation) == (WORKER[1], 2, 1)
    assert prepare.keep_ports == (20000,)
    assert bench.task(WORKER[0]).attempt == 1


def test_stop_on_failure_ends_the_job_whatever_budget_is_left() -> None:
    ps = RolePlan(
        name="ps", minimum=1, maximum=1, tracking=Tracking.UNTRACKED, stop_on_failure=True,
        ranked=False,
    )  # fmt: skip
    bench = Bench(ps, workers(1))
    bench.run()
    bench.exit(Task("ps", 0), code=1)
    bench.end_stopping()
    bench.due()
    assert bench.state.outcome is Outcome.FAILED
    assert "stop-on-failure" in bench.state.reason


def test_a_hang_takes_everybodys_stacks_before_it_ends_the_gang() -> None:
    bench = Bench(workers(2, hang_s=10.0))
    bench.run()
    bench.tell(TaskHung(task=WORKER[1], attempt=1, idle_s=11.0))
    assert [d.task for d in bench.of(DumpStacks)] == WORKER[:2]
    bench.tell(StacksTaken(task=WORKER[0], attempt=1, innermost="train.py:9 in all_reduce"))
    assert bench.of(StopTask) == []
    bench.tell(StacksTaken(task=WORKER[1], attempt=1, innermost="train.py:31 in spin"))
    assert {s.task for s in bench.of(StopTask)} == set(WORKER[:2])
    bench.restart()
    (failure,) = bench.state.failures
    assert failure.report.cause is FailureCause.HANG
    assert failure.lines == (
        "worker:0: train.py:9 in all_reduce",
        "worker:1: train.py:31 in spin",
    )


def test_the_job_succeeds_when_all_tracked_tasks_have_and_then_gives_everything_back() -> None:
    ps = RolePlan(name="ps", minimum=1, maximum=1, tracking=Tracking.UNTRACKED, ranked=False)
    bench = Bench(ps, workers(2))
    bench.run()
    bench.exit(WORKER[0], code=0)
    assert bench.state.outcome is None
    bench.exit(WORKER[1], code=0)
    assert bench.state.outcome is Outcome.SUCCEEDED
    assert [s.task for s in bench.of(StopTask)] == [Task("ps", 0)]
    bench.end_stopping()
    assert len(bench.of(ReleaseContainer)) == 3
    for number in (1, 2, 3):
        bench.tell(ContainerEnded(container_id=f"c{number}", kind=ContainerEndKind.RELEASED))
    assert bench.kinds() == ["FinishJob"]
    assert bench.phase is JobPhase.FINISHED


def test_a_stop_is_graceful_and_the_second_one_firm() -> None:
    bench = Bench(workers(1, grace_s=10.0))
    bench.run()
    bench.tell(StopRequested(by="ann"))
    assert [s.grace_s for s in bench.of(StopTask)] == [10.0]
    bench.tell(StopRequested(by="ann", firm=True))
    assert [s.grace_s for s in bench.of(StopTask)] == [0.0]
    assert bench.state.outcome is Outcome.STOPPED


def test_what_a_user_wanted_is_told_as_no_error() -> None:
    bench = Bench(workers(1))
    bench.run()
    bench.tell(StopRequested(by="ann"))
    assert [r.level for r in bench.of(Record) if r.kind == "finishing"] == [Level.WARNING]


def test_a_program_that_will_not_end_loses_its_container() -> None:
    bench = Bench(workers(1))
    bench.run()
    bench.tell(StopRequested(by="ann"))
    bench.due()
    assert [r.container_id for r in bench.of(ReleaseContainer)] == ["c1"]


@pytest.mark.parametrize(
    ("total_s", "waited_s", "left_s"),
    [(60.0, 0.0, 60.0), (7200.0, 3600.0, 3600.0), (7200.0, 9000.0, 60.0), (20.0, 9000.0, 20.0)],
)
def test_the_total_timeout_counts_what_the_job_has_waited_in_its_queue(
    total_s: float, waited_s: float, left_s: float
) -> None:
    bench = Bench(workers(1), waited_s=waited_s, total_s=total_s)
    began = bench.now
    bench.run()
    bench.due()
    assert bench.state.outcome is Outcome.TIMED_OUT
    assert bench.now == began + left_s


def test_a_new_coordinator_waits_longer_for_the_agents_of_a_large_gang() -> None:
    bench = Bench(workers(8), takeover_s=20.0)
    bench.run()
    bench.tell(CoordinatorStarted(incarnation=2, containers=tuple(bench.state.containers)))
    bench.wait(20.3)
    assert bench.phase is JobPhase.RUNNING
    bench.wait(0.2)
    assert bench.phase is JobPhase.FAILURE_WINDOW


def test_where_agents_listen_is_known_to_the_next_coordinator() -> None:
    bench = Bench()
    bench.run()
    containers = bench.state.containers
    assert containers["c1"].listen is None
    for port in (25000, 25001):  # an agent that was replaced may have another one
        bench.tell(AgentRegistered(container_id="c1", host="host", listen=("10.0.0.7", port)))
        assert containers["c1"].listen == ("10.0.0.7", port)
    bench.tell(CoordinatorStarted(incarnation=2, containers=("c1", "c2")))
    assert containers["c1"].listen == ("10.0.0.7", 25001)
    assert not containers["c1"].connected


def test_what_ended_without_a_coordinator_is_nobodys_fault() -> None:
    bench = Bench()
    bench.run()
    bench.tell(CoordinatorStarted(incarnation=2, containers=("c1",)))
    held = Held(task=WORKER[0], attempt=1, generation=1, phase=HeldPhase.RUNNING)
    bench.tell(AgentRegistered(container_id="c1", host="host", held=held))
    bench.restart()
    assert bench.state.failures[0].report.cause is FailureCause.COORDINATOR_LOST
    assert not bench.state.failures[0].counted


def test_an_exit_that_nobody_heard_is_told_when_the_agent_comes_back() -> None:
    bench = Bench(workers(1))
    bench.run()
    bench.tell(CoordinatorStarted(incarnation=2, containers=("c1",)))
    held = Held(task=WORKER[0], attempt=1, generation=1, phase=HeldPhase.EXITED, exit=Exit(code=0))
    bench.tell(AgentRegistered(container_id="c1", host="host", held=held))
    assert bench.state.outcome is Outcome.SUCCEEDED
