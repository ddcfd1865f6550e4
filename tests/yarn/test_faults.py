"""What must not end a job on YARN: any one of its processes dying."""

from __future__ import annotations

import os
import re
import signal

import psutil
import pytest

from howdah.backends.base import BackendError
from tests.yarn.runner import Yarn, YarnJob, until

STEPS = """
import os, time
step = 0
while not os.path.exists(os.environ["STOP_FILE"]):
    step += 1
    print("step", step, "pid", os.getpid(), "at", time.time(), flush=True)
    time.sleep(0.1)
"""


def steps(yarn: Yarn, more: str = "", instances: int = 2, memory: str = "256m") -> YarnJob:
    """A job that counts until its stop file is there."""
    text = f"""
command = "python3 steps.py"
env = {{ STOP_FILE = "{yarn.folder}/stop" }}
{more}
[roles.worker]
instances = {instances}
memory = "{memory}"
"""
    return yarn.submit(text, files={"steps.py": STEPS})


def stop(yarn: Yarn) -> None:
    (yarn.folder / "stop").touch()


def last_step(job: YarnJob, task: str) -> int:
    # The last line may be on its way.
    steps = re.findall(r"^step (\d+)", job.log(task), re.MULTILINE)
    return int(steps[-1]) if steps else 0


def births(job: YarnJob) -> dict[int, float]:
    """Agents and programs with their start times."""
    view = job.view()
    pids = [pid for task in view.tasks for pid in task.pids]
    processes = [psutil.Process(pid) for pid in pids] + [job.agent(t.task) for t in view.tasks]
    return {process.pid: process.create_time() for process in processes}


def test_a_killed_master_is_replaced_and_the_programs_never_notice(yarn: Yarn) -> None:
    job = steps(yarn)
    job.running()
    before = births(job)
    first = job.view()
    measured = until(lambda: job.handle.metrics(), "measurements are on HDFS")
    for incarnation in (2, 3):
        seen = last_step(job, "worker:0")
        killed = job.kill_master()
        view = job.until(
            lambda v, n=incarnation: v if v.incarnation == n else None, "a new coordinator"
        )
        assert job.master().pid != killed
        job.running()
        until(lambda n=seen: last_step(job, "worker:0") > n + 5, "steps go on")
        assert [task.pids for task in view.tasks] == [task.pids for task in first.tasks]
    assert births(job) == before
    stop(yarn)
    final = job.wait()
    assert (final.outcome, final.restarts) == ("succeeded", 0)
    assert all(task.attempt == 1 for task in final.tasks)
    found = job.handle.metrics()
    assert found[: len(measured)] == measured, "the last coordinator has ended before it knew them"


def test_a_killed_agent_costs_its_container_and_no_attempt(yarn: Yarn) -> None:
    job = steps(yarn)
    job.running()
    container = job.task("worker:1").container
    os.kill(job.agent("worker:1").pid, signal.SIGKILL)
    job.until(
        lambda v: (v.generation == 2 and all(t.state == "running" for t in v.tasks)) or None,
        "the gang runs again",
    )
    assert job.task("worker:1").container != container
    stop(yarn)
    assert job.wait().outcome == "succeeded"


def test_a_killed_program_is_charged_and_started_again_in_its_container(yarn: Yarn) -> None:
    job = steps(yarn)
    tasks = job.running()
    os.kill(tasks[0].pids[0], signal.SIGKILL)
    view = job.until(
        lambda v: v if v.generation == 2 and all(t.state == "running" for t in v.tasks) else None,
        "the gang runs again",
    )
    assert [task.container for task in view.tasks] == [task.container for task in tasks]
    stop(yarn)
    assert job.wait().outcome == "succeeded"


@pytest.mark.most_of_the_cluster
def test_two_gangs_on_a_cluster_for_one_both_finish(yarn: Yarn) -> None:
    text = """
command = "sleep 1"
[timeouts]
hold = "3s"
[roles.worker]
instances = 4
memory = "2500m"
"""
    # Of the two plain nodes with 6 GiB each four such containers fit, beside both masters.
    jobs = [yarn.submit(text), yarn.submit(text)]
    assert [job.wait(150.0).outcome for job in jobs] == ["succeeded", "succeeded"]


def test_what_is_larger_than_the_cluster_is_refused_with_what_fits(yarn: Yarn) -> None:
    with pytest.raises(BackendError, match=r"at most: roles\.worker\.instances = \d+"):
        yarn.submit('command = "true"\n[roles.worker]\ninstances = 40\nmemory = "1g"\n')


@pytest.mark.most_of_the_cluster
def test_a_gang_that_others_leave_no_place_for_times_out_in_words(yarn: Yarn) -> None:
    holder = steps(yarn, instances=4, memory="2500m")
    holder.running()
    job = yarn.submit(
        'command = "true"\n[timeouts]\nallocation = "4s"\n'
        '[roles.worker]\ninstances = 4\nmemory = "2500m"\n'
    )
    final = job.wait(90.0)
    assert final.outcome == "timed-out"
    assert "worker" in final.reason
    assert job.until_application("FINISHED")["finalStatus"] == "FAILED"
    stop(yarn)
    assert holder.wait().outcome == "succeeded"


def test_a_job_whose_agents_cannot_start_shows_the_containers_own_words(yarn: Yarn) -> None:
    job = yarn.submit(
        'command = "true"\nattempts = 1\n[hadoop]\npython = "/no/such/python"\n'
        '[roles.worker]\nmemory = "256m"\n'
    )
    told = job.until_application("FAILED", 120.0)
    assert "/no/such/python" in told["diagnostics"]
