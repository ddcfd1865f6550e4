"""The like of TonY's end-to-end tests: what passes and what fails, by TonY's own command line."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from howdah.client.sync import JobHandle
from howdah.hadoop.security.credentials import Credentials, Token
from howdah.spec.problems import JobFileError
from howdah.storage.jobdir import base_folder, list_jobs
from howdah.wire.status import JobView
from tests.yarn.runner import Yarn
from tests.yarn.tony import Tony, conf

PRINT = """
import json, os
print("ENV " + json.dumps(dict(os.environ)), flush=True)
"""
FAIL = "import sys; sys.exit(1)"
MEET = """
# What is untracked is stopped when the others have succeeded: they wait until it has printed.
import pathlib, time
if os.environ["JOB_NAME"] == "ps":
    pathlib.Path(os.environ["PS_FILE"]).touch()
    time.sleep(600)
while not os.path.exists(os.environ["PS_FILE"]):
    time.sleep(0.1)
"""


def env_of(job: object, task: str) -> dict[str, str]:
    """The environment a task has printed."""
    log = job.log(task)  # type: ignore[attr-defined]
    line = next(line for line in log.splitlines() if line.startswith("ENV "))
    return json.loads(line.removeprefix("ENV "))


def meeting(tony: Tony) -> tuple[str, str]:
    """Where `MEET` meets."""
    return "-shell_env", f"PS_FILE={tony.folder}/ps-has-printed"


def states(view: JobView) -> dict[str, tuple[str, int | None]]:
    return {task.task: (task.state, task.exit_code) for task in view.tasks}


@pytest.mark.tony("a single node passes")
def test_a_job_without_instances_is_one_task(tony: Tony) -> None:
    job = tony.executes(PRINT, "-shell_env", "ENV_CHECK=ENV_CHECK")
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    assert states(final) == {"worker:0": ("succeeded", 0)}
    env = env_of(job, "worker:0")
    assert env["ENV_CHECK"] == "ENV_CHECK"
    assert "TF_CONFIG" not in env


def test_tokens_that_were_got_before_are_handed_to_the_programs(
    tony: Tony, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = {"hive": Token(b"who", b"proof", "HIVE_DELEGATION_TOKEN", "hive:9083")}
    file = tony.folder / "tokens"
    Credentials(tokens, {}).write(file)
    monkeypatch.setenv("HADOOP_TOKEN_FILE_LOCATION", str(file))
    script = """
import os
path = os.environ["HADOOP_TOKEN_FILE_LOCATION"]
data = open(path, "rb").read()
print(path, b"HIVE_DELEGATION_TOKEN" in data and b"proof" in data, b"YARN_AM_RM_TOKEN" in data, flush=True)
"""
    job = tony.executes(script)
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    path, given, masters = job.log("worker:0").split()[-3:]
    assert path != str(file)
    assert (given, masters) == ("True", "False")


@pytest.mark.tony("a single node fails")
def test_a_single_task_that_fails_fails_the_job(tony: Tony) -> None:
    final = tony.executes(FAIL).wait(120)
    assert (final.outcome, final.failures[0].exit_code) == ("failed", 1)


@pytest.mark.tony("a skewed worker passes")
def test_a_worker_that_ends_long_after_the_others_is_waited_for(tony: Tony) -> None:
    script = """
import os, time
time.sleep(3 if os.environ["TASK_INDEX"] == "0" else 0)
"""
    final = tony.executes(script, worker=2, ps=1).wait(120)
    assert final.outcome == "succeeded", final.reason


@pytest.mark.tony("ps and worker with a shipped environment and variables")
def test_a_shipped_environment_is_unpacked_as_venv_and_variables_keep_their_commas(
    tony: Tony,
) -> None:
    with zipfile.ZipFile(tony.folder / "env.zip", "w") as archive:
        runs = zipfile.ZipInfo("Python/bin/python")
        runs.external_attr = 0o755 << 16
        archive.writestr(runs, '#!/bin/sh\nexport IN_VENV=yes\nexec python3 "$@"\n')
    tony.script("main.py", PRINT)
    job = tony.submit(
        *("-executes", "main.py", "-python_venv", "env.zip"),
        *("-python_binary_path", "Python/bin/python"),
        *("-shell_env", "ENV_CHECK=a,b", "-container_env", "OTHER=1"),
        *("-container_env", "WHERE=on $NM_HOST"),
        *("-container_env", "YARN_CONTAINER_RUNTIME_TYPE=default"),
        worker=1,
        ps=1,
    )
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    env = env_of(job, "worker:0")
    assert (env["IN_VENV"], env["ENV_CHECK"], env["OTHER"]) == ("yes", "a,b", "1")
    assert env["WHERE"] == f"on {env['NM_HOST']}"
    assert env["YARN_CONTAINER_RUNTIME_TYPE"] == "default"
    assert (env["JOB_ID"], env["TASK_NUM"], env["IS_CHIEF"]) == (job.application_id, "1", "true")
    cluster = json.loads(env["CLUSTER_SPEC"])
    assert {name: len(tasks) for name, tasks in cluster.items()} == {"worker": 1, "ps": 1}
    config = json.loads(env["TF_CONFIG"])
    assert (config["task"], config["cluster"]) == ({"type": "worker", "index": 0}, cluster)


@pytest.mark.tony("PyTorch's environment")
def test_pytorchs_programs_get_unique_ranks_and_one_address(tony: Tony) -> None:
    job = tony.executes(
        PRINT, *conf({"tony.application.framework": "pytorch"}), chief=1, worker=1, ps=0
    )
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    found = [env_of(job, task) for task in ("chief:0", "worker:0")]
    assert [env["RANK"] for env in found] == ["0", "1"]
    assert {env["WORLD"] for env in found} == {"2"}
    (method,) = {env["INIT_METHOD"] for env in found}
    assert method == f"tcp://{found[0]['MASTER_ADDR']}:{found[0]['MASTER_PORT']}"


@pytest.mark.tony("ps and worker that exit with 1 fail")
def test_a_failing_ps_and_worker_fail_the_job(tony: Tony) -> None:
    final = tony.executes(FAIL, worker=1, ps=1).wait(120)
    assert final.outcome == "failed"
    assert final.failures[0].exit_code == 1


@pytest.mark.tony("a worker that is not the chief fails")
def test_a_failed_worker_fails_the_job_though_the_chief_succeeds(tony: Tony) -> None:
    script = """
import os, sys, time
if os.environ["TASK_INDEX"] == "1":
    print("ValueError: no data", file=sys.stderr)
    sys.exit(42)
time.sleep(0 if os.environ["IS_CHIEF"] == "true" else 60)
"""
    strict = conf({"tony.application.fail-on-worker-failure-enabled": "true"})
    final = tony.executes(script, *strict, worker=2).wait(120)
    assert final.outcome == "failed"
    failure = final.failures[0]
    assert (failure.task, failure.exit_code) == ("worker:1", 42)
    assert "ValueError: no data" in failure.tail


@pytest.mark.tony("a worker that is not the chief fails")
def test_unless_told_otherwise_a_job_succeeds_without_a_worker_and_says_which(tony: Tony) -> None:
    script = """
import os, sys, time
if os.environ["TASK_INDEX"] == "1":
    sys.exit(42)
while not os.path.exists(os.environ["STOP_FILE"]):
    time.sleep(0.1)
"""
    stop = tony.folder / "stop"
    job = tony.executes(script, "-shell_env", f"STOP_FILE={stop}", worker=2, ps=1)
    job.until(lambda v: states(v).get("worker:1") == ("ended", 42) or None, "the worker's end")
    stop.touch()
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    assert "but worker:1" in final.reason
    assert [(failure.task, failure.exit_code) for failure in final.failures] == [("worker:1", 42)]


@pytest.mark.tony("stages: dbloader and db, then ps and worker")
def test_the_training_stage_begins_when_the_prepare_stage_is_done(tony: Tony) -> None:
    script = """
import json, os, time
role = os.environ["JOB_NAME"]
print("BEGINS", time.time())
print("ENV " + json.dumps(dict(os.environ)), flush=True)
if role in ("db", "dbloader"):
    time.sleep(600 if role == "db" else 1)
    print("ENDS", time.time())
    raise SystemExit
"""
    job = tony.executes(
        script + MEET,
        *meeting(tony),
        *conf(
            {
                "tony.application.prepare-stage": "dbloader,db",
                "tony.application.training-stage": "ps,worker",
                "tony.application.untracked.jobtypes": "ps,db",
            }
        ),
        worker=1,
        ps=1,
        db=1,
        dbloader=1,
    )
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason

    def moment(task: str, what: str) -> float:
        line = next(line for line in job.log(task).splitlines() if line.startswith(what))
        return float(line.split()[1])

    loaded = moment("dbloader:0", "ENDS")
    assert moment("worker:0", "BEGINS") > loaded
    assert moment("ps:0", "BEGINS") > loaded
    assert [*json.loads(env_of(job, "worker:0")["CLUSTER_SPEC"])] == ["db", "ps", "worker"]


@pytest.mark.tony("resources: a name, an archive, a list, a remote folder")
def test_resources_are_beside_the_program(tony: Tony, yarn: Yarn) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("inside.txt", "inside")
    for name in ("a.zip", "b.zip", "c.zip"):
        (tony.folder / name).write_bytes(packed.getvalue())
    library = f"/tmp/{tony.folder.name}-library"
    yarn.cluster.hdfs(library, "MKDIRS", permission="777")
    from howdah.storage.hdfs.files import Hdfs

    remote = f"{yarn.cluster.default_fs}{library}"
    hdfs = Hdfs(remote, conf_dir=str(yarn.cluster.conf_dir))
    for name in ("one.jar", "two.jar"):
        hdfs.write_new(f"{remote}/{name}", name.encode())
    resources = f"a.zip::other.zip,b.zip#archive,,c.zip,{remote}"
    job = tony.executes(
        "import os; print(sorted(os.listdir()), open('b.zip/inside.txt').read())",
        *conf({"tony.worker.resources": resources}),
        worker=1,
        ps=0,
    )
    final = job.wait(120)
    log = job.log("worker:0")
    assert final.outcome == "succeeded", log
    for name in ("'other.zip'", "'b.zip'", "'c.zip'", "'one.jar'", "'two.jar'", "] inside"):
        assert name in log
    yarn.cluster.hdfs(library, "DELETE", "DELETE", recursive="true")


@pytest.mark.tony("TensorBoard's port on the chief only")
def test_the_chief_alone_has_a_port_for_its_tensorboard(tony: Tony) -> None:
    job = tony.executes(PRINT + MEET, *meeting(tony), chief=1, worker=1, ps=1)
    assert job.wait(120).outcome == "succeeded"
    assert int(env_of(job, "chief:0")["TB_PORT"]) > 1024
    assert "TB_PORT" not in env_of(job, "ps:0")


@pytest.mark.tony("attached TensorBoard")
def test_with_a_tensorboard_of_its_own_the_chief_has_no_port_for_one(tony: Tony) -> None:
    stop = tony.folder / "stop"
    tony.script("board.py", PRINT + "\nimport time; time.sleep(600)")
    tony.script(
        "main.py", PRINT + f"import time\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.1)"
    )
    job = tony.submit(
        *("-executes", "main.py", "-python_binary_path", "python3"),
        *conf(
            {
                "tony.application.tensorboard-log-dir": "/tmp",
                "tony.tensorboard.command": "python3 board.py",
                "tony.tensorboard.memory": "256m",
            }
        ),
        chief=1,
        worker=1,
    )
    job.until_logged("tensorboard:0", "ENV ")
    stop.touch()
    assert job.wait(120).outcome == "succeeded"
    board = env_of(job, "tensorboard:0")
    assert int(board["TB_PORT"]) > 1024
    assert board["TB_LOG_DIR"] == "/tmp"
    chief = env_of(job, "chief:0")
    assert "TB_PORT" not in chief
    assert [*json.loads(chief["TF_CONFIG"])["cluster"]] == ["chief", "worker"]


@pytest.mark.tony("standalone passes")
def test_standalone_is_one_program_without_a_cluster(tony: Tony) -> None:
    job = tony.executes(PRINT, *conf({"tony.application.framework": "standalone"}), worker=1)
    assert job.wait(120).outcome == "succeeded"
    assert "TF_CONFIG" not in env_of(job, "worker:0")


@pytest.mark.tony("standalone with several instances is refused")
def test_standalone_with_two_tasks_is_refused_before_anything_starts(tony: Tony) -> None:
    with pytest.raises(JobFileError, match="standalone is one task, and the job has 2"):
        tony.executes(PRINT, *conf({"tony.application.framework": "standalone"}), worker=1, slave=1)
    assert list_jobs(base_folder()) == []


@pytest.mark.tony("client callbacks")
def test_a_program_is_told_the_id_and_every_change_of_a_task(tony: Tony) -> None:
    from howdah.client.handle import Callbacks

    stop = tony.folder / "stop"
    until_stopped = f"import os, time\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.1)"
    job = tony.executes(until_stopped, worker=1, ps=1)
    seen: list[dict[str, str]] = []
    events: list[str] = []

    def on_state(view: JobView) -> None:
        seen.append({t.task: t.state for t in view.tasks})
        if {*seen[-1].values()} == {"running"}:
            stop.touch()

    handle = JobHandle(
        job.directory,
        Callbacks(on_state=on_state, on_event=lambda event: events.append(event.kind)),
    )
    final = handle.wait(120)
    assert final.outcome == "succeeded"
    assert job.application_id.startswith("application_")
    assert {"worker:0": "running", "ps:0": "running"} in seen
    assert seen[-1]["worker:0"] == "succeeded"
    assert {"submitted", "task-started", "finished"} <= {*events}


@pytest.mark.tony("a ps that crashes stops the job")
def test_a_crashed_ps_ends_the_job_and_its_workers(tony: Tony) -> None:
    tony.script("ps.py", FAIL)
    tony.script("worker.py", "import time; time.sleep(600)")
    job = tony.submit(
        *conf(
            {
                "tony.ps.command": "python3 ps.py",
                "tony.worker.command": "python3 worker.py",
                "tony.application.untracked.jobtypes": "ps",
            }
        ),
        ps=1,
        worker=1,
    )
    final = job.wait(120)
    assert final.outcome == "failed"
    assert final.failures[0].task == "ps:0"
    assert states(final)["worker:0"][0] == "ended"


@pytest.mark.tony("a sidecar that crashes is ignored")
def test_a_crashed_sidecar_changes_nothing(tony: Tony) -> None:
    tony.script("side.py", FAIL)
    stop = tony.folder / "stop"
    tony.script(
        "worker.py",
        PRINT + f"import time\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.1)",
    )
    job = tony.submit(
        *conf(
            {
                "tony.helper.command": "python3 side.py",
                "tony.worker.command": "python3 worker.py",
                "tony.application.sidecar.jobtypes": "helper",
            }
        ),
        worker=1,
        helper=1,
    )
    job.until(lambda v: states(v).get("helper:0") == ("ended", 1) or None, "the sidecar's crash")
    stop.touch()
    final = job.wait(120)
    assert final.outcome == "succeeded", final.reason
    assert states(final) == {"worker:0": ("succeeded", 0), "helper:0": ("ended", 1)}
    assert [*json.loads(env_of(job, "worker:0")["TF_CONFIG"])["cluster"]] == ["worker"]


@pytest.mark.tony("the final configuration")
def test_the_job_that_was_run_is_kept_whole(tony: Tony) -> None:
    (tony.folder / "more.txt").write_text("x")
    (tony.folder / "common.txt").write_text("x")
    tony.folder.joinpath("tony.xml").write_text(
        "<configuration><property><name>tony.containers.resources</name>"
        "<value>common.txt</value></property></configuration>"
    )
    job = tony.submit(
        *("-executes", "ls", "-shell_env", "TEST1=test", "-container_env", "TEST2=test"),
        *conf({"tony.worker.command": "cat more.txt", "tony.containers.resources": "more.txt"}),
        worker=1,
    )
    assert job.wait(120).outcome == "succeeded"
    kept = json.loads(job.read("job.json"))
    assert kept["command"] == "ls"
    assert kept["roles"]["worker"]["command"] == "cat more.txt"
    assert {"TEST1": "test", "TEST2": "test"}.items() <= kept["env"].items()
    assert [Path(entry).name for entry in kept["files"]] == ["common.txt", "more.txt"]
