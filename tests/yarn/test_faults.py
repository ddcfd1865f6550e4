"""What must not end a job on YARN: any one of its processes dying, and other jobs that are in its way."""

from __future__ import annotations

import os
import signal

import pytest

from tests.yarn.runner import Yarn, until


def test_a_killed_master_is_replaced_and_the_programs_never_notice(yarn: Yarn) -> None:
    job = yarn.steps('[checkpoint]\nsettle = "100ms"')
    job.running()
    job.saves_on()
    before, first = job.births(), job.view()
    measured = until(lambda: job.handle.metrics(), "measurements are on HDFS")
    killed = job.kill_master()
    view = job.until(lambda v: v if v.incarnation == 2 else None, "a new coordinator")
    assert job.master().pid != killed
    assert [task.pids for task in view.tasks] == [task.pids for task in first.tasks]
    job.goes_on("worker:0")
    job.saves_on()
    assert job.births() == before
    yarn.stop(job)
    final = job.wait()
    assert (final.outcome, final.restarts) == ("succeeded", 0)
    assert all(task.attempt == 1 for task in final.tasks)
    assert job.handle.metrics()[: len(measured)] == measured
    saved = job.read(f"checkpoints/{final.checkpoint}/step.txt").decode()
    assert job.log("worker:0").endswith(f"trained to step {saved}")


@pytest.mark.nightly
@pytest.mark.tony("lost connection with the application master")
def test_a_frozen_master_is_replaced_and_the_agents_go_to_the_new_one(yarn: Yarn) -> None:
    job = yarn.steps()
    job.running()
    before = job.births()
    frozen = job.master()
    os.kill(frozen.pid, signal.SIGSTOP)
    # The ResourceManager gives a master up that does not call, here after thirty seconds.
    job.until(lambda v: v.incarnation == 2, "a second coordinator")
    job.running()
    assert job.births() == before
    yarn.stop(job)
    final = job.wait()
    assert (final.outcome, final.restarts) == ("succeeded", 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("number", "cause"),
    [
        pytest.param(signal.SIGKILL, "container-lost", id="killed"),
        pytest.param(
            signal.SIGSTOP, "agent-lost", id="silent", marks=pytest.mark.tony("missed heartbeats")
        ),
    ],
)
def test_a_lost_agent_costs_its_container_and_no_attempt(
    yarn: Yarn, number: signal.Signals, cause: str
) -> None:
    job = yarn.steps()
    job.running()
    lost = job.task("worker:1").container
    os.kill(job.agent("worker:1").pid, number)
    job.until(
        lambda v: v.generation == 2 and all(t.state == "running" for t in v.tasks),
        "the gang runs again",
    )
    assert job.task("worker:1").container != lost
    until(lambda: lost not in job.containers(), "the container is gone")
    yarn.stop(job)
    final = job.wait()
    assert final.outcome == "succeeded", final.reason
    assert [(f.cause, f.counted) for f in final.failures] == [(cause, False)]


@pytest.mark.nightly
@pytest.mark.tony("the application master throws an exception")
def test_a_master_that_dies_as_often_as_it_may_fails_the_job_and_leaves_nothing(yarn: Yarn) -> None:
    job = yarn.steps('[master]\nmemory = "256m"\nattempts = 1', instances=1)
    job.running()
    job.kill_master()
    final = job.wait()
    assert final.outcome == "failed"
    assert final.failures[0].cause == "coordinator-lost"
    assert "master" in final.reason
    until(lambda: not job.processes(), "the end of everything it had started")


@pytest.mark.nightly
def test_two_gangs_on_a_cluster_for_one_both_finish(yarn: Yarn) -> None:
    text = """
command = "sleep 1"
[timeouts]
hold = "3s"
[roles.worker]
instances = 4
memory = "2500m"
"""
    # Four such containers fit beside both masters.
    jobs = [yarn.submit(text), yarn.submit(text)]
    assert [job.wait().outcome for job in jobs] == ["succeeded", "succeeded"]


@pytest.mark.nightly
@pytest.mark.tony("allocation time-out: more workers than the cluster has room for")
def test_a_gang_that_others_leave_no_place_for_times_out_in_words(yarn: Yarn) -> None:
    holder = yarn.steps(instances=4, memory="2500m")
    holder.running()
    job = yarn.submit(
        'command = "true"\n[timeouts]\nallocation = "4s"\n'
        '[roles.worker]\ninstances = 4\nmemory = "2500m"\n'
    )
    final = job.wait()
    assert final.outcome == "timed-out"
    assert "allocation time-out after 4s: no container for worker:" in final.reason
    assert job.until_application("FINISHED")["finalStatus"] == "FAILED"
    yarn.stop(holder)
    assert holder.wait().outcome == "succeeded"


@pytest.mark.nightly
@pytest.mark.tony("start-up time-out of the application master")
def test_a_master_that_is_not_started_in_time_is_not_waited_for(yarn: Yarn) -> None:
    holder = yarn.steps(instances=1, memory="9g")
    holder.running()
    job = yarn.submit(
        'command = "true"\n[master]\nmemory = "4g"\nstartup = "3s"\n'
        '[roles.worker]\nmemory = "256m"\n'
    )
    final = job.wait()
    assert final.outcome == "timed-out"
    assert "the master did not begin within 3s" in final.reason
    assert job.until_application("KILLED")
    yarn.stop(holder)
    assert holder.wait().outcome == "succeeded"
