"""How long a role may go on after others, and what serves beside a later stage."""

from __future__ import annotations

from howdah.core.messages import StartTask, StopTask, Task
from howdah.core.plan import Join, RolePlan
from howdah.core.state import Outcome
from howdah.spec.model import Lingering, Restart, Tracking
from tests.unit.core.bench import WORKER, Bench, workers

EVALUATOR = Task("evaluator", 0)


def evaluator(then: Lingering = Lingering.FAIL, after: tuple[str, ...] = ("worker",)) -> RolePlan:
    return RolePlan(
        name="evaluator",
        minimum=1,
        maximum=1,
        ranked=False,
        lingers_after=after,
        linger_s=60.0,
        linger_then=then,
    )


def test_the_time_of_a_lingering_role_begins_when_all_others_have_succeeded() -> None:
    bench = Bench(workers(2), evaluator())
    bench.run()
    bench.exit(WORKER[0], code=0)
    assert "evaluator" not in bench.state.linger
    bench.exit(WORKER[1], code=0)
    bench.wait(59.9)
    assert bench.state.outcome is None
    bench.wait(0.2)
    assert bench.state.outcome is Outcome.TIMED_OUT


def test_a_role_that_lingers_past_its_time_times_the_job_out_by_name() -> None:
    bench = Bench(workers(1), evaluator())
    bench.run()
    bench.exit(WORKER[0], code=0)
    bench.due()
    assert bench.state.outcome is Outcome.TIMED_OUT
    assert bench.state.reason == "evaluator:0 still ran 60s after worker had succeeded"
    assert "[roles.evaluator.linger]" in bench.state.advice


def test_a_role_that_ends_in_time_lets_the_job_succeed() -> None:
    bench = Bench(workers(1), evaluator())
    bench.run()
    bench.exit(WORKER[0], code=0)
    bench.exit(EVALUATOR, code=0)
    assert bench.state.outcome is Outcome.SUCCEEDED


def test_a_role_that_is_released_is_stopped_and_no_longer_decides() -> None:
    bench = Bench(workers(1), evaluator(Lingering.STOP))
    bench.run()
    bench.exit(WORKER[0], code=0)
    bench.due()
    assert bench.of(StopTask)[0].task == EVALUATOR
    assert bench.state.outcome is Outcome.SUCCEEDED
    assert bench.told("role-released")


def test_the_job_still_waits_for_others_when_a_role_is_released() -> None:
    other = RolePlan(name="other", minimum=1, maximum=1, ranked=False)
    bench = Bench(workers(1), evaluator(Lingering.STOP), other)
    bench.run()
    bench.exit(WORKER[0], code=0)
    bench.due()
    bench.end_stopping()
    assert bench.state.outcome is None
    assert "evaluator" not in bench.state.linger
    bench.exit(Task("other", 0), code=0)
    assert bench.state.outcome is Outcome.SUCCEEDED


def test_the_time_waits_for_every_role_it_names() -> None:
    chief = RolePlan(name="chief", minimum=1, maximum=1)
    bench = Bench(chief, workers(1), evaluator(after=("chief", "worker")))
    bench.run()
    bench.exit(Task("chief", 0), code=0)
    assert "evaluator" not in bench.state.linger
    bench.exit(WORKER[0], code=0)
    assert "evaluator" in bench.state.linger


def test_a_gang_that_restarts_begins_the_time_anew() -> None:
    bench = Bench(
        workers(1), evaluator(), restart_roles := RolePlan(name="x", minimum=1, maximum=1)
    )
    assert restart_roles.restart is Restart.GANG
    bench.run()
    bench.exit(WORKER[0], code=0)
    assert "evaluator" in bench.state.linger
    bench.exit(Task("x", 0), code=1)
    assert "evaluator" not in bench.state.linger
    bench.restart()
    bench.run()
    assert "evaluator" not in bench.state.linger
    bench.exit(WORKER[0], code=0)
    assert "evaluator" in bench.state.linger


def test_a_server_of_an_earlier_stage_serves_the_next_and_its_address_is_known() -> None:
    store = RolePlan(
        name="db", minimum=1, maximum=1, tracking=Tracking.UNTRACKED, ranked=False, join=Join.NOW
    )
    loader = RolePlan(name="loader", minimum=1, maximum=1, ranked=False, join=Join.NOW)
    bench = Bench(store, loader, workers(1, stage=1))
    bench.run()
    bench.exit(Task("loader", 0), code=0)
    bench.grant_all()
    bench.register_all()
    bench.prepare_all()
    (start,) = [c for c in bench.of(StartTask) if c.task == WORKER[0]]
    assert [str(member.task) for member in start.topology.members] == ["worker:0", "db:0"]
    assert start.topology.world_size == 1
    bench.join_all()
    bench.exit(WORKER[0], code=0)
    assert bench.state.outcome is Outcome.SUCCEEDED
    assert [stop.task for stop in bench.of(StopTask)] == [Task("db", 0)]


def test_what_a_step_printed_for_all_reaches_the_next_stage() -> None:
    step = RolePlan(name="preprocess", minimum=1, maximum=1, ranked=False, join=Join.NOW)
    bench = Bench(step, workers(1, stage=1))
    bench.run()
    bench.exit(Task("preprocess", 0), code=0, answer="lr=1")
    bench.grant_all()
    bench.register_all()
    bench.prepare_all()
    (start,) = [c for c in bench.of(StartTask) if c.task == WORKER[0]]
    assert start.answer == "lr=1"
