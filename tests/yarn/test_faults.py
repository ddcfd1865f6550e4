"""What must not end a job on YARN: any one of its processes dying."""

from __future__ import annotations

import os
import signal

import psutil

from tests.yarn.runner import Yarn, YarnJob, until

STEPS = """
import os, time
step = 0
while not os.path.exists(os.environ["STOP_FILE"]):
    step += 1
    print("step", step, "pid", os.getpid(), flush=True)
    time.sleep(0.1)
"""


def steps(yarn: Yarn, more: str = "", instances: int = 2) -> YarnJob:
    """A job that counts until its stop file is there."""
    text = f"""
command = "python3 steps.py"
env = {{ STOP_FILE = "{yarn.folder}/stop" }}
{more}
[roles.worker]
instances = {instances}
memory = "256m"
"""
    return yarn.submit(text, files={"steps.py": STEPS})


def stop(yarn: Yarn) -> None:
    (yarn.folder / "stop").touch()


def last_step(job: YarnJob, task: str) -> int:
    lines = [line for line in job.log(task).splitlines() if line.startswith("step")]
    return int(lines[-1].split()[1]) if lines else 0


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
