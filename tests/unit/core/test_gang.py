"""How a gang comes together."""

from __future__ import annotations

from howdah.core.messages import (
    AgentRegistered,
    CancelRequests,
    ContainerGranted,
    LaunchAgent,
    PrepareTask,
    ReleaseContainer,
    RequestContainers,
    RequestRefused,
    StartTask,
    Task,
    TaskJoined,
    TaskPrepared,
    TaskStarted,
)
from howdah.core.plan import Join, RolePlan
from howdah.core.state import Outcome
from tests.unit.core.bench import WORKER, Bench, workers


def test_nobody_is_prepared_before_all_have_registered() -> None:
    bench = Bench()
    bench.grant_all()
    assert bench.of(LaunchAgent)[0].task == WORKER[1]
    bench.tell(AgentRegistered(container_id="c1", host="a"))
    assert bench.kinds() == []
    bench.tell(AgentRegistered(container_id="c2", host="b"))
    assert [(c.task, c.attempt, c.generation) for c in bench.of(PrepareTask)] == [
        (WORKER[0], 1, 1),
        (WORKER[1], 1, 1),
    ]


def test_nobody_starts_before_all_are_prepared_and_everybody_gets_the_same_topology() -> None:
    bench = Bench()
    bench.grant_all()
    bench.register_all()
    bench.tell(TaskPrepared(task=WORKER[1], attempt=1, host="b", ports=(21,)))
    assert bench.kinds() == []
    bench.tell(TaskPrepared(task=WORKER[0], attempt=1, host="a", ports=(20,)))
    starts = bench.of(StartTask)
    assert [s.task for s in starts] == WORKER[:2]
    assert starts[0].topology == starts[1].topology
    members = starts[0].topology.members
    assert [(m.host, m.ports, m.rank) for m in members] == [("a", (20,), 0), ("b", (21,), 1)]


def test_ranks_are_unique_over_chief_and_workers_with_several_processes() -> None:
    chief = RolePlan(name="chief", minimum=1, maximum=1, chief=True)
    bench = Bench(
        RolePlan(name="worker", minimum=2, maximum=2, processes=4),
        chief,
        RolePlan(name="evaluator", minimum=1, maximum=1, ranked=False),
    )
    bench.run()
    topology = bench.topology
    assert topology.world_size == 9
    assert {str(m.task): m.rank for m in topology.members} == {
        "chief:0": 0,
        "worker:0": 1,
        "worker:1": 5,
        "evaluator:0": None,
    }


def test_a_part_of_a_gang_is_given_back_after_the_hold_and_asked_for_again() -> None:
    bench = Bench(workers(2), hold_s=30.0)
    bench.tell(ContainerGranted(request_id=1, container_id="c1", node="n"))
    bench.due()
    assert [c.request_ids for c in bench.of(CancelRequests)] == [(2,)]
    assert [c.container_id for c in bench.of(ReleaseContainer)] == ["c1"]
    bench.due()
    (request,) = bench.of(RequestContainers)
    assert len(request.requests) == 2
    assert "were given back" in bench.told("gang-incomplete")[0]


def test_the_hold_never_breaks_a_gang_whose_containers_are_all_there() -> None:
    bench = Bench(workers(2))
    bench.grant_all()
    bench.wait(100.0)
    assert bench.told("gang-incomplete") == []
    assert len(bench.state.containers) == 2


def test_the_allocation_timeout_names_who_got_no_container() -> None:
    bench = Bench(workers(3), allocation_s=60.0, hold_s=1000.0)
    bench.tell(ContainerGranted(request_id=2, container_id="c2", node="n"))
    bench.tell(AgentRegistered(container_id="c2", host="h"))
    bench.due()
    assert bench.state.outcome is Outcome.TIMED_OUT
    assert bench.state.reason == (
        "allocation time-out after 60s: no container for worker:0, worker:2"
    )


def test_a_request_that_can_never_be_granted_ends_the_job_with_the_backends_words() -> None:
    bench = Bench()
    bench.tell(RequestRefused(request_id=1, reason="no node has 9 GPUs; the largest has 4"))
    assert bench.state.outcome is Outcome.FAILED
    assert "worker:0 can never get its container: no node has 9 GPUs" in bench.state.reason


def test_the_startup_timeout_says_who_was_to_tell_that_it_has_joined() -> None:
    bench = Bench(workers(1, startup_s=60.0, join=Join.REPORT))
    bench.grant_all()
    bench.register_all()
    bench.prepare_all()
    bench.tell(TaskStarted(task=WORKER[0], attempt=1, pids=(1,)))
    bench.due()
    assert bench.state.reason == (
        "start-up time-out after 60s: worker:0 never joined (its program runs, but did not say so)"
    )


def test_the_startup_timeout_names_who_is_missing_and_who_waits() -> None:
    bench = Bench(workers(2, startup_s=60.0))
    bench.grant_all()
    bench.register_all()
    bench.prepare_all()
    for task in WORKER[:2]:
        bench.tell(TaskStarted(task=task, attempt=1, pids=(1,)))
    bench.tell(TaskJoined(task=WORKER[0], attempt=1))
    bench.due()
    assert bench.state.outcome is Outcome.TIMED_OUT
    assert bench.state.reason.startswith(
        "start-up time-out after 60s: worker:1 never joined (its program runs, but neither listens"
    )
    assert bench.state.reason.endswith("waiting for it: worker:0")


def test_an_agent_that_does_not_register_costs_its_container_and_another_is_asked_for() -> None:
    bench = Bench(workers(1))
    bench.grant_all()
    bench.due()
    assert bench.kinds() == ["ReleaseContainer", "RequestContainers"]


def test_containers_of_a_stage_are_asked_for_when_the_one_before_has_succeeded() -> None:
    bench = Bench(
        RolePlan(name="prepare", minimum=1, maximum=1, ranked=False, join=Join.NOW),
        workers(1, stage=1),
    )
    bench.run()
    assert bench.task("worker:0").request_id is None
    bench.exit(Task("prepare", 0), code=0)
    (request,) = bench.of(RequestContainers)
    assert [r.role for r in request.requests] == ["worker"]
    bench.run()
    bench.exit(WORKER[0], code=0)
    assert bench.state.outcome is Outcome.SUCCEEDED
