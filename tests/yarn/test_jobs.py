"""Whole jobs on a real cluster: what their programs find, how they end, what is left."""

from __future__ import annotations

import json

import pytest

from howdah.storage.hdfs.files import Hdfs
from tests.yarn.runner import Yarn, until

TWO = """
name = "two"
command = "python3 program.py"
[roles.worker]
instances = 2
memory = "256m"
"""


def test_two_tasks_run_in_containers_of_their_own_and_know_each_other(yarn: Yarn) -> None:
    program = """
import json, os, sys
print(json.dumps({
    "cwd": os.getcwd(), "files": sorted(os.listdir()), "env": dict(os.environ),
    "task": __import__("howdah.task").task.__file__,
}))
"""
    job = yarn.submit(TWO, files={"program.py": program})
    final = job.wait()
    assert (final.outcome, final.exit_code) == ("succeeded", 0), final.reason
    assert {task.rank for task in final.tasks} == {0, 1}
    for index in range(2):
        told = json.loads(job.log(f"worker:{index}"))
        env = told["env"]
        folder, _, last = told["cwd"].rpartition("/")
        assert last == "task"
        assert job.application_id.removeprefix("application_") in folder.rpartition("/")[2]
        assert "program.py" in told["files"]
        assert told["task"] == f"{folder}/python/howdah/task.py"
        assert env["RANK" if "RANK" in env else "HOWDAH_RANK"] == str(index)
        assert len(json.loads(env["HOWDAH_CLUSTER"])["worker"]) == 2
        assert env["HOWDAH_TENSORBOARD_DIR"].endswith("/tensorboard")
        assert (env["HADOOP_CONF_DIR"], env["HADOOP_USER_NAME"]) != ("", "")
        assert "HOWDAH_LAUNCH" not in env
    told = job.until_application("FINISHED")
    assert told["finalStatus"] == "SUCCEEDED"
    assert json.loads(job.read("final.json"))["outcome"] == "succeeded"
    first = json.loads(job.read("events-0001.jsonl").split(b"\n")[0])
    began, waited_s = first["now"], first["event"]["waited_s"]
    assert job.directory.meta().submitted <= began - waited_s < began


def test_a_failing_task_fails_the_application_with_its_reason(yarn: Yarn) -> None:
    job = yarn.submit(
        'command = "echo ouch >&2; exit 3"\nattempts = 1\n[roles.worker]\nmemory = "256m"\n'
    )
    final = job.wait()
    assert final.outcome == "failed"
    assert final.failures[0].exit_code == 3
    assert "ouch" in final.failures[0].tail
    told = job.until_application("FINISHED")
    assert told["finalStatus"] == "FAILED"
    assert "worker:0" in told["diagnostics"]


def test_a_stopped_job_is_a_killed_application_and_leaves_nothing(yarn: Yarn) -> None:
    job = yarn.submit('command = "sleep 300"\n[roles.worker]\ninstances = 2\nmemory = "256m"\n')
    job.running()
    job.handle.stop("enough")
    assert job.wait().outcome == "stopped"
    assert job.until_application("FINISHED")["finalStatus"] == "KILLED"
    until(lambda: not job.processes(), "nothing of it is left")


@pytest.mark.nightly
def test_a_task_over_its_containers_memory_is_told_so(yarn: Yarn) -> None:
    program = "x = bytearray(700 << 20)\nimport time\ntime.sleep(60)\n"
    job = yarn.submit(
        'command = "python3 program.py"\nattempts = 1\n[roles.worker]\nmemory = "256m"\n',
        files={"program.py": program},
    )
    final = job.wait()
    assert final.outcome == "failed"
    assert final.failures[0].cause == "out-of-memory", final.failures


@pytest.mark.nightly
def test_what_a_task_makes_is_listed_and_what_the_job_file_keeps_is_on_hdfs(yarn: Yarn) -> None:
    program = """
from pathlib import Path
Path("settings.json").write_text("changed by the program")
Path("model.pt").write_text("weights")
Path("runs").mkdir()
Path("runs/log.txt").write_text("a line")
"""
    job = yarn.submit(
        'command = "python3 program.py"\n[roles.worker]\nmemory = "256m"\n'
        '[outputs]\nkeep = ["*.pt", "runs"]\n',
        files={"program.py": program, "settings.json": "{}"},
    )
    final = job.wait()
    assert final.outcome == "succeeded", final.reason
    made = job.task("worker:0").made
    assert made is not None
    assert (made.files, made.kept) == (3, 2)
    assert set(made.names) == {"settings.json", "model.pt", "runs/log.txt"}
    assert job.read("outputs/worker-0/model.pt") == b"weights"
    assert job.read("outputs/worker-0/runs/log.txt") == b"a line"


@pytest.mark.nightly
def test_outputs_that_cannot_be_published_are_named_and_the_job_says_so(yarn: Yarn) -> None:
    store, go = f"{yarn.cluster.default_fs}/tmp/models", yarn.folder / "go"
    program = f"""
import os, time
while not os.path.exists({str(go)!r}): time.sleep(0.05)
open("results/model.pt", "w").write("weights")
"""
    job = yarn.submit(
        'command = "python3 program.py"\n[roles.worker]\nmemory = "256m"\n'
        f'[outputs]\nfolders = ["results"]\nstore = "{store}"\n',
        files={"program.py": program},
    )
    hdfs = Hdfs(store, conf_dir=str(yarn.cluster.conf_dir))
    hdfs.write(f"{store}/{job.job_id}/notes.txt", b"in the way")
    go.touch()
    final = job.wait()
    assert (final.outcome, final.exit_code) == ("succeeded", 5), final.reason
    hidden = f"{store}/.{job.job_id}.incomplete"
    (line,) = final.unsaved
    assert line.startswith(f"outputs: not published, they are in {hidden}: ")
    assert hdfs.read(f"{hidden}/worker-0/results/model.pt") == b"weights"
    assert json.loads(job.read("final.json"))["unsaved"] == [line]
