"""The like of TonY's end-to-end tests: what dies, what is late, and what of the job goes on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from howdah.backends.base import BackendError
from tests.hadoop.plugin import MakeCluster
from tests.yarn.runner import Yarn, YarnJob, until
from tests.yarn.tony import Tony, conf

WAIT = """
import os, time
print("pid", os.getpid(), flush=True)
while not os.path.exists(os.environ["STOP_FILE"]):
    time.sleep(0.1)
"""


def waiting(tony: Tony, *arguments: str, **types: int) -> YarnJob:
    """A job that runs until `stop`."""
    job = tony.executes(WAIT, "-shell_env", f"STOP_FILE={tony.folder}/stop", *arguments, **types)
    job.running()
    return job


def _agent(job: YarnJob, task: str) -> psutil.Process:
    """The agent itself, not the shell that YARN has started it with."""
    parent = psutil.Process(job.task(task).pids[0]).parent()
    assert parent is not None
    return parent


def stop(tony: Tony) -> None:
    (tony.folder / "stop").touch()


@pytest.mark.tony("missed heartbeats")
def test_an_agent_that_says_nothing_any_more_costs_its_container_and_not_the_job(
    tony: Tony,
) -> None:
    job = waiting(tony, worker=1, ps=1)
    lost = job.task("worker:0").container
    os.kill(_agent(job, "worker:0").pid, signal.SIGSTOP)
    job.until(
        lambda v: (v.generation == 2 and all(t.state == "running" for t in v.tasks)) or None,
        "the gang runs again",
        120,
    )
    assert job.task("worker:0").container != lost
    until(lambda: lost not in job.containers(), "the silent container is gone")
    stop(tony)
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    assert [f.cause for f in final.failures] == ["agent-lost"]
    assert not final.failures[0].counted


@pytest.mark.tony("the application master crashes")
@pytest.mark.tony("the client loses the application master")
def test_a_crashed_master_is_replaced_while_programs_and_client_go_on(tony: Tony) -> None:
    job = waiting(tony, worker=2)
    before = job.view()
    job.kill_master()
    view = job.until(lambda v: v if v.incarnation == 2 else None, "a second coordinator")
    job.running()
    assert [task.pids for task in view.tasks] == [task.pids for task in before.tasks]
    stop(tony)
    final = job.wait(120)
    assert (final.outcome, final.restarts) == ("succeeded", 0)


@pytest.mark.tony("the application master throws an exception")
def test_a_master_that_dies_as_often_as_it_may_fails_the_job_and_leaves_nothing(
    tony: Tony,
) -> None:
    job = waiting(tony, "--set", "master.attempts=1", worker=1)
    job.kill_master()
    final = job.wait(120)
    assert final.outcome == "failed"
    assert final.failures[0].cause == "coordinator-lost"
    assert "master" in final.reason
    until(lambda: not job.processes(), "the end of everything it had started")


@pytest.mark.tony("worker 0 is killed")
def test_a_killed_worker_ends_a_job_of_one_attempt_by_its_signal(tony: Tony) -> None:
    job = waiting(tony, worker=1)
    os.kill(job.task("worker:0").pids[0], signal.SIGKILL)
    final = job.wait(120)
    assert final.outcome == "failed"
    assert (final.failures[0].task, final.failures[0].signal) == ("worker:0", "SIGKILL")


@pytest.mark.tony("Horovod's driver crashes")
def test_a_crashed_driver_ends_a_horovod_job(tony: Tony) -> None:
    job = waiting(tony, *conf({"tony.application.framework": "horovod"}), worker=1)
    os.kill(job.task("driver:0").pids[0], signal.SIGKILL)
    final = job.wait(120)
    assert final.outcome == "failed"
    assert final.failures[0].task == "driver:0"


@pytest.mark.timeout(400)
@pytest.mark.tony("a completion that is notified late")
def test_a_node_that_tells_nothing_for_a_while_delays_no_success(
    hadoop_cluster: MakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # For YARN the node is never lost meanwhile.
    cluster = hadoop_cluster(node_managers=1, labels=False, node_expiry_ms=120_000)
    for name, value in cluster.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    yarn = Yarn(cluster, tmp_path)
    tony = Tony(yarn, tmp_path)
    job = waiting(tony, worker=1)
    cluster.pause("nodemanager1")
    try:
        stop(tony)
        job.until(lambda v: v.tasks[0].state == "succeeded" or None, "the worker has succeeded", 60)
    finally:
        cluster.resume("nodemanager1")
    final = job.wait(120)
    assert (final.outcome, final.failures) == ("succeeded", ())
    yarn.close()


@pytest.mark.tony("allocation time-out: more workers than the cluster has room for")
def test_more_workers_than_the_cluster_can_ever_hold_are_refused_at_once(
    tony: Tony, yarn: Yarn
) -> None:
    timeout = {"tony.container.allocation.timeout": "5000"}
    with pytest.raises(BackendError, match=r"can never run the job(.|\n)*10,?000|memory"):
        tony.executes("pass", *conf(timeout), worker=10_000)


@pytest.mark.most_of_the_cluster
@pytest.mark.tony("allocation time-out: more workers than the cluster has room for")
def test_a_gang_that_does_not_come_together_in_time_gives_everything_back(
    tony: Tony, yarn: Yarn
) -> None:
    # Each fits alone, both do not: the first holds what the second waits for.
    half = {"tony.worker.memory": "3g"}
    first = tony.executes(
        WAIT, "-shell_env", f"STOP_FILE={tony.folder}/stop", *conf(half), worker=3
    )
    first.running(150.0)  # others may still use the nodes
    second = tony.executes(
        "pass", *conf({**half, "tony.container.allocation.timeout": "6000"}), worker=3
    )
    final = second.wait(120)
    assert final.outcome == "timed-out"
    assert "allocation time-out after 6s: no container for worker:" in final.reason
    stop(tony)
    assert first.wait(120).outcome == "succeeded"


@pytest.mark.most_of_the_cluster
@pytest.mark.tony("start-up time-out of the application master")
def test_a_master_that_is_not_started_in_time_is_not_waited_for(tony: Tony, yarn: Yarn) -> None:
    big = ("--set", "master.memory=6g")
    first = tony.executes(
        WAIT,
        "-shell_env",
        f"STOP_FILE={tony.folder}/stop",
        *conf({"tony.worker.memory": "5g"}),
        worker=2,
    )
    first.running(150.0)  # others may still use the nodes
    job = tony.executes("pass", *big, *conf({"tony.am.startup-timeout": "3000"}), worker=1)
    final = job.wait(120)
    assert final.outcome == "timed-out"
    assert "the master did not begin within 3s" in final.reason
    assert job.until_application("KILLED")
    stop(tony)
    assert first.wait(120).outcome == "succeeded"


LINGER = """
import os, time
print("up", flush=True)
time.sleep(float(os.environ[os.environ["JOB_NAME"].upper()]))
"""


def lingering(tony: Tony, *arguments: str, evaluator: float) -> YarnJob:
    """A chief that ends at once, a worker after a second, an evaluator when it is told."""
    times = {"CHIEF": 0.2, "WORKER": 1.0, "EVALUATOR": evaluator}
    env = [word for name, s in times.items() for word in ("-shell_env", f"{name}={s}")]
    return tony.executes(LINGER, *env, *arguments, chief=1, worker=1, evaluator=1)


def group(timeout_s: int, members: str = "worker,chief", name: str = "A", **more: str) -> list[str]:
    key = f"tony.application.dependency.evaluator.timeout.after.{name}"
    return conf(
        {f"tony.application.group.{name}": members, key: timeout_s}
        | {f"{key}.{what}": value for what, value in more.items()}
    )


@pytest.mark.tony("a group's time-out ends the job")
def test_an_evaluator_that_goes_on_too_long_after_its_group_times_the_job_out(tony: Tony) -> None:
    final = lingering(tony, *group(2), evaluator=600).wait(120)
    assert final.outcome == "timed-out"
    assert final.reason == "evaluator:0 still ran 2s after worker and chief had succeeded"


@pytest.mark.tony("a group's time-out that is not reached")
def test_an_evaluator_that_ends_in_time_is_waited_for(tony: Tony) -> None:
    final = lingering(tony, *group(60), evaluator=3).wait(120)
    assert final.outcome == "succeeded", final.reason


@pytest.mark.tony("time-outs of several groups")
def test_each_role_has_its_own_group_and_time(tony: Tony) -> None:
    other = conf(
        {
            "tony.application.group.B": "chief",
            "tony.application.dependency.worker.timeout.after.B": 60,
        }
    )
    final = lingering(tony, *group(2), *other, evaluator=600).wait(120)
    assert final.outcome == "timed-out"
    assert final.reason.startswith("evaluator:0 still ran 2s after")


@pytest.mark.tony("a group's time-out that is ignored")
def test_an_evaluator_whose_time_out_is_ignored_is_stopped_and_the_job_succeeds(
    tony: Tony,
) -> None:
    final = lingering(tony, *group(2, ignored="true"), evaluator=600).wait(120)
    assert final.outcome == "succeeded", final.reason
    states = {task.task: task.state for task in final.tasks}
    assert states == {"chief:0": "succeeded", "worker:0": "succeeded", "evaluator:0": "ended"}


def late_worker(tony: Tony, worker: str, *arguments: str, **types: int) -> YarnJob:
    """A chief that ends at once, and a worker that is no longer waited for after a second."""
    tony.script("for_ever.py", "import time\ntime.sleep(600)")
    tony.script("fail_late.py", "import time\ntime.sleep(3)\nraise SystemExit(1)")
    key = "tony.application.dependency.worker.timeout.after.A"
    values = {"tony.application.group.A": "chief", key: 1, f"{key}.ignored": "true"}
    values["tony.worker.command"] = f"python3 {worker}"
    return tony.executes("", *conf(values), *arguments, chief=1, worker=1, **types)


@pytest.mark.tony("a group's time-out that is ignored, beside a ps")
def test_a_ps_and_a_worker_that_never_end_are_stopped_when_the_chief_has_succeeded(
    tony: Tony,
) -> None:
    ps = conf({"tony.ps.command": "python3 for_ever.py"})
    final = late_worker(tony, "for_ever.py", *ps, ps=1).wait(120)
    assert final.outcome == "succeeded", final.reason
    states = {task.task: task.state for task in final.tasks}
    assert states == {"chief:0": "succeeded", "worker:0": "ended", "ps:0": "ended"}


@pytest.mark.tony("a group's time-out that is ignored, and a failure")
def test_a_worker_that_is_no_longer_waited_for_still_fails_the_job(tony: Tony) -> None:
    evaluator = conf({"tony.evaluator.command": "python3 for_ever.py"})
    final = late_worker(tony, "fail_late.py", *evaluator, evaluator=1).wait(120)
    assert final.outcome == "failed"
    assert final.failures[0].task == "worker:0"


@pytest.mark.tony("lost connection with the application master")
def test_a_frozen_master_is_replaced_and_the_agents_go_to_the_new_one(tony: Tony) -> None:
    job = waiting(tony, worker=1)
    pids = job.task("worker:0").pids
    frozen = job.master()
    os.kill(frozen.pid, signal.SIGSTOP)
    # The ResourceManager gives a master up that does not call; here after thirty seconds.
    view = job.until(lambda v: v if v.incarnation == 2 else None, "a second coordinator", 120)
    job.running()
    assert view.tasks[0].pids == pids
    stop(tony)
    final = job.wait(120)
    assert (final.outcome, final.restarts) == ("succeeded", 0)
