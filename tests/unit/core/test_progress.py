"""Silence and hangs, as the coordinator's trackers see them."""

from __future__ import annotations

import pytest

from howdah.core.messages import ContainerGranted, DumpStacks, TaskHung
from howdah.core.plan import Join, RolePlan
from howdah.core.progress import HangWatch, Liveness
from howdah.spec.model import Mode, Restart
from tests.unit.core.bench import WORKER, Bench, workers


def test_an_agent_is_silent_once_after_missed_beats() -> None:
    liveness = Liveness(5.0)
    liveness.heartbeat("c1", 100.0)
    liveness.heartbeat("c2", 103.0)
    assert liveness.due(104.0) == []
    assert liveness.due(106.0) == [("c1", 6.0)]
    assert liveness.due(107.0) == []


def test_a_closed_connection_is_not_silence_and_a_new_beat_counts_again() -> None:
    liveness = Liveness(5.0)
    liveness.heartbeat("c1", 100.0)
    liveness.forget("c1")
    assert liveness.due(200.0) == []
    liveness.heartbeat("c1", 300.0)
    assert liveness.due(306.0) == [("c1", 6.0)]


def test_a_gang_hangs_only_when_no_rank_makes_progress() -> None:
    bench = Bench(workers(2, hang_s=10.0))
    bench.run()
    watch = HangWatch(bench.state.job, bench.now)
    start = bench.now
    watch.observe(WORKER[0], 1, start + 8.0)
    assert watch.due(bench.state, start + 15.0) == []
    ((task, attempt, idle),) = watch.due(bench.state, start + 18.5)
    assert (task, attempt) == (WORKER[1], 1)
    assert idle > 18


def test_tasks_that_restart_alone_are_watched_alone() -> None:
    bench = Bench(workers(2, hang_s=10.0, restart=Restart.TASK))
    bench.run()
    watch = HangWatch(bench.state.job, bench.now)
    watch.observe(WORKER[0], 1, bench.now + 9.0)
    found = watch.due(bench.state, bench.now + 12.0)
    assert [task for task, _, _ in found] == [WORKER[1]]


def test_independent_tasks_that_are_never_restarted_are_watched_alone() -> None:
    bench = Bench(workers(2, hang_s=10.0, restart=Restart.NEVER, join=Join.NOW))
    bench.run()
    watch = HangWatch(bench.state.job, bench.now)
    watch.observe(WORKER[0], 1, bench.now + 9.0)
    found = watch.due(bench.state, bench.now + 12.0)
    assert [task for task, _, _ in found] == [WORKER[1]]


@pytest.mark.parametrize("restart", list(Restart))
def test_in_mode_each_a_task_hangs_whatever_the_others_do(restart: Restart) -> None:
    """Others wait for their containers, and one makes progress."""
    bench = Bench(workers(3, hang_s=10.0, restart=restart), mode=Mode.EACH)
    for number in (1, 2):
        bench.tell(ContainerGranted(request_id=number, container_id=f"c{number}", node="n"))
    bench.register_all()
    bench.prepare_all()
    bench.join_all()
    watch = HangWatch(bench.state.job, bench.now)
    watch.observe(WORKER[0], 1, bench.now + 9.0)
    ((task, attempt, idle),) = watch.due(bench.state, bench.now + 12.0)
    assert task == WORKER[1]
    bench.tell(TaskHung(task=task, attempt=attempt, idle_s=idle))
    assert [command.task for command in bench.of(DumpStacks)] == [WORKER[1]]


def test_servers_that_only_serve_and_roles_without_limit_never_hang() -> None:
    bench = Bench(
        workers(1, hang_s=None),
        RolePlan(name="ps", minimum=1, maximum=1, watched=False, hang_s=1.0),
    )
    bench.run()
    watch = HangWatch(bench.state.job, bench.now)
    assert not watch.needed
    assert watch.due(bench.state, bench.now + 1000.0) == []


def test_a_new_coordinator_counts_silence_from_its_own_start() -> None:
    bench = Bench(workers(1, hang_s=10.0))
    bench.run()
    taken_over = bench.now + 500.0
    watch = HangWatch(bench.state.job, taken_over)
    assert watch.due(bench.state, taken_over + 5.0) == []
    assert watch.due(bench.state, taken_over + 11.0)
