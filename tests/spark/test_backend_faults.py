"""The Spark backend on a master with two workers, and the deaths of what it stands on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from howdah.client.lookup.find import find
from tests.spark.backend_jobs import container_folders, eventually, marked, pids
from tests.spark.programs import Done, run_program, start_program
from tests.spark.servers import Standalone

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("no_container_left")]


DRIVER = """
import time
from tests.spark.backend_jobs import Started, wait_for
job = Started(spark, wait_for, ({file!r},))
print("job=" + job.job_id, flush=True)
job.ended(300)
"""


def test_when_the_driver_program_is_killed_nothing_remains_after_seconds(tmp_path: Path) -> None:
    text = DRIVER.format(file=str(tmp_path / "go"))
    root = str(Path(__file__).parents[2])
    program = start_program(text, tmp_path / "program", env={"PYTHONPATH": root})
    try:
        job_id = program.wait_line(r"^job=(.*)$", 120)
        eventually(lambda: len(pids(tmp_path)) == 2, "both run")
        program.kill()
        eventually(lambda: not marked(job_id), "no process of the job is left")
        eventually(lambda: not container_folders(), "no container process is left")
    finally:
        program.end()
    view = eventually(find(job_id).final, "the end is written down")
    assert view.outcome == "stopped"
    assert "program that had the Spark session has ended" in view.reason


STOPPING = """
import pathlib
from howdah.backends.spark.facts import read_when_there
from howdah.backends.spark.sessions import session_of
from tests.spark.backend_jobs import Started, eventually, pids, wait_for

facts = read_when_there(session_of(spark), 2, 60)
print("facts=" + repr((facts.local, facts.capacity, facts.speculation)))
folder = pathlib.Path({folder!r})
job = Started(spark, wait_for, (str(folder / "go"),), roles={{"worker": 1}})
eventually(lambda: len(pids(folder)) == 1, "it runs")
spark.stop()
view = job.ended()
print(f"outcome={{view.outcome}}: {{view.reason}}")
"""


def test_a_job_ends_with_its_session(tmp_path: Path) -> None:
    done = run_program(STOPPING.format(folder=str(tmp_path)), tmp_path / "program", timeout_s=120)
    assert done.told("facts") == "(True, 2, False)"
    assert done.told("outcome").startswith("stopped: ")
    assert "the Spark session was stopped" in done.told("outcome")


WITH_DEVICES = """
import json, os
from howdah.backends.base import BackendError
from howdah.spec.model import Role, Slots
from tests.spark.backend_jobs import Started

def look():
    return os.environ["CUDA_VISIBLE_DEVICES"]

def refused(what, call):
    try:
        call()
    except BackendError as error:
        print(f"{what}=" + " ".join(str(error).split()), flush=True)

print("found=" + json.dumps(Started(spark, look, slots=None).values()), flush=True)
refused("shared", lambda: Started(spark, look, slots=Slots.SHARED))

from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
wants = TaskResourceRequests().cpus(1).resource("gpu", 2)
both = ResourceProfileBuilder().require(wants).build
job = Started(spark, look, roles={"worker": Role(gpus=2)}, profile=both, slots=None)
print("both=" + json.dumps(job.values()), flush=True)
refused("few", lambda: Started(spark, look, profile=both, slots=None))

from howdah.spark import Cluster, run
print("run=" + json.dumps(run(look, workers=1, gpus=2, resources=both, on_log=None)), flush=True)
wait = {"slots_timeout_s": 0.5, "on_log": None}
refused("fed", lambda: Cluster.start(spark, look, workers=2, gpus=1, **wait))
"""

FED_WITH_DEVICES = """
import json, os, time
from howdah.spark import Cluster
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests

def look(args, ctx):
    rows = sum(len(batch["id"]) for batch in ctx.feed().batches(10))
    return os.environ["CUDA_VISIBLE_DEVICES"], rows

both = ResourceProfileBuilder().require(TaskResourceRequests().cpus(1).resource("gpu", 2)).build
with Cluster.start(spark, look, workers=1, gpus=2, resources=both) as cluster:
    tracker, held = spark.sparkContext._jsc.sc().statusTracker(), 0
    while not held:  # Spark's status comes a moment later
        time.sleep(0.05)
        held = sum(each.numRunningTasks() for each in tracker.getExecutorInfos())
    print(f"held={held}", flush=True)
    cluster.train(spark.range(0, 100, 1, 2))
    print("fed=" + json.dumps(cluster.results()[0]), flush=True)
"""


def test_functions_get_the_gpus_that_spark_or_a_profile_gives_their_tasks_and_hold_them(
    tmp_path: Path,
) -> None:
    devices = tmp_path / "devices"
    devices.write_text("""#!/bin/sh\necho '{"name": "gpu", "addresses": ["5", "7"]}'\n""")
    devices.chmod(0o700)
    worker = "-Dspark.worker.resource.gpu.amount=2 -Dspark.worker.resource.gpu.discoveryScript="
    root = str(Path(__file__).parents[2])
    env = {"SPARK_WORKER_OPTS": f"{worker}{devices}"}
    with Standalone(tmp_path / "standalone", workers=1, cores=2, env=env) as cluster:

        def run(text: str, **conf: str) -> Done:
            conf = {"spark.executor.resource.gpu.amount": "2", **conf}
            return run_program(
                text,
                tmp_path / "program",
                spark=cluster,
                conf=conf,
                env={"PYTHONPATH": root},
                timeout_s=150,
            )

        done = run(WITH_DEVICES, **{"spark.task.resource.gpu.amount": "1"})
        fed = run(FED_WITH_DEVICES)
    assert sorted(json.loads(done.told("found")).values()) == ["5", "7"]
    assert json.loads(done.told("both")) == {"0": "5,7"}
    assert "needs 2 slots at the same time, the application has 1" in done.told("few")
    assert json.loads(done.told("run")) == ["5,7"]
    assert "spark.task.resource.gpu.amount gives each task 1 GPU" in done.told("shared")
    assert "which take a GPU each, too" in done.told("fed")
    assert fed.told("held") == "1" and "slots=" not in fed.out
    assert json.loads(fed.told("fed")) == ["5,7", 100]
