"""TonY's command line on a real cluster. What needs none is in tests/compat, each of TonY's own cases among it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from howdah.hadoop.security.credentials import Credentials, Token
from howdah.storage.hdfs.files import Hdfs
from tests.yarn.tony import Tony, conf

PRINT = """
import json, os, pathlib, time
told = {"env": dict(os.environ), "files": sorted(os.listdir()), "inside": open("b.zip/inside.txt").read()}
print("TOLD " + json.dumps(told), flush=True)
# What is untracked is stopped when the others have succeeded: they wait until it has printed.
if os.environ["JOB_NAME"] == "ps":
    pathlib.Path(os.environ["PS_FILE"]).touch()
    time.sleep(600)
while not os.path.exists(os.environ["PS_FILE"]):
    time.sleep(0.1)
"""


def archive(path: Path, name: str, text: str, mode: int = 0o644) -> None:
    entry = zipfile.ZipInfo(name)
    entry.external_attr = mode << 16
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr(entry, text)


@pytest.mark.tony("ps and worker with a shipped environment and variables")
@pytest.mark.tony("resources: a name, an archive, a list, a remote folder")
@pytest.mark.tony("the final configuration")
def test_a_job_has_the_environment_variables_and_resources_that_its_command_line_names(
    tony: Tony,
) -> None:
    python = '#!/bin/sh\nexport IN_VENV=yes\nexec python3 "$@"\n'
    archive(tony.folder / "env.zip", "Python/bin/python", python, 0o755)
    for name in ("a.zip", "b.zip", "c.zip"):
        archive(tony.folder / name, "inside.txt", "inside")
    cluster = tony.yarn.cluster
    library = f"{cluster.default_fs}/tmp/{tony.folder.name}-library"
    Hdfs(library, conf_dir=str(cluster.conf_dir)).write_new(f"{library}/one.jar", b"one")
    resources = f"a.zip::other.zip,b.zip#archive,,c.zip,{library}"
    tony.script("main.py", PRINT)
    job = tony.submit(
        *("-executes", "main.py", "-python_venv", "env.zip"),
        *("-python_binary_path", "Python/bin/python"),
        *("-shell_env", "ENV_CHECK=a,b", "-shell_env", f"PS_FILE={tony.folder}/ps"),
        *("-container_env", "OTHER=1", "-container_env", "WHERE=on $NM_HOST"),
        *conf({"tony.containers.resources": resources}),
        worker=1,
        ps=1,
    )
    final = job.wait()
    log = job.log("worker:0")
    assert final.outcome == "succeeded", log
    told = json.loads(log.partition("TOLD ")[2].splitlines()[0])
    env = told["env"]
    assert (env["IN_VENV"], env["ENV_CHECK"], env["OTHER"]) == ("yes", "a,b", "1")
    assert env["WHERE"] == f"on {env['NM_HOST']}"
    assert (env["JOB_ID"], env["TASK_NUM"], env["IS_CHIEF"]) == (job.application_id, "1", "true")
    spec = json.loads(env["CLUSTER_SPEC"])
    assert {name: len(tasks) for name, tasks in spec.items()} == {"worker": 1, "ps": 1}
    config = json.loads(env["TF_CONFIG"])
    assert (config["task"], config["cluster"]) == ({"type": "worker", "index": 0}, spec)
    assert {*told["files"]} >= {"other.zip", "b.zip", "c.zip", "one.jar"}
    assert told["inside"] == "inside"
    kept = json.loads(job.read("job.json"))
    assert kept["env"]["ENV_CHECK"] == "a,b"
    assert [entry.partition(" ")[0] for entry in kept["files"]][:3] == ["a.zip", "b.zip", "c.zip"]


@pytest.mark.nightly
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
    final = job.wait()
    assert final.outcome == "succeeded", final.reason
    path, given, masters = job.log("worker:0").split()[-3:]
    assert path != str(file)
    assert (given, masters) == ("True", "False")


LINGER = """
import os, time
time.sleep(float(os.environ[os.environ["JOB_NAME"].upper()]))
"""
A = {
    "tony.application.group.A": "worker,chief",
    "tony.application.dependency.evaluator.timeout.after.A": 2,
}
B = {
    "tony.application.group.B": "chief",
    "tony.application.dependency.worker.timeout.after.B": 60,
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("groups", "evaluator", "outcome"),
    [
        pytest.param(
            {**A, "tony.application.dependency.evaluator.timeout.after.A": 60},
            3,
            "succeeded",
            marks=pytest.mark.tony("a group's time-out that is not reached"),
        ),
        pytest.param(
            {**A, **B}, 600, "timed-out", marks=pytest.mark.tony("time-outs of several groups")
        ),
    ],
    ids=["in-time", "several"],
)
def test_an_evaluator_is_waited_for_as_long_as_its_group_says(
    tony: Tony, groups: dict[str, object], evaluator: int, outcome: str
) -> None:
    times = {"CHIEF": 0.2, "WORKER": 1.0, "EVALUATOR": evaluator}
    env = [word for name, s in times.items() for word in ("-shell_env", f"{name}={s}")]
    final = tony.executes(LINGER, *env, *conf(groups), chief=1, worker=1, evaluator=1).wait()
    assert final.outcome == outcome, final.reason
    if outcome == "timed-out":
        assert final.reason.startswith("evaluator:0 still ran 2s after")
