"""Directed stories of jobs in trouble: each is told to its end, and the end is asserted.

What runs is what the pretended cluster says, not what the machine believes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from howdah.core.causes import FailureCause
from howdah.core.messages import (
    CheckpointSaved,
    ContainerEndKind,
    Exit,
    PreemptionNoticed,
    TaskExited,
    TimePassed,
)
from howdah.core.plan import Completion, Join, Plan
from howdah.core.state import JobPhase, Outcome, TaskState
from howdah.spec.model import Lingering, Mode, Restart
from tests.simulation.cluster import Habits
from tests.simulation.plans import plan, role, server, sidecar
from tests.simulation.world import World

HOURS_S = 2 * 3600.0
WEEK_S = 7 * 86400.0
NO_STORE = Exit(failed_to_start="its checkpoint can't be restored: safe mode", transient=True)
NO_PROGRAM = Exit(failed_to_start="no such file: train.py")


def running(job: Plan, habits: Habits | None = None, *, nodes: int = 4, seed: int = 1) -> World:
    """A world whose job has come up."""
    world = World(job, seed, habits, nodes=nodes)
    world.until(lambda: world.state.phase is JobPhase.RUNNING)
    names = [f"{r.name}:{i}" for r in job.roles if r.stage == 0 for i in range(r.minimum)]
    world.until(lambda: world.runs(*names))
    return world


def staged(mode: Mode = Mode.GANG, workers: int = 1, **server_fields: object) -> World:
    """A world whose preparing stage is done: its server and the second stage run."""
    fields = {"restart": Restart.TASK, "join": Join.NOW, **server_fields}
    world = World(
        plan(
            role("prepare", restart=Restart.TASK, ranked=False, join=Join.NOW),
            server("database", **fields),
            role("worker", workers, stage=1, join=Join.NOW, attempts=5),
            sidecar(),
            mode=mode,
        )
    )
    world.until(lambda: world.runs("prepare:0", "database:0"))
    world.succeed("prepare:0")
    workers_up = [f"worker:{i}" for i in range(workers)]
    world.until(lambda: world.runs("database:0", "tensorboard:0", *workers_up))
    return world


def succeeds(world: World, *names: str) -> None:
    """These programs end well, and with them the job."""
    world.succeed(*names)
    state = world.run(2000.0)
    assert (state.outcome, state.unsaved) == (Outcome.SUCCEEDED, []), state.reason


def saves_all(world: World, outcome: Outcome) -> None:
    """The job ends so, however long that takes, and all is saved."""
    state = world.run()
    assert (state.outcome, state.unsaved) == (outcome, []), state.reason


def ends(world: World, outcome: Outcome, limit_s: float = 1000.0) -> str:
    """The job ends so within that time; returns the reason."""
    state = world.run(limit_s)
    assert state.outcome is outcome, state.reason
    return state.reason


# -- the plain stories --------------------------------------------------------------------------------


def test_a_gang_with_servers_and_a_sidecar_starts_and_succeeds() -> None:
    world = running(plan(server(tasks=2), role("worker", 3, after=("ps",)), sidecar()))
    assert world.runs("ps:0", "ps:1", "worker:0", "worker:1", "worker:2")
    world.until(lambda: world.runs("tensorboard:0"))
    succeeds(world, "worker:0", "worker:1", "worker:2")
    assert world.state.restarts == 0


def test_after_a_crash_the_whole_gang_restarts_in_its_containers() -> None:
    world = running(plan(server(), role("worker", 2), sidecar()))
    world.until(lambda: world.runs("tensorboard:0"))
    granted = set(world.cluster.containers)
    world.fail("worker:1")
    world.until(lambda: world.state.generation == 2 and world.runs("ps:0", "worker:0", "worker:1"))
    assert set(world.cluster.containers) == granted
    assert world.runs("tensorboard:0") and world.attempt("tensorboard:0") == 1
    succeeds(world, "worker:0", "worker:1")


def test_a_crash_in_every_attempt_ends_the_job_when_they_are_spent() -> None:
    habits = Habits(work=lambda task, attempt: (5.0, Exit(code=1)) if task == "worker:1" else None)
    world = World(plan(role("worker", 2, attempts=3)), habits=habits)
    assert "all 3 attempts are spent" in ends(world, Outcome.FAILED)
    assert world.state.generation == 3


def test_a_lost_container_is_replaced_and_does_not_count() -> None:
    world = running(plan(role("worker", 2, attempts=1)))
    world.lose("worker:0", ContainerEndKind.NODE_LOST)
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"))
    succeeds(world, "worker:0", "worker:1")


def test_the_last_worker_of_a_cluster_that_has_too_little_is_waited_for_only_so_long() -> None:
    habits = Habits(grant_s=lambda task: None if task == "worker:2" else 0.1)
    world = World(plan(role("worker", 3), hold_s=5.0, allocation_s=120.0), habits=habits)
    world.until(lambda: world.cluster.containers and world.state.requests)
    world.until(lambda: not world.cluster.containers)  # two jobs must not hold a half each
    assert "worker:2" in ends(world, Outcome.TIMED_OUT)


def test_what_a_job_has_waited_in_its_queue_is_part_of_its_total_time() -> None:
    world = World(plan(role("worker", 2), total_s=7200.0), waited_s=7000.0)
    assert "total time-out" in ends(world, Outcome.TIMED_OUT, 300.0)


def test_a_job_that_has_waited_for_all_of_its_total_time_may_still_begin() -> None:
    world = World(plan(role("worker", 2), total_s=7200.0), waited_s=8000.0)
    world.until(lambda: world.state.phase is JobPhase.RUNNING)
    assert "total time-out" in ends(world, Outcome.TIMED_OUT, 100.0)


def test_a_new_coordinator_finds_programs_running_and_disturbs_none() -> None:
    world = running(plan(server(), role("worker", 2), sidecar()))
    world.until(lambda: world.runs("tensorboard:0"))
    attempts = {name: data.attempt for name, data in world.state.tasks.items()}
    world.kill_coordinator(3.0)
    world.sleep(60.0)
    assert {name: data.attempt for name, data in world.state.tasks.items()} == attempts
    assert world.state.incarnation == 2
    succeeds(world, "worker:0", "worker:1")


def test_programs_go_on_whose_containers_a_new_coordinator_is_told_of_later() -> None:
    """As by a ResourceManager that has just taken over: it learns of them from their nodes."""
    world = running(plan(role("worker", 2)), Habits(named_late_s=5.0))
    attempts = {name: data.attempt for name, data in world.state.tasks.items()}
    world.kill_coordinator(1.0)
    world.sleep(60.0)
    assert {name: data.attempt for name, data in world.state.tasks.items()} == attempts
    assert all(data.container_id for data in world.state.tasks.values())
    succeeds(world, "worker:0", "worker:1")


def test_who_ended_unnamed_while_there_was_no_coordinator_is_replaced() -> None:
    world = running(plan(role("worker", 2)), Habits(named_late_s=600.0))
    world.kill_coordinator(1.0)
    for agent in list(world.cluster.agents.values()):
        world.cluster.cut(agent)
    world.until(lambda: world.alive and world.state.generation == 2, 120.0)
    world.until(lambda: world.runs("worker:0", "worker:1"), 120.0)
    succeeds(world, "worker:0", "worker:1")


def test_a_generation_starts_only_when_the_last_program_of_the_former_has_ended() -> None:
    stubborn = Habits(ignores_sigterm=lambda task, attempt: True)
    world = running(plan(role("worker", 3, restart_grace_s=8.0)), stubborn)
    world.fail("worker:0")
    world.sleep(7.0)
    assert world.program("worker:1") is not None and world.program("worker:0") is None
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"))


def test_what_comes_after_a_server_waits_for_it_in_every_generation() -> None:
    """`World.starts` raises if it does not."""
    slow = Habits(prepare_s=lambda task, attempt: 2.0 if task == "ps:0" else 0.1, delay_s=0.2)
    world = running(plan(server(), role("worker", 2, after=("ps",))), slow)
    world.fail("worker:1")
    world.until(lambda: world.state.generation == 2 and world.runs("ps:0", "worker:0", "worker:1"))
    succeeds(world, "worker:0", "worker:1")


def test_a_new_coordinator_asks_again_for_what_the_former_one_had_asked_for() -> None:
    habits = Habits(grant_s=lambda task: 10.0, late_grants=0.0)
    world = World(plan(role("worker", 2), hold_s=100.0), habits=habits)
    world.sleep(5.0)
    world.kill_coordinator()
    world.until(lambda: world.alive and world.runs("worker:0", "worker:1"), 60.0)
    succeeds(world, "worker:0", "worker:1")


def test_a_container_granted_to_a_dead_coordinator_is_given_back_by_the_next() -> None:
    habits = Habits(grant_s=lambda task: 2.0, late_grants=1.0)
    world = World(plan(role("worker", 2)), habits=habits)
    world.sleep(1.9)
    world.kill_coordinator(1.0)
    world.until(lambda: len(world.cluster.containers) == 2)
    world.until(lambda: world.alive and world.runs("worker:0", "worker:1"), 60.0)
    world.sleep(10.0)
    assert len(world.cluster.containers) == 2
    succeeds(world, "worker:0", "worker:1")


def test_a_container_granted_for_a_request_that_was_cancelled_is_given_back() -> None:
    waits = iter([8.0])  # longer than a part of the gang is held
    habits = Habits(
        grant_s=lambda task: next(waits, 0.1) if task == "worker:1" else 0.1, late_grants=1.0
    )
    world = World(plan(role("worker", 2), hold_s=5.0), habits=habits)
    world.until(lambda: world.runs("worker:0", "worker:1"), 60.0)
    world.sleep(10.0)
    assert len(world.cluster.containers) == 2
    succeeds(world, "worker:0", "worker:1")


def test_what_an_older_attempt_says_late_changes_nothing() -> None:
    world = running(LONE)
    world.fail("worker:0")
    world.until(lambda: world.attempt("worker:0") == 2 and world.runs("worker:0"))
    task = world.state.tasks["worker:0"].task
    world.tell(TaskExited(task=task, attempt=1, exit=Exit(code=1, stopped=False)))
    world.sleep(30.0)
    assert world.runs("worker:0") and world.attempt("worker:0") == 2
    succeeds(world, "worker:0", "worker:1")


# -- (A) what an agent that is out of reach still does ------------------------------------------------


def silence(world: World, name: str, *, cut: bool, expiry_s: float, for_s: float = 600.0) -> None:
    world.cluster.silence_node(world.agent(name).node, for_s=for_s, expiry_s=expiry_s, cut=cut)


LONE = plan(role("worker", 2, restart=Restart.TASK, join=Join.NOW))
GANG = plan(role("worker", 2))
ONE_BY_ONE = plan(role("worker", 2, restart=Restart.TASK, join=Join.NOW), mode=Mode.EACH)
ZOMBIES = pytest.mark.parametrize("job", [LONE, GANG, ONE_BY_ONE], ids=["alone", "gang", "each"])


@ZOMBIES
def test_a_program_out_of_reach_is_over_before_its_successor_starts(job: Plan) -> None:
    """Machine and network are gone together, the backend says "lost" at once and cannot know."""
    world = running(job, nodes=8)
    lost = world.now
    silence(world, "worker:0", cut=True, expiry_s=0.1)
    # `World.starts` raises if both are seen to run at once.
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"))
    assert world.now - lost < world.habits.lease_s + 30.0
    succeeds(world, "worker:0", "worker:1")


@ZOMBIES
def test_an_agent_on_a_node_called_lost_is_told_to_end_over_its_own_connection(job: Plan) -> None:
    """Only the backend does not hear of the machine: no lease has to be waited for."""
    world = running(job, nodes=8)
    old = world.agent("worker:0")
    silence(world, "worker:0", cut=False, expiry_s=5.0)
    lost = world.now
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"), 60.0)
    assert not old.alive and world.now - lost < world.habits.lease_s
    succeeds(world, "worker:0", "worker:1")


@ZOMBIES
def test_an_agent_that_hangs_up_before_it_has_heard_that_it_is_to_go_is_waited_for(
    job: Plan,
) -> None:
    """It hangs, its node is called lost, and its connection breaks while its program runs on."""
    world = running(job, nodes=8)
    old = world.agent("worker:0")
    old.deaf = True
    silence(world, "worker:0", cut=False, expiry_s=5.0)
    world.sleep(8.0)
    world.cluster.cut(old, noticed=True)
    lost = world.now
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"))
    assert world.habits.lease_s <= world.now - lost < world.habits.lease_s + 30.0
    succeeds(world, "worker:0", "worker:1")


@ZOMBIES
def test_an_agent_that_comes_back_after_it_was_given_up_is_sent_away(job: Plan) -> None:
    """It is cut off for longer than its replacement takes to be granted, and returns in its lease."""
    world = running(job, nodes=8)
    old = world.agent("worker:0")
    silence(world, "worker:0", cut=True, expiry_s=3.0)
    world.sleep(12.0)
    assert old.alive  # its lease of 20 s is not over
    world.cluster.heal(old)
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"), 60.0)
    assert not old.alive
    succeeds(world, "worker:0", "worker:1")


@ZOMBIES
def test_a_coordinator_that_could_not_act_for_a_while_gives_agents_so_much_longer(
    job: Plan,
) -> None:
    world = running(job, nodes=8)
    old = world.agent("worker:0")
    world.cluster.cut(old, noticed=True)
    world.until(lambda: not world.state.containers[old.container_id].connected)
    world.tell(TimePassed(late_s=10.0))
    world.sleep(12.0)
    world.cluster.heal(old)
    succeeds(world, "worker:0", "worker:1")
    assert world.attempt("worker:0") == 1


@ZOMBIES
def test_what_a_coordinator_that_died_may_have_heard_renews_the_lease_of_an_agent(
    job: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had welcomed an agent that was given up, and died before that was written down."""
    world = running(job, nodes=8)
    old = world.agent("worker:0")
    silence(world, "worker:0", cut=True, expiry_s=3.0)
    world.sleep(12.0)
    with monkeypatch.context() as dying:
        dying.setattr(world, "tell", lambda event: None)
        world.cluster.heal(old)
        assert old.connection is not None
    world.kill_coordinator(0.1)
    old.cut = True
    world.sleep(1.0)
    # `World.starts` raises if both are seen to run at once.
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"))
    succeeds(world, "worker:0", "worker:1")


@ZOMBIES
def test_an_agent_that_only_falls_silent_is_not_believed_to_have_ended(job: Plan) -> None:
    """Missed heartbeats, then a dead connection: neither is a word of the agent."""
    world = running(job, nodes=8)
    agent = world.agent("worker:0")
    agent.node.silent = True
    world.cluster.cut(agent, noticed=False)
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"))
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize("release_s", [0.0, 2.0])
@ZOMBIES
def test_an_agent_that_does_not_come_back_is_not_believed_to_have_ended(
    job: Plan, release_s: float
) -> None:
    """Its connection broke before it was told to end; the backend calls its machine lost much later."""
    world = running(job, Habits(release_s=release_s), nodes=8)
    world.cluster.cut(world.agent("worker:0"), noticed=True)
    silence(world, "worker:0", cut=False, expiry_s=300.0)
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1"), 60.0)
    succeeds(world, "worker:0", "worker:1")


@ZOMBIES
def test_a_new_coordinator_waits_for_the_same_agents_out_of_reach(job: Plan) -> None:
    world = running(job, nodes=8)
    silence(world, "worker:0", cut=True, expiry_s=1.0)
    world.sleep(2.0)
    world.kill_coordinator()
    world.until(
        lambda: world.alive and world.attempt("worker:0") > 1 and world.runs("worker:0", "worker:1")
    )
    succeeds(world, "worker:0", "worker:1")


def test_where_the_backend_knows_that_a_container_has_ended_no_lease_is_waited_for() -> None:
    world = running(LONE, nodes=8)
    world.lose("worker:0", ContainerEndKind.NODE_LOST)
    world.until(lambda: world.attempt("worker:0") > 1 and world.runs("worker:0"), 10.0)


def test_a_checkpoint_that_an_older_attempt_saved_late_is_not_the_newest() -> None:
    world = running(LONE, nodes=8)
    world.save("worker:0")
    world.until(lambda: world.state.checkpoint == "000001")
    world.fail("worker:0")
    world.until(lambda: world.attempt("worker:0") == 2 and world.runs("worker:0"))
    world.save("worker:0")
    world.until(lambda: world.state.checkpoint == "000002")
    task = world.state.tasks["worker:0"].task
    world.tell(CheckpointSaved(task=task, attempt=1, name="000003"))
    assert world.state.checkpoint == "000002"
    world.fail("worker:0")
    world.until(lambda: world.attempt("worker:0") == 3 and world.runs("worker:0"))
    assert world.prepared[-1].restore == "000002"


def test_a_checkpoint_that_is_told_again_after_a_take_over_is_not_a_new_one() -> None:
    world = running(LONE)
    world.save("worker:0")
    world.save("worker:0")
    world.until(lambda: world.state.checkpoint == "000002")
    task = world.state.tasks["worker:0"].task
    world.tell(CheckpointSaved(task=task, attempt=1, name="000001"))
    assert world.state.checkpoint == "000002"
    assert world.kinds().count("checkpoint-saved") == 2
    succeeds(world, "worker:0", "worker:1")


# -- (B) transient or final ---------------------------------------------------------------------------


def failing(times: int, exit: Exit, first: int = 2, task: str = "worker:0") -> Habits:
    """A task whose preparations fail so many times, from that attempt on."""
    return Habits(
        prepare=lambda name, attempt: (
            exit if name == task and first <= attempt < first + times else None
        )
    )


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_store_that_is_away_at_a_restore_is_tried_again(restart: Restart) -> None:
    world = running(plan(role("worker", 2, restart=restart, attempts=10)), failing(3, NO_STORE))
    world.fail("worker:0")
    world.until(
        lambda: world.runs("worker:0", "worker:1") and world.attempt("worker:0") == 5, 200.0
    )
    assert [f.counted for f in world.state.failures] == [True, False, False, False]
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_store_that_stays_away_ends_the_job_after_a_while(restart: Restart) -> None:
    habits = failing(10_000, NO_STORE, first=1)
    world = World(plan(role("worker", 2, restart=restart), retry_limit=8), habits=habits)
    world.sleep(20.0)
    assert not world.done and world.attempt("worker:0") < 8  # it pauses between its attempts
    assert "safe mode" in ends(world, Outcome.FAILED, 3600.0)


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_program_that_is_not_there_ends_the_job_at_once(restart: Restart) -> None:
    world = World(
        plan(role("worker", 2, restart=restart, attempts=10)), habits=failing(99, NO_PROGRAM, 1)
    )
    assert "train.py" in ends(world, Outcome.FAILED, 30.0)
    assert world.attempt("worker:0") == 1


def test_a_reserved_port_that_was_taken_three_times_does_not_count() -> None:
    habits = Habits(
        work=lambda task, attempt: (
            (1.0, Exit(code=1, port_taken=True)) if task == "worker:0" and attempt < 4 else None
        )
    )
    world = World(plan(role("worker", 2, attempts=1)), habits=habits)
    world.until(lambda: world.attempt("worker:0") == 4 and world.runs("worker:0", "worker:1"))
    assert len({p.ports for _, p in world.cluster.running()}) == 2
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize(("between_s", "attempts"), [(0.1, 2), (7200.0, 1)])
def test_ports_that_are_taken_time_after_time_count_from_the_fourth_on(
    between_s: float, attempts: int
) -> None:
    """Progress between them makes them cost no less."""
    habits = Habits(work=lambda task, attempt: (between_s, Exit(code=1, port_taken=True)))
    world = World(plan(role("worker", attempts=attempts)), habits=habits)
    told = ends(world, Outcome.FAILED, 10 * 7200.0)
    assert "port" in told and ("attempts are" if attempts > 1 else "one attempt is") in told
    counted = [failure.counted for failure in world.state.failures]
    assert counted == [False] * 3 + [True] * attempts


def test_a_port_that_another_user_takes_in_every_attempt_ends_the_job_when_they_are_spent() -> None:
    stolen = Exit(signal=9, port=21525, port_owner="mallory (uid 1001)")
    habits = Habits(work=lambda task, attempt: (0.1, stolen))
    world = World(plan(role("worker", 2, attempts=3)), habits=habits)
    told = ends(world, Outcome.FAILED, 300.0)
    assert "mallory (uid 1001) listens on it" in told and "all 3 attempts are spent" in told
    assert world.attempt("worker:0") == 3


# -- (C) optional units -------------------------------------------------------------------------------


BAD_IMAGE = "no such image"
OPTIONAL = {
    # The role, and what happens to its tasks but for worker:0.
    "a sidecar that cannot be launched": (sidecar(), Habits(launch=lambda task: BAD_IMAGE)),
    "a sidecar whose launches are never heard of": (sidecar(), Habits(launch=lambda task: None)),
    "a sidecar that is refused": (sidecar(), Habits(refuse=lambda task: "too large")),
    "a sidecar whose program is not there": (sidecar(), Habits(prepare=lambda *_: NO_PROGRAM)),
    "a sidecar whose store is away": (sidecar(), Habits(prepare=lambda *_: NO_STORE)),
    "a sidecar that crashes for ever": (sidecar(), Habits(work=lambda *_: (1.0, Exit(code=1)))),
    "a sidecar that never joins anything": (
        sidecar(join=Join.NETWORK, startup_s=60.0),
        Habits(joins=lambda *_: False),
    ),
    "elastic tasks that cannot be launched": (None, Habits(launch=lambda task: BAD_IMAGE)),
    "elastic tasks that are refused": (None, Habits(refuse=lambda task: "too large")),
}


@pytest.mark.parametrize("trouble", OPTIONAL)
def test_what_is_optional_does_no_harm(trouble: str) -> None:
    """A sidecar, or what is above an elastic minimum of one."""
    beside, bad = OPTIONAL[trouble]
    good = Habits()

    def for_others(name: str) -> Callable[..., Any]:
        usual, own = getattr(good, name), getattr(bad, name)
        return lambda task, *rest: (usual if task == "worker:0" else own)(task, *rest)

    decided = ("launch", "refuse", "prepare", "work", "joins")
    habits = Habits(**{name: for_others(name) for name in decided})
    job = plan(role("worker", 1, 3)) if beside is None else plan(role("worker"), beside)
    world = World(job, habits=habits)
    world.until(lambda: world.runs("worker:0"))
    world.sleep(HOURS_S)
    assert world.runs("worker:0") and world.attempt("worker:0") == 1
    assert sum(kind == "container-lost" for kind in world.kinds()) < 600  # it backs off
    succeeds(world, "worker:0")


def test_a_sidecar_that_comes_late_to_a_cluster_runs_in_the_end() -> None:
    failing = iter(["no such image"] * 30)
    habits = Habits(launch=lambda task: next(failing, "") if task == "tensorboard:0" else "")
    world = World(plan(role("worker"), sidecar(), backoff_max_s=30.0), habits=habits)
    world.until(lambda: world.runs("worker:0"))
    world.until(lambda: world.runs("tensorboard:0"), 7200.0)
    succeeds(world, "worker:0")


def test_a_sidecar_that_no_machine_can_launch_makes_no_machine_a_bad_one() -> None:
    """A backend takes the nodes to be avoided at their word."""
    habits = Habits(launch=lambda task: "no such image" if task == "tensorboard:0" else "")
    world = World(plan(role("worker"), sidecar()), habits=habits, nodes=2)
    world.until(lambda: world.runs("worker:0"))
    world.sleep(HOURS_S)
    world.lose("worker:0")
    world.until(lambda: world.runs("worker:0") and world.attempt("worker:0") == 2, 300.0)
    succeeds(world, "worker:0")


def test_machines_that_were_lost_long_ago_are_used_again() -> None:
    world = running(plan(role("worker")), nodes=2)
    for _ in range(8):
        world.lose("worker:0", ContainerEndKind.NODE_LOST)
        world.until(lambda: world.runs("worker:0"), WEEK_S)
        world.sleep(WEEK_S)
    succeeds(world, "worker:0")


def test_tasks_above_the_elastic_minimum_that_are_preempted_time_after_time_do_no_harm() -> None:
    world: World

    def launch(task: str) -> str | None:
        if task != "worker:0":
            container = str(world.state.tasks[task].container_id)
            world.clock.later(
                0.01, lambda: world.cluster.end_container(container, ContainerEndKind.PREEMPTED)
            )
        return ""

    world = World(plan(role("worker", 1, 3)), habits=Habits(launch=launch, delay_s=0.0))
    world.until(lambda: world.runs("worker:0"))
    world.sleep(HOURS_S)
    assert world.runs("worker:0")
    succeeds(world, "worker:0")


# -- (D) budgets --------------------------------------------------------------------------------------


SINGLE = plan(role("worker", attempts=1))
SINGLE_ALONE = plan(role("worker", attempts=1, restart=Restart.TASK))


@pytest.mark.parametrize("job", [SINGLE, SINGLE_ALONE], ids=["gang", "alone"])
def test_a_preemption_a_week_never_fails_a_job_without_checkpoints(job: Plan) -> None:
    world = running(job)
    for _ in range(60):
        world.sleep(WEEK_S)
        world.preempt("worker:0")
        world.sleep(5.0)
        world.until(lambda: world.runs("worker:0"))
    assert world.attempt("worker:0") == 61
    succeeds(world, "worker:0")


def test_preemptions_without_any_time_between_end_the_job_after_a_few() -> None:
    world = World(
        plan(role("worker"), retry_limit=6, backoff_max_s=5.0),
        habits=Habits(work=lambda task, attempt: None),
    )

    def again() -> None:
        if not world.done:
            if world.program("worker:0") is not None:
                world.lose("worker:0", ContainerEndKind.PREEMPTED)
            world.clock.later(1.0, again)

    world.clock.later(1.0, again)
    assert "6 restarts in a row without progress" in ends(world, Outcome.FAILED, 3600.0)
    assert world.attempt("worker:0") <= 8
    assert any(re.search(r"restarts in [4-7]\.\d", record.text) for record in world.records)


def test_a_preemption_that_was_announced_and_did_not_come_excuses_nothing_later() -> None:
    world = running(GANG)
    agent = world.agent("worker:0")
    world.tell(PreemptionNoticed(container_id=agent.container_id, deadline_s=5.0))
    world.sleep(HOURS_S)
    world.lose("worker:0")
    world.until(lambda: world.runs("worker:0", "worker:1"))
    assert [failure.report.cause for failure in world.state.failures] == [FailureCause.AGENT_LOST]
    succeeds(world, "worker:0", "worker:1")


def asked_to_save(world: World) -> list[str]:
    """Tasks whose programs have heard that they are to save."""
    return [name for _, name, _ in world.cluster.notices]


def test_a_program_whose_agent_was_away_at_a_notice_of_preemption_is_asked_to_save() -> None:
    world = running(GANG)
    agent = world.agent("worker:1")
    world.cluster.drop_connection(agent)
    world.tell(PreemptionNoticed(container_id=agent.container_id, deadline_s=30.0))
    world.until(lambda: "worker:1" in asked_to_save(world), 10.0)
    assert asked_to_save(world) == ["worker:0", "worker:1"]
    succeeds(world, "worker:0", "worker:1")


def test_programs_that_were_about_to_start_at_a_notice_of_preemption_are_asked_to_save() -> None:
    world = World(GANG, habits=Habits(prepare_s=lambda task, attempt: 5.0))
    world.until(lambda: world.state.tasks["worker:1"].state is TaskState.PREPARING)
    container_id = world.agent("worker:1").container_id
    world.tell(PreemptionNoticed(container_id=container_id, deadline_s=30.0))
    world.until(lambda: world.runs("worker:0", "worker:1"))
    world.sleep(1.0)
    assert sorted(asked_to_save(world)) == ["worker:0", "worker:1"]
    succeeds(world, "worker:0", "worker:1")


def test_a_coordinator_that_takes_over_asks_everybody_to_save_before_a_preemption() -> None:
    world = running(GANG)
    agent = world.agent("worker:1")
    world.cluster.hang_up_all()  # so that no command of the first coordinator arrives
    world.tell(PreemptionNoticed(container_id=agent.container_id, deadline_s=30.0))
    world.kill_coordinator()
    world.until(lambda: len(world.cluster.notices) == 2, 10.0)
    assert sorted(asked_to_save(world)) == ["worker:0", "worker:1"]
    succeeds(world, "worker:0", "worker:1")


def test_a_program_that_has_saved_for_a_preemption_or_started_after_it_is_not_asked_again() -> None:
    habits = Habits(checkpoint_s=lambda task, attempt: 1.0 if task == "worker:0" else None)
    world = World(plan(role("worker", 2), checkpoints=True), habits=habits)
    world.until(lambda: world.runs("worker:0", "worker:1"))
    world.tell(
        PreemptionNoticed(container_id=world.agent("worker:1").container_id, deadline_s=30.0)
    )
    world.until(lambda: world.state.checkpoint is not None, 10.0)
    for name in ("worker:0", "worker:1"):
        world.cluster.drop_connection(world.agent(name))
    world.sleep(5.0)
    assert sorted(asked_to_save(world)) == ["worker:0", "worker:1", "worker:1"]
    world.fail("worker:0")
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"))
    for name in ("worker:0", "worker:1"):
        world.cluster.drop_connection(world.agent(name))
    world.sleep(5.0)
    assert len(asked_to_save(world)) == 3
    succeeds(world, "worker:0", "worker:1")


def test_nobody_is_asked_to_save_long_after_a_preemption_that_did_not_come() -> None:
    world = running(GANG)
    agent = world.agent("worker:1")
    world.tell(PreemptionNoticed(container_id=agent.container_id, deadline_s=30.0))
    world.sleep(HOURS_S)
    world.cluster.drop_connection(agent)
    world.sleep(5.0)
    assert sorted(asked_to_save(world)) == ["worker:0", "worker:1"]
    world.kill_coordinator()
    world.sleep(60.0)
    assert sorted(asked_to_save(world)) == ["worker:0", "worker:1"]
    succeeds(world, "worker:0", "worker:1")


def test_an_announced_preemption_does_not_hide_what_the_backend_says_itself() -> None:
    world = running(GANG)
    agent = world.agent("worker:0")
    world.tell(PreemptionNoticed(container_id=agent.container_id, deadline_s=5.0))
    world.lose("worker:0", ContainerEndKind.OUT_OF_MEMORY)
    world.until(lambda: world.runs("worker:0", "worker:1"))
    assert [f.report.cause for f in world.state.failures] == [FailureCause.OUT_OF_MEMORY]
    succeeds(world, "worker:0", "worker:1")


def test_a_checkpoint_begins_the_budget_of_what_does_not_count_anew() -> None:
    world = running(plan(role("worker"), retry_limit=4, checkpoints=True))
    for number in range(20):
        world.save("worker:0")
        world.until(lambda n=number: world.state.checkpoint == f"{n + 1:06d}")
        world.lose("worker:0", ContainerEndKind.PREEMPTED)
        world.until(lambda: world.runs("worker:0"))
    succeeds(world, "worker:0")


def test_each_unit_has_a_budget_of_its_own() -> None:
    """Two crashes each of two workers that restart alone, and of a server: none has spent three."""
    world = running(plan(server(restart=Restart.TASK), role("worker", 2, restart=Restart.TASK)))
    for name in ("worker:0", "ps:0", "worker:1") * 2:
        attempt = world.attempt(name)
        world.fail(name)
        world.until(lambda n=name, a=attempt: world.attempt(n) > a and world.runs(n))
        world.sleep(5.0)
    assert world.state.generation == 1
    succeeds(world, "worker:0", "worker:1")


# -- (E) what is missed once --------------------------------------------------------------------------


@pytest.mark.parametrize("after_s", [0.0, 0.2, 0.5, 0.9, 1.1, 1.3, 2.0, 3.0])
def test_a_sidecar_comes_back_whenever_the_gang_restarts(after_s: float) -> None:
    world = running(plan(role("worker", 2), sidecar()))
    world.until(lambda: world.runs("tensorboard:0"))
    world.fail("tensorboard:0")
    world.sleep(after_s)
    world.fail("worker:0")
    world.until(lambda: world.runs("worker:0", "worker:1", "tensorboard:0"), 120.0)
    assert world.state.generation == 2
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize("restart", [Restart.TASK, Restart.GANG])
@pytest.mark.parametrize("after_s", [0.0, 0.1, 0.25, 0.6, 1.5])
def test_a_server_of_an_earlier_stage_that_dies_with_the_gang_is_renewed(
    after_s: float, restart: Restart
) -> None:
    world = staged(restart=restart)
    world.fail("database:0")
    world.sleep(after_s)
    if world.program("worker:0") is not None:
        world.fail("worker:0")
    world.until(lambda: world.attempt("worker:0") == 2 and world.runs("worker:0"), 120.0)
    world.until(lambda: world.runs("database:0", "tensorboard:0"), 120.0)
    succeeds(world, "worker:0")


def test_a_server_that_pauses_while_its_stage_ends_and_the_next_one_breaks_is_renewed() -> None:
    world = World(
        plan(
            role("prepare", restart=Restart.TASK, ranked=False, join=Join.NOW),
            server("database", restart=Restart.TASK, join=Join.NOW, attempts=9),
            role("worker", stage=1, join=Join.NOW, attempts=9),
            backoff_s=8.0,
        )
    )
    for attempt in (1, 2):
        world.until(lambda n=attempt: world.attempt("database:0") == n and world.runs("database:0"))
        world.fail("database:0")
    world.sleep(1.0)  # its second crash is followed by a pause
    world.succeed("prepare:0")
    world.until(lambda: world.runs("worker:0"))
    assert world.attempt("database:0") == 2
    world.fail("worker:0")
    world.until(lambda: world.runs("database:0", "worker:0"), 120.0)
    succeeds(world, "worker:0")


def test_servers_that_were_ended_as_their_stage_was_done_are_renewed() -> None:
    """One of them breaks the gang; that the stage's only tracked task has succeeded is heard later."""
    world = World(
        plan(
            role("prepare", ranked=False, join=Join.NOW),
            server("database", 2, join=Join.NOW),
            role("worker", stage=1, join=Join.NOW),
        )
    )
    world.until(lambda: world.runs("prepare:0", "database:0", "database:1"))
    world.fail("prepare:0", Exit(code=0), late_s=0.2)
    world.fail("database:0")
    world.until(lambda: world.runs("database:0", "database:1", "worker:0"), 60.0)
    assert world.attempt("prepare:0") == 1
    succeeds(world, "worker:0")


def test_a_lost_node_of_long_ago_excuses_no_crash_of_today() -> None:
    world = staged()
    world.fail("worker:0")
    world.until(lambda: world.attempt("worker:0") == 2 and world.runs("worker:0"))
    world.fail("worker:0")  # the second crash restarts after a pause
    world.until(lambda: world.state.phase is JobPhase.RESTARTING)
    world.lose("database:0", ContainerEndKind.NODE_LOST)
    world.until(lambda: world.runs("database:0", "worker:0") and world.attempt("worker:0") == 3)
    world.sleep(5.0)
    world.fail("worker:0")
    world.until(lambda: world.attempt("worker:0") == 4 and world.runs("worker:0"))
    counted = [f.counted for f in world.state.failures if f.report.task.role == "worker"]
    assert counted == [True, True, True]
    succeeds(world, "worker:0")


def test_a_lone_member_whose_pause_ends_while_the_gang_pauses_is_asked_for_again() -> None:
    launches: list[str | None] = []
    habits = Habits(launch=lambda task: launches[-1] if task == "ps:0" and launches else "")
    job = plan(server(restart=Restart.TASK), role("worker", 2, attempts=9))
    world = running(job, habits)
    for _ in range(3):
        world.lose("ps:0", ContainerEndKind.PREEMPTED)
        world.until(lambda: world.runs("ps:0"))
    for attempt in (2, 3, 4):
        world.fail("worker:0")
        world.until(lambda n=attempt: world.attempt("worker:0") == n and world.runs(*JOINED))
    launches.append(None)  # it is long in coming
    world.lose("ps:0", ContainerEndKind.PREEMPTED)
    world.until(lambda: world.state.tasks["ps:0"].state is TaskState.LAUNCHING)
    world.fail("worker:0")
    world.until(lambda: world.state.phase is JobPhase.RESTARTING)
    container_id = str(world.state.tasks["ps:0"].container_id)
    world.cluster.end_container(container_id, ContainerEndKind.EXITED)
    launches.append("")
    world.until(lambda: world.attempt("worker:0") == 5 and world.runs(*JOINED), 60.0)
    succeeds(world, "worker:0", "worker:1")


JOINED = ("ps:0", "worker:0", "worker:1")
EVERYONE = ("ps:0", "worker:0", "worker:1", "tensorboard:0")


def test_a_server_and_a_sidecar_die_in_every_phase_and_always_come_back() -> None:
    for step in range(1, 90):
        world = World(
            plan(server(restart=Restart.TASK), role("worker", 2, after=("ps",)), sidecar()), step
        )
        world.until(lambda w=world, s=step: w.steps >= s or w.runs(*EVERYONE))
        for name in ("ps:0", "tensorboard:0"):
            if world.state.tasks[name].container_id in world.cluster.containers:
                world.cluster.end_container(
                    str(world.state.tasks[name].container_id), ContainerEndKind.EXITED
                )
        world.until(lambda w=world: w.runs(*EVERYONE), 120.0)
        succeeds(world, "worker:0", "worker:1")


# -- (F) saving ---------------------------------------------------------------------------------------


def saving(seconds: float, *names: str) -> Habits:
    return Habits(save_s=lambda task, attempt: seconds if task in names else 0.0)


def test_an_attempt_that_saves_for_minutes_after_its_success_is_waited_for() -> None:
    world = running(plan(role("worker", 2)), saving(300.0, "worker:0"))
    world.succeed("worker:0", "worker:1")
    world.sleep(200.0)
    assert not world.done
    saves_all(world, Outcome.SUCCEEDED)


def test_an_attempt_that_saves_for_minutes_after_its_crash_is_waited_for() -> None:
    world = running(plan(role("worker", 2)), saving(100.0, "worker:0"))
    world.fail("worker:0")
    world.sleep(1.0)
    # Its crash is known before it has saved: its peers do not go on meanwhile.
    assert world.program("worker:1") is None
    world.until(lambda: world.runs("worker:0", "worker:1"), 300.0)
    assert world.state.failures[-1].report.exit is not None
    assert world.state.failures[-1].report.exit.code == 1
    succeeds(world, "worker:0", "worker:1")


def test_a_program_that_ran_out_of_memory_and_then_saves_has_failed_once() -> None:
    world = running(plan(role("worker", 2)), saving(30.0, "worker:0"))
    world.fail("worker:0", Exit(signal=9, out_of_memory=True))
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"))
    assert world.kinds().count("task-failed") == 1
    assert [f.secondary for f in world.state.failures] == [0]
    succeeds(world, "worker:0", "worker:1")


def test_saving_that_never_ends_costs_what_it_was_to_save_and_no_more() -> None:
    job = plan(role("worker", 2, save_s=60.0, grace_s=5.0))
    world = running(job, saving(1e6, "worker:0"))
    world.stop()
    began = world.now
    state = world.run()
    assert state.outcome is Outcome.STOPPED
    assert 50.0 < world.now - began < 120.0
    assert len(state.unsaved) == 1 and state.unsaved[0].startswith("worker:0")


def left_behind(world: World, name: str) -> None:
    """Files of this task's container are cut."""
    world.cluster.left_behind[world.agent(name).container_id] = ("outputs: more than 1 GiB",)


def test_what_a_backend_could_not_bring_home_of_a_task_is_said_of_the_job() -> None:
    world = running(plan(role("worker", 2)))
    left_behind(world, "worker:0")
    world.succeed("worker:0", "worker:1")
    state = world.run()
    assert state.outcome is Outcome.SUCCEEDED
    assert state.unsaved == ["worker:0: outputs: more than 1 GiB"]
    assert world.kinds().count("files-lost") == 1


def test_what_an_attempt_has_left_behind_is_not_said_of_the_next_one() -> None:
    world = running(plan(role("worker", 2)))
    left_behind(world, "worker:0")
    lost = world.agent("worker:0").container_id
    world.cluster.end_container(lost, ContainerEndKind.PREEMPTED)
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"))
    succeeds(world, "worker:0", "worker:1")


def test_an_end_that_comes_late_is_waited_for_as_long_as_its_backend_needs() -> None:
    world = running(plan(role("worker", 2), give_back_s=80.0))
    left_behind(world, "worker:0")
    world.cluster.end_late_s = 70.0
    world.succeed("worker:0", "worker:1")
    assert world.run().unsaved and "container-unconfirmed" not in world.kinds()


def test_an_agent_that_never_says_it_has_saved_loses_its_container() -> None:
    job = plan(role("worker", 2, save_s=60.0, grace_s=5.0))
    world = running(job, saving(1e6, "worker:0"))
    agent = world.agent("worker:0")
    world.stop()
    world.sleep(10.0)
    assert agent.held is not None
    agent.held.save_until = float("inf")
    agent.held.saving_is_known = False
    agent.deaf = True
    began = world.now
    ends(world, Outcome.STOPPED)
    assert world.now - began < 200.0


def test_a_job_that_ends_lets_an_attempt_save_that_had_ended_before() -> None:
    job = plan(role("worker", 2, save_s=900.0, grace_s=5.0))
    world = running(job, saving(300.0, "worker:0"))
    world.succeed("worker:0")
    world.sleep(10.0)
    world.stop()
    # `World.releases` raises if the container is taken before that.
    saves_all(world, Outcome.STOPPED)


def test_a_second_stop_leaves_the_time_to_save() -> None:
    job = plan(role("worker", 2, save_s=900.0, grace_s=5.0))
    world = running(job, saving(300.0, "worker:0", "worker:1"))
    world.stop()
    world.sleep(60.0)
    world.stop()
    saves_all(world, Outcome.STOPPED)


@pytest.mark.parametrize("outcome", ["crash", "success"])
def test_a_gang_that_breaks_lets_a_member_save_that_had_ended_before(outcome: str) -> None:
    world = running(plan(role("worker", 3)), saving(200.0, "worker:0"))
    world.fail("worker:0", Exit(code=0 if outcome == "success" else 1))
    world.sleep(0.0 if outcome == "crash" else 20.0)
    world.fail("worker:1")
    names = ("worker:0", "worker:1", "worker:2")
    world.until(lambda: world.runs(*names) and world.state.generation == 2, 400.0)
    assert world.endings == {}
    succeeds(world, *names)


def test_a_connection_lost_while_an_attempt_saves_costs_nothing() -> None:
    world = running(plan(role("worker", 2)), saving(120.0, "worker:0"))
    world.succeed("worker:0", "worker:1")
    world.sleep(20.0)
    world.cluster.drop_connection(world.agent("worker:0"))
    saves_all(world, Outcome.SUCCEEDED)
    assert world.attempt("worker:0") == 1


def test_a_job_stopped_firmly_saves_nothing() -> None:
    world = running(plan(role("worker", 2, grace_s=30.0)), saving(100.0, "worker:0", "worker:1"))
    began = world.now
    world.stop(firm=True)
    ends(world, Outcome.STOPPED)
    assert world.now - began < 20.0


def test_a_new_coordinator_lets_an_agent_save_to_the_end() -> None:
    world = running(plan(role("worker", 2)), saving(120.0, "worker:0"))
    world.succeed("worker:0", "worker:1")
    world.sleep(20.0)
    world.kill_coordinator()
    saves_all(world, Outcome.SUCCEEDED)
    assert world.attempt("worker:0") == 1


# -- (G), (L) start-up limits and hangs ---------------------------------------------------------------


def test_a_sidecar_does_not_begin_the_start_up_limit_of_the_gang() -> None:
    habits = Habits(prepare_s=lambda task, attempt: 700.0 if task == "worker:0" else 0.02)
    world = World(plan(role("worker", startup_s=600.0), sidecar()), habits=habits)
    world.until(lambda: world.runs("tensorboard:0"))
    world.until(lambda: world.runs("worker:0"), 800.0)
    succeeds(world, "worker:0")


def test_a_gang_that_does_not_find_together_ends_the_job_and_says_who() -> None:
    habits = Habits(joins=lambda task, attempt: task != "worker:1")
    world = World(plan(role("worker", 3, startup_s=60.0)), habits=habits)
    assert "worker:1" in ends(world, Outcome.TIMED_OUT, 100.0)


def test_a_task_that_came_back_alone_has_a_start_up_limit_too() -> None:
    habits = Habits(joins=lambda task, attempt: task != "worker:0" or attempt == 1)
    world = running(plan(role("worker", 2, restart=Restart.TASK, startup_s=60.0)), habits)
    world.fail("worker:0")
    state = world.run(1200.0)
    assert state.outcome in (Outcome.TIMED_OUT, Outcome.FAILED)
    assert "worker:0" in state.reason


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_hung_task_is_ended_and_started_again(restart: Restart) -> None:
    world = running(plan(role("worker", 2, restart=restart, hang_s=5.0)))
    world.hang("worker:0")
    world.until(lambda: world.attempt("worker:0") == 2 and world.runs("worker:0", "worker:1"))
    assert world.attempt("worker:1") == (2 if restart is Restart.GANG else 1)
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_hung_task_that_cannot_be_killed_loses_its_container(restart: Restart) -> None:
    habits = Habits(cannot_be_killed=lambda task, attempt: task == "worker:0" and attempt == 1)
    world = running(plan(role("worker", 2, restart=restart, hang_s=5.0, save_s=10.0)), habits)
    world.hang("worker:0")
    world.until(
        lambda: world.attempt("worker:0") == 2 and world.runs("worker:0", "worker:1"), 120.0
    )
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_hung_task_whose_agent_answers_nothing_loses_its_container(restart: Restart) -> None:
    world = running(plan(role("worker", 2, restart=restart, hang_s=5.0)))
    world.agent("worker:0").deaf = True
    world.hang("worker:0")
    world.until(
        lambda: world.attempt("worker:0") == 2 and world.runs("worker:0", "worker:1"), 120.0
    )
    succeeds(world, "worker:0", "worker:1")


def test_a_lingering_evaluator_is_ended_when_its_time_is_over() -> None:
    evaluator = role(
        "evaluator",
        ranked=False,
        join=Join.NOW,
        lingers_after=("worker",),
        linger_s=30.0,
        linger_then=Lingering.STOP,
    )
    world = running(plan(role("worker"), evaluator))
    succeeds(world, "worker:0")


def late() -> World:
    """A world whose evaluator has had its time and is no longer waited for."""
    evaluator = role(
        "evaluator",
        ranked=False,
        join=Join.NOW,
        attempts=1,
        tolerated_from=0,
        lingers_after=("worker",),
        linger_s=30.0,
        linger_then=Lingering.UNTRACK,
    )
    world = running(plan(role("worker"), evaluator, role("other", ranked=False, join=Join.NOW)))
    world.succeed("worker:0")
    world.sleep(60.0)
    assert world.runs("evaluator:0", "other:0")
    return world


def test_an_evaluator_that_is_no_longer_waited_for_runs_on_until_the_others_are_done() -> None:
    succeeds(late(), "other:0")


def test_an_evaluator_that_is_no_longer_waited_for_still_fails_the_job() -> None:
    world = late()
    world.fail("evaluator:0")
    assert "evaluator:0" in ends(world, Outcome.FAILED)


# -- (H) stages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [Mode.EACH, Mode.GANG])
def test_a_stage_may_be_done_while_another_container_is_still_waited_for(mode: Mode) -> None:
    late = iter([50.0])
    habits = Habits(grant_s=lambda task: next(late, 0.1) if task == "database:0" else 0.1)
    world = World(
        plan(
            role("prepare", restart=Restart.TASK, ranked=False, join=Join.NOW),
            server("database", restart=Restart.TASK, join=Join.NOW),
            role("worker", 2, stage=1, join=Join.NOW),
            mode=mode,
        ),
        habits=habits,
    )
    world.until(lambda: world.runs("prepare:0"), 120.0)
    world.succeed("prepare:0")
    world.until(lambda: world.runs("worker:0", "worker:1", "database:0"), 200.0)
    succeeds(world, "worker:0", "worker:1")


def test_tracked_roles_that_are_done_while_the_gang_is_still_forming_count() -> None:
    """Mode each: the first tasks have ended before the last have a container."""
    waits = {"worker:2": 60.0}
    habits = Habits(
        grant_s=lambda task: waits.get(task, 0.1), work=lambda task, attempt: (1.0, Exit(code=0))
    )
    world = World(plan(role("worker", 3, join=Join.NOW), mode=Mode.EACH), habits=habits)
    ends(world, Outcome.SUCCEEDED, 120.0)
    assert [world.attempt(f"worker:{i}") for i in range(3)] == [1, 1, 1]


def test_a_task_of_mode_each_that_is_done_keeps_no_container_from_others() -> None:
    """As a sidecar that is done: nothing starts either again."""
    job = plan(role("worker", 2, restart=Restart.TASK, join=Join.NOW), sidecar(), mode=Mode.EACH)
    world = running(job)
    world.until(lambda: world.runs("tensorboard:0"))
    agents = [world.agent("worker:0"), world.agent("tensorboard:0")]
    world.succeed("worker:0", "tensorboard:0")
    world.until(lambda: not any(agent.alive for agent in agents), 60.0)
    assert world.runs("worker:1") and world.state.phase is JobPhase.RUNNING
    succeeds(world, "worker:1")


def test_a_program_that_is_done_before_it_was_seen_to_run_has_succeeded() -> None:
    habits = Habits(work=lambda task, attempt: (0.0, Exit(code=0)))
    world = World(plan(role("worker", 3, join=Join.NOW)), habits=habits)
    ends(world, Outcome.SUCCEEDED, 60.0)


# -- (I) sticky ports ---------------------------------------------------------------------------------

STICKY = plan(
    server(restart=Restart.TASK, sticky_ports=True),
    role("worker", 2, restart=Restart.TASK, sticky_ports=True),
)


def _lose_prepare(world: World, how: Callable[[], None]) -> tuple[int, ...]:
    """The server's second preparation is under way when something happens to its connection."""
    kept = world.program("ps:0")
    assert kept is not None
    world.fail("ps:0")
    world.until(lambda: world.state.tasks["ps:0"].state is TaskState.PREPARING)
    how()
    world.until(lambda: world.attempt("ps:0") == 2 and world.runs("ps:0"), 120.0)
    return kept[1].ports


@pytest.mark.parametrize("how", ["connection", "coordinator"])
def test_a_lost_order_to_prepare_is_given_again_with_the_ports_to_keep(how: str) -> None:
    world = running(STICKY, Habits(prepare_s=lambda task, attempt: 0.5))

    def happens() -> None:
        if how == "connection":
            world.cluster.drop_connection(world.agent("ps:0"))
        else:
            world.kill_coordinator()
            world.until(lambda: world.alive)

    ports = _lose_prepare(world, happens)
    again = world.program("ps:0")
    assert again is not None and again[1].ports == ports
    assert world.state.generation == 1
    succeeds(world, "worker:0", "worker:1")


def test_a_kept_port_that_is_taken_for_a_while_is_waited_for_with_pauses() -> None:
    world = running(STICKY)
    agent, program = world.program("ps:0") or pytest.fail("no server")
    ports = program.ports
    world.fail("ps:0")
    agent.node.ports.update(ports)
    world.sleep(8.0)
    assert not world.done and world.attempt("ps:0") < 8
    agent.node.ports.difference_update(ports)
    world.until(lambda: world.runs("ps:0", "worker:0", "worker:1"), 120.0)
    succeeds(world, "worker:0", "worker:1")


def test_a_kept_port_that_stays_taken_does_not_keep_the_job_waiting_for_ever() -> None:
    world = running(STICKY)
    agent, program = world.program("ps:0") or pytest.fail("no server")
    world.fail("ps:0")
    agent.node.ports.update(program.ports)
    # Either the job ends, or all restart and find each other at other ports.
    world.until(
        lambda: (
            world.done or (world.runs("ps:0", "worker:0", "worker:1") and world.attempt("ps:0") > 1)
        ),
        7200.0,
    )
    assert world.attempt("ps:0") < 60
    if not world.done:
        succeeds(world, "worker:0", "worker:1")


def test_a_task_with_sticky_ports_that_lost_its_machine_takes_the_gang_along() -> None:
    world = running(STICKY, nodes=6)
    world.lose("ps:0", ContainerEndKind.NODE_LOST)
    world.until(
        lambda: world.state.generation == 2 and world.runs("ps:0", "worker:0", "worker:1"), 60.0
    )
    succeeds(world, "worker:0", "worker:1")


@pytest.mark.parametrize("phase", ["preparing", "prepared", "starting"])
def test_a_connection_lost_while_the_gang_is_forming_costs_nothing(phase: str) -> None:
    habits = Habits(
        prepare_s=lambda task, attempt: 1.0 if task == "worker:0" else 0.3, delay_s=0.05
    )
    world = World(plan(role("worker", 3)), habits=habits)
    world.until(lambda: world.state.tasks["worker:1"].state.value == phase)
    world.cluster.drop_connection(world.agent("worker:1"))
    world.until(lambda: world.runs("worker:0", "worker:1", "worker:2"), 60.0)
    assert world.state.generation == 1 and world.attempt("worker:1") == 1
    succeeds(world, "worker:0", "worker:1", "worker:2")


def test_tasks_that_come_back_alone_at_once_are_told_true_addresses() -> None:
    """`World.starts` holds what each is told against where its peers are."""
    slow = Habits(prepare_s=lambda task, attempt: {"ps:0": 0.5, "ps:1": 2.0}.get(task, 0.1))
    world = running(plan(server(tasks=2, restart=Restart.TASK), role("worker", 2)), slow)
    world.fail("ps:0")
    world.fail("ps:1")
    world.until(lambda: world.attempt("ps:1") == 2 and world.runs("ps:0", "ps:1"))
    assert world.state.generation == 1
    succeeds(world, "worker:0", "worker:1")


# -- (J) growth ---------------------------------------------------------------------------------------


def growing(
    minimum: int, maximum: int, waits: dict[str, float], habits: Habits | None = None, **f: object
) -> World:
    """An elastic gang that runs with its minimum; other containers come when they are told to."""
    habits = habits or Habits()
    habits.grant_s = lambda task: waits.get(task, 0.1)
    world = World(plan(role("worker", minimum, maximum), sidecar(), **f), habits=habits)
    world.until(lambda: world.runs(*(f"worker:{i}" for i in range(minimum))))
    return world


def test_an_elastic_gang_grows_when_containers_come() -> None:
    world = growing(1, 3, {"worker:1": 60.0, "worker:2": 61.0})
    world.until(lambda: world.runs("worker:0", "worker:1", "worker:2", "tensorboard:0"), 300.0)
    assert world.state.restarts == 1 and world.state.generation == 2
    succeeds(world, "worker:0", "worker:1", "worker:2")


def test_growth_never_runs_a_member_again_that_has_succeeded() -> None:
    world = growing(2, 3, {"worker:2": 60.0})
    world.sleep(10.0)
    world.succeed("worker:0")
    world.sleep(300.0)
    assert world.attempt("worker:0") == 1
    succeeds(world, "worker:1")


def test_growth_waits_for_the_checkpoint_that_it_asked_for() -> None:
    habits = Habits(checkpoint_s=lambda task, attempt: 20.0 if task == "worker:0" else None)
    world = growing(2, 3, {"worker:2": 60.0}, habits, checkpoints=True)
    world.until(lambda: world.cluster.notices, 300.0)
    asked = world.now
    world.until(lambda: world.state.checkpoint is not None, 60.0)
    assert world.now - asked > 19.0
    assert world.program("worker:0") is not None and world.attempt("worker:0") == 1
    names = ("worker:0", "worker:1", "worker:2")
    world.until(lambda: world.state.generation == 2 and world.runs(*names), 60.0)
    assert world.prepared[-1].restore == "000001"
    succeeds(world, *names)


def test_growth_does_not_wait_for_ever_for_a_checkpoint() -> None:
    world = growing(2, 3, {"worker:2": 60.0}, checkpoints=True)
    world.until(lambda: world.cluster.notices, 300.0)
    names = ("worker:0", "worker:1", "worker:2")
    world.until(lambda: world.state.generation == 2 and world.runs(*names), 200.0)
    succeeds(world, *names)


def test_growth_asks_a_member_to_save_that_was_away_when_it_was_asked() -> None:
    habits = Habits(checkpoint_s=lambda task, attempt: 1.0 if task == "worker:0" else None)
    world = growing(2, 3, {"worker:2": 60.0}, habits, checkpoints=True, grow_save_s=1000.0)
    world.until(lambda: world.state.growth is not None, 300.0)
    agent = world.agent("worker:0")
    world.cluster.cut(agent, noticed=True)
    world.until(lambda: world.state.growth is not None and world.state.growth.asked, 300.0)
    world.cluster.heal(agent)
    world.until(lambda: world.state.generation == 2, 60.0)
    names = ("worker:0", "worker:1", "worker:2")
    world.until(lambda: world.runs(*names), 60.0)
    assert world.prepared[-1].restore == "000001"
    succeeds(world, *names)


def test_containers_that_trickle_in_do_not_cost_a_restart_each() -> None:
    world = growing(1, 10, {f"worker:{i}": 30.0 * i for i in range(1, 10)})
    world.until(lambda: world.runs(*(f"worker:{i}" for i in range(10))), 3600.0)
    assert world.state.restarts <= 6
    succeeds(world, *(f"worker:{i}" for i in range(10)))


def test_an_elastic_gang_shrinks_when_a_machine_is_gone_for_good() -> None:
    gone: list[str] = []
    habits = Habits(grant_s=lambda task: None if task in gone else 0.1)
    world = World(plan(role("worker", 2, 3)), habits=habits)
    world.until(lambda: world.runs("worker:0", "worker:1", "worker:2"))
    gone.append("worker:2")
    world.lose("worker:2", ContainerEndKind.NODE_LOST)
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"), 120.0)
    succeeds(world, "worker:0", "worker:1")


def test_a_gang_that_does_without_a_retired_task_is_not_held_in_part_for_ever() -> None:
    """The cluster gives the container that is missing only once the gang has let go of its part."""
    asked: list[str] = []

    def grant_s(task: str) -> float | None:
        asked.append(task)
        return None if task == "worker:0" and asked.count(task) == 1 else 0.1

    habits = Habits(
        grant_s=grant_s,
        work=lambda task, attempt: (5.0, Exit(code=1)) if task == "worker:2" else None,
    )
    world = World(plan(role("worker", 2, 3), hold_s=30.0), habits=habits)
    world.until(lambda: world.runs("worker:1", "worker:2"))
    world.until(lambda: world.runs("worker:0", "worker:1"), 300.0)
    assert world.state.tasks["worker:2"].retired
    succeeds(world, "worker:0", "worker:1")


# -- (K), (M) ends ------------------------------------------------------------------------------------


def test_a_chief_that_succeeds_while_the_gang_breaks_has_succeeded() -> None:
    world = running(plan(role("chief", chief=True), role("worker"), completion=Completion.CHIEF))
    world.fail("chief:0", Exit(code=0), late_s=0.2)
    world.fail("worker:0")
    ends(world, Outcome.SUCCEEDED, 60.0)


def test_a_worker_that_fails_as_the_chief_has_succeeded_changes_nothing() -> None:
    world = running(plan(role("chief", chief=True), role("worker"), completion=Completion.CHIEF))
    world.succeed("chief:0")
    world.until(lambda: world.state.phase is not JobPhase.RUNNING)
    if world.program("worker:0") is not None:
        world.fail("worker:0")
    ends(world, Outcome.SUCCEEDED, 60.0)


@pytest.mark.parametrize("firm", [True, False])
def test_a_stop_of_a_job_that_is_ending_is_no_error(firm: bool) -> None:
    world = running(plan(role("worker", 2, grace_s=10.0), sidecar()))
    world.until(lambda: world.runs("tensorboard:0"))
    world.succeed("worker:0", "worker:1")
    world.until(lambda: world.state.phase is JobPhase.FINISHING)
    world.stop(firm=firm)
    ends(world, Outcome.SUCCEEDED, 60.0)


def test_a_stop_that_is_repeated_leaves_programs_their_grace() -> None:
    stubborn = Habits(ignores_sigterm=lambda task, attempt: True)
    world = running(plan(role("worker", 2, grace_s=300.0)), stubborn)
    world.stop()
    world.sleep(5.0)
    world.stop()
    world.sleep(60.0)
    assert world.program("worker:0") is not None
    ends(world, Outcome.STOPPED)


def test_a_firm_stop_after_a_stop_ends_programs_and_saving() -> None:
    world = running(plan(role("worker", 2, grace_s=1.0)), saving(900.0, "worker:0"))
    world.stop()
    world.sleep(30.0)
    assert not world.done
    world.stop(firm=True)
    began = world.now
    ends(world, Outcome.STOPPED)
    assert world.now - began < 30.0


@pytest.mark.parametrize(
    "phase", [p for p in JobPhase if p not in (JobPhase.SUBMITTED, JobPhase.FINISHED)]
)
def test_a_job_can_be_stopped_in_every_phase(phase: JobPhase) -> None:
    world = World(plan(role("worker", 2, restart_grace_s=2.0), sidecar()))
    if phase is JobPhase.FINISHING:
        world.until(lambda: world.runs("worker:0"))
        world.stop()
    elif phase in (JobPhase.FAILURE_WINDOW, JobPhase.RESTARTING):
        world.until(lambda: world.runs("worker:0", "worker:1"))
        world.fail("worker:0")
        world.until(lambda: world.runs("worker:0", "worker:1") and world.attempt("worker:0") == 2)
        world.fail("worker:0")
    world.until(lambda: world.state.phase is phase)
    world.stop()
    ends(world, Outcome.STOPPED, 120.0)


def test_a_coordinator_that_dies_while_the_job_ends_is_followed_by_one_that_ends_it() -> None:
    stubborn = Habits(ignores_sigterm=lambda task, attempt: True)
    world = running(plan(role("worker", 2, grace_s=20.0), sidecar()), stubborn)
    world.stop()
    world.sleep(5.0)
    world.kill_coordinator()
    ends(world, Outcome.STOPPED, 120.0)


def test_members_that_succeeded_before_a_peer_crashed_are_not_lost_to_the_count() -> None:
    """Partial success: two of three are done when the third crashes."""
    world = running(plan(role("worker", 3)))
    world.succeed("worker:0", "worker:1")
    world.sleep(5.0)
    world.fail("worker:2")
    world.until(lambda: world.state.generation == 2 and world.runs("worker:2"))
    world.sleep(5.0)
    left = [f"worker:{i}" for i in range(3) if world.program(f"worker:{i}") is not None]
    succeeds(world, *left)


def test_lone_tasks_that_succeeded_are_not_run_again_when_another_crashes() -> None:
    world = running(LONE)
    world.succeed("worker:0")
    world.sleep(5.0)
    world.fail("worker:1")
    world.until(lambda: world.attempt("worker:1") == 2 and world.runs("worker:1"))
    assert world.attempt("worker:0") == 1
    succeeds(world, "worker:1")


def tolerant(workers: int = 3, **fields: Any) -> World:
    """A world in which all workers but the first may fail."""
    return running(plan(role("worker", workers, chief=True, tolerated_from=1, **fields)))


@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_worker_that_may_fail_disturbs_nobody(restart: Restart) -> None:
    world = tolerant(restart=restart)
    world.fail("worker:2")
    world.sleep(60.0)
    assert world.runs("worker:0", "worker:1") and not world.runs("worker:2")
    assert (world.state.restarts, world.attempt("worker:2")) == (0, 1)
    succeeds(world, "worker:0", "worker:1")
    assert (
        world.state.reason == "all tracked tasks succeeded but worker:2, which may fail (tolerate)"
    )


def test_the_chief_fails_the_job_whoever_else_may_fail() -> None:
    world = tolerant(attempts=1)
    world.succeed("worker:1")
    world.fail("worker:0")
    assert "its one attempt is spent" in ends(world, Outcome.FAILED)


def test_a_job_of_which_every_task_has_failed_has_failed() -> None:
    world = running(plan(role("helper", 2, tolerated_from=0, ranked=False)))
    world.fail("helper:0")
    world.sleep(5.0)
    world.fail("helper:1")
    assert ends(world, Outcome.FAILED).endswith("every tracked task has failed")


def test_a_lost_machine_of_a_worker_that_may_fail_is_replaced() -> None:
    world = tolerant(attempts=1)
    world.lose("worker:2", ContainerEndKind.NODE_LOST)
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:2"))
    succeeds(world, "worker:0", "worker:1", "worker:2")


def test_a_gang_that_restarts_tries_again_what_had_failed() -> None:
    world = tolerant()
    world.fail("worker:2")
    world.sleep(5.0)
    world.fail("worker:0")
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:2"))
    succeeds(world, "worker:0", "worker:1", "worker:2")


def test_a_gang_begins_without_a_worker_that_cannot_be_prepared() -> None:
    unprepared = Exit(failed_to_start="its checkpoint is damaged")
    habits = Habits(prepare=lambda task, attempt: unprepared if task == "worker:1" else None)
    job = plan(role("worker", 3, chief=True, tolerated_from=1))
    world = World(job, habits=habits)
    world.until(lambda: world.runs("worker:0", "worker:2"))
    succeeds(world, "worker:0", "worker:2")


def test_what_waits_for_a_role_does_not_wait_for_its_failed_tasks() -> None:
    habits = Habits(work=lambda task, attempt: (0.1, NO_PROGRAM) if task == "worker:1" else None)
    evaluator = role("evaluator", after=("worker",), ranked=False, join=Join.NOW)
    job = plan(role("worker", 3, chief=True, tolerated_from=1), evaluator)
    world = World(job, habits=habits)
    world.until(lambda: world.runs("worker:0", "worker:2", "evaluator:0"))
    succeeds(world, "worker:0", "worker:2", "evaluator:0")


def test_the_cause_of_a_broken_gang_is_its_strongest_report() -> None:
    """A lost machine is noticed last; its peers' errors come first."""
    world = running(plan(role("worker", 3, attempts=1)), nodes=6)
    world.fail("worker:1", Exit(code=1, tail=("ConnectionResetError",)))
    world.lose("worker:0", ContainerEndKind.NODE_LOST)
    names = ("worker:0", "worker:1", "worker:2")
    world.until(lambda: world.state.generation == 2 and world.runs(*names))
    assert world.state.failures[-1].report.task.index == 0
    assert not world.state.failures[-1].counted
    succeeds(world, "worker:0", "worker:1", "worker:2")


def test_a_kill_that_is_heard_of_after_its_peers_errors_is_the_cause() -> None:
    world = running(plan(role("worker", 3)))
    world.fail("worker:0", Exit(signal=9), late_s=0.2)
    world.fail("worker:1", Exit(code=1, tail=("ConnectionResetError",)))
    world.until(lambda: world.state.failures)
    report = world.state.failures[-1].report
    assert (report.task.index, report.cause) == (0, FailureCause.SIGNAL)


@pytest.mark.parametrize("exit", [Exit(code=0), Exit(signal=15)], ids=["clean", "killed"])
@pytest.mark.parametrize("restart", [Restart.GANG, Restart.TASK])
def test_a_program_that_was_ended_with_its_container_has_neither_succeeded_nor_failed(
    exit: Exit, restart: Restart
) -> None:
    """A resource manager ends agent and program first, and says why a second later."""
    world = running(plan(role("worker", 2, attempts=1, restart=restart)))
    agent, program = world.program("worker:0") or pytest.fail("no worker")
    program.told_to_stop = True
    world.cluster.exit(agent, program, exit)
    world.clock.later(
        0.1,
        lambda: world.cluster.end_container(
            agent.container_id, ContainerEndKind.PREEMPTED, late_s=1.0
        ),
    )
    world.until(lambda: world.attempt("worker:0") == 2 and world.runs("worker:0", "worker:1"))
    assert world.state.failures[-1].report.cause is FailureCause.PREEMPTED
    succeeds(world, "worker:0", "worker:1")


def test_a_hung_program_that_then_ran_out_of_memory_ran_out_of_memory() -> None:
    """What its agent has proven is stronger than what was guessed from silence."""
    world = running(plan(role("worker", 2)))
    world.hang("worker:0")
    world.until(lambda: world.state.tasks["worker:0"].state is TaskState.STOPPING)
    world.fail("worker:0", Exit(signal=9, out_of_memory=True))
    world.until(lambda: world.state.generation == 2 and world.runs("worker:0", "worker:1"))
    assert world.state.failures[-1].report.cause is FailureCause.OUT_OF_MEMORY


# -- (N), (P), (U) many ----------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [Restart.TASK, Restart.NEVER])
def test_in_mode_each_everyone_is_told_the_planned_size_of_the_world(restart: Restart) -> None:
    """`World.starts` holds every start against the plan."""
    waits = {f"worker:{i}": 10.0 * i for i in range(4)}
    world = World(
        plan(role("worker", 4, processes=2, restart=restart, join=Join.NOW), mode=Mode.EACH),
        habits=Habits(grant_s=lambda task: waits[task]),
    )
    names = [f"worker:{i}" for i in range(4)]
    world.until(lambda: world.runs(*names), 120.0)
    succeeds(world, *names)


def many(tasks: int, **habits: object) -> World:
    """So many independent tasks that come up one by one, do a second's work and succeed."""
    given = {"work": lambda task, attempt: (30.0, Exit(code=0)), "delay_s": 0.5, **habits}
    job = plan(role("worker", tasks, restart=Restart.TASK, join=Join.NOW), mode=Mode.EACH)
    world = World(
        job, habits=Habits(**given), nodes=100, check_every=10**9, count_work=tasks <= 1000
    )
    world.run()
    return world


def test_the_machine_s_work_grows_no_faster_than_the_tasks_of_mode_each() -> None:
    one, two = many(250), many(500)
    assert one.state.outcome is two.state.outcome is Outcome.SUCCEEDED
    assert two.work < 2.5 * one.work
    assert sum(two.commands.values()) < 2.5 * sum(one.commands.values())


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_ten_thousand_tasks_of_mode_each_run_to_their_end() -> None:
    world = many(10_000)
    assert world.state.outcome is Outcome.SUCCEEDED
    print(f"10,000 tasks of mode each: {world.handle_s:.1f}s in the machine, {world.steps} steps")


@pytest.mark.parametrize("tasks", [10, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_requests_that_can_never_be_met_end_the_job_with_one_record(tasks: int) -> None:
    habits = Habits(refuse=lambda task: "" if task.endswith("7") else "larger than any node")
    world = World(plan(role("worker", tasks)), habits=habits, nodes=100, check_every=10**9)
    assert "larger than any node" in ends(world, Outcome.FAILED, 60.0)
    assert world.kinds().count("finishing") == 1 and len(world.records) < 10
    assert world.commands["ReleaseContainer"] <= tasks
    print(f"{tasks} refused requests: {world.handle_s:.1f}s in the machine, {world.steps} steps")
