"""Looking at jobs that run and at job files: list, status, logs, events, stack, check, init, doctor."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from howdah.cli.main import main
from tests.cli.howdah import gone, job_file, newest, node_pid, resolved, start, until
from tests.cli.inside import howdah

pytestmark = pytest.mark.timeout(180)
"""Each runs up to 15 commands, one after another."""

WAITS = """
import os, sys, time
def wait_for_the_word():
    while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
        time.sleep(0.01)
print("begun", os.environ["HOWDAH_INDEX"], flush=True)
print("apples and pears", flush=True)
wait_for_the_word()
print("done", flush=True)
sys.exit(int(os.environ.get("CODE", "0")))
"""


def test_a_running_job_can_be_looked_at_and_stopped(tmp_path: Path) -> None:
    howdah("submit", str(job_file(tmp_path, WAITS, roles={"worker": {"instances": 2}})))
    job_id = newest().job_id
    until(lambda: howdah("logs", "--grep", "apples").text.count("apples") == 2, "both tasks print")
    coordinator, node = newest().coordinator(), node_pid(newest())
    assert coordinator is not None
    assert Path(f"/proc/{coordinator.pid}/comm").read_text() == "howdah-coord\n"
    assert Path(f"/proc/{node}/comm").read_text() == "howdah-node\n"
    assert sorted(howdah("logs", "--grep", "^be.un").out) == [
        "worker:0 | begun 0",
        "worker:1 | begun 1",
    ]
    assert howdah("logs", job_id, "--task", "worker:1", "--no-prefix", "--tail", "1").out == [
        "apples and pears"
    ]
    until(lambda: howdah("status").text.count("apples and pears") == 2, "the LAST LINE of both")
    page = until(lambda: re.search(r"Page +(\S+)", howdah("status", job_id[:-2]).text), "the page")
    assert urlsplit(howdah("page", "@last").text).hostname == f"{job_id}.localhost"
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    link = resolved(page[1])
    browser.open(link, timeout=10).close()
    with browser.open(link.partition("login")[0], timeout=10) as answer:
        assert job_id in answer.read().decode()
    status = howdah("status", "--json").documents()[0]
    assert (status["job_id"], status["outcome"], len(status["tasks"])) == (job_id, None, 2)
    assert re.search(rf"{job_id} +running +command +2 ", howdah("list").text)
    followed = start("logs", "-f", "--task", "worker:0", "--json")
    events = start("events", "-f", "--json")
    events.until_line('"running"')
    assert howdah("stop", job_id, "--reason", "enough").text == f"{job_id} stopped"
    assert followed.end() == 0
    assert [d["text"] for d in followed.documents()] == ["begun 0", "apples and pears"]
    assert events.end() == 0
    assert events.documents()[-1]["kind"] == "finished"
    # Plain commands need not find each other.
    running = next(record for record in events.documents() if record["kind"] == "running")
    assert running["text"] == "all 2 tasks have started"
    assert "enough" in gone(newest()).reason


PIPES = """
import os
pipe = os.path.join(os.environ["HOWDAH_SHARED_DIR"], os.environ["HOWDAH_INDEX"])
os.mkfifo(pipe)
def wait_for_the_word():
    open(pipe).close()
def load():
    wait_for_the_word()
(load if os.environ["HOWDAH_INDEX"] == "1" else wait_for_the_word)()
"""


def test_tasks_that_wait_at_the_same_place_are_shown_once(tmp_path: Path) -> None:
    howdah("submit", str(job_file(tmp_path, PIPES, roles={"worker": {"instances": 3}})))
    job = newest()
    until(lambda: all((job.shared / str(number)).exists() for number in range(3)), "all begin")

    def headings() -> list[str]:
        return [line for line in howdah("stack").out if line.endswith(":")]

    expected = ["2 tasks, worker:0, worker:2; of worker:0:", "worker:1:"]
    until(lambda: headings() == expected, f"they wait as {expected}")
    first, _, second = howdah("stack").text.partition("\nworker:1:\n")
    assert first.count("wait_for_the_word (") == second.count("wait_for_the_word (") == 1
    assert "load (" in second and "load (" not in first
    taken = howdah("stack", "worker:2", "worker:1", "--json").documents()
    assert [each["task"] for each in taken] == ["worker:2", "worker:1"]
    assert "train.py" in howdah("stack", job.job_id, "--task", "worker:0").text
    refused = howdah("stack", job.job_id, "--task", "worker:7", code=2).told
    assert "has no task 'worker:7'; it has worker:0" in refused
    for number in range(3):
        (job.shared / str(number)).open("w").close()
    gone(job)


def test_check_reports_every_problem(tmp_path: Path) -> None:
    fine = job_file(tmp_path, "pass", roles={"worker": {"instances": 4}})
    assert howdah("check", str(fine)).text == f"{fine} is fine: 4 workers, command"
    assert json.loads(howdah("check", str(fine), "--json").text) == {
        "ok": True,
        "problems": [],
        "notes": [],
    }
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('framework = "pytroch"\nattempts = -1\n[roles.worker]\nmemroy = "1g"\n')
    told = howdah("check", str(wrong), code=2).told
    for part in ("wrong.toml:1", "pytorch", "wrong.toml:2", "wrong.toml:4", "memory"):
        assert part in told, part
    found = json.loads(howdah("check", str(wrong), "--json", code=2).text)
    assert found["ok"] is False
    assert {problem["line"] for problem in found["problems"]} >= {1, 2, 4}
    assert set(found["problems"][0]) == {"file", "line", "key", "value", "message", "hint"}


def test_a_script_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    file = job_file(tmp_path, "pass")
    (file.parent / "tools").mkdir()
    (file.parent / "tools" / "serve.py").touch()
    file = file.with_suffix(".toml")
    file.write_text(
        """command = "python -u trian.py --lr 1 2>&1"
[roles.worker]
[roles.server]
command = ["python3", "-X", "dev", "serve.py"]
[roles.other]
command = ["sh", "/nowhere/at-all.sh"]
[roles.module]
command = "python -m serve; python gone.py"
[roles.imaged]
command = "python gone.py"
image = "x"
"""
    )
    told = howdah("check", str(file), code=2).told
    assert "job.toml:1: command: there is no file" in told and 'did you mean "train.py"?' in told
    assert (
        "job.toml:4: roles.server.command: there is no file" in told and '"tools/serve.py"?' in told
    )
    assert told.count("there is no file") == 2
    text = file.read_text().replace("trian", "train").replace("serve.py", "tools/serve.py")
    file.write_text(text.replace('image = "x"', "").replace("gone.py", "train.py"))
    for command in (["check"], ["run", "--dry-run"], ["run"]):
        told = howdah(*command, str(file), code=2).told
        assert "job.toml:6: roles.other.command: there is no file /nowhere/at-all.sh" in told
    assert "fine" in howdah("check", "--backend", "yarn", str(file)).text
    (file.parent / "lib.py").write_text("pass")
    made = job_file(tmp_path, "pass", command="python lib2.py", files=["lib.py -> lib2.py"])
    assert "fine" in howdah("check", str(made)).text


STARTS_NO_CERTAIN_SCRIPT = (
    *("bash -eo pipefail -c 'gone/x.sh'", "bash -ce 'gone/x.sh'", "bash -cx 'gone/x.sh'"),
    *(["bash", "-ce", "gone/x.sh"], ["bash", "-xec", "gone/x.sh"], "bash -es gone/arg"),
    *("bash --login gone/x.sh", "bash -l gone/x.sh", "bash - gone/x.sh", "bash gone.sh"),
    *("bash -eo pipefail gone.sh", ["gone.sh"], ["bash", "-e", "echo a/b\necho c"]),
    *("python -mhttp.server 8000", "python -mtensorboard.main --logdir x", "python -I -mpip list"),
    *("python -c'print(1)' foo", "python -Ic 'print(1)'", "python -h x", "python --version x"),
    *("python -VV x", "python --help-env x", "python -uW ignore", "python - gone.py"),
    *(["python", "x" * 256], ["python", f"{'x' * 256}/y.py"], "python # x"),
)
STARTS_A_SCRIPT = (
    *(
        "bash -euo pipefail gone/x.sh",
        "bash -xeuo pipefail ./gone/x.sh",
        "zsh -eo pipefail gone/x.sh",
    ),
    *(
        "bash +euo pipefail gone/x.sh",
        "sh -e -o nounset -- gone/x.sh",
        "bash -eO extglob gone/x.sh",
    ),
    *("python -uW ignore gone/x.sh", "python -uX dev gone/x.sh", "python -uWignore gone/x.sh"),
    *("python -OO -Xdev -- gone/x.sh", "gone/x.sh", ["./gone/x.sh", "-c"]),
)


def test_only_scripts_that_certainly_are_not_there_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(**job: Any) -> str:
        """What is wrong with it."""
        code = main(["check", str(job_file(tmp_path, "", **job))])
        told = capsys.readouterr().err
        assert code == (2 if told else 0), told
        return told

    roles = {f"r{n}": {"command": c} for n, c in enumerate(STARTS_NO_CERTAIN_SCRIPT)}
    assert not check(roles=roles)
    roles = {f"r{n}": {"command": command} for n, command in enumerate(STARTS_A_SCRIPT)}
    told = check(roles=roles)
    assert told.count(f"there is no file {tmp_path}/job/gone/x.sh") == len(STARTS_A_SCRIPT)
    # What an earlier stage may make, and a command that no role runs.
    made = "python /nowhere/made.py"
    assert "/nowhere/made.py; correct the path" in check(command=made)
    assert not check(command=made, preprocess={"command": "true"})
    before = {"command": "true", "prepare": True}
    assert not check(command=made, roles={"worker": {}, "before": before})
    roles = {"worker": {}, "client": {"command": "python train.py"}}
    assert not check(command="python gone.py", framework="dask", roles=roles)


@pytest.mark.parametrize("backend", ["local", "yarn"])
def test_check_says_that_an_environment_cannot_be_built_without_uv(
    backend: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def notes(**environment: str) -> list[str]:
        file = job_file(tmp_path, "", environment=environment)
        for name in ("pyproject.toml", "requirements.txt"):
            (file.parent / name).touch()
        assert main(["check", str(file), "--backend", backend, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["notes"]

    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    for key, value in (("project", "."), ("requirements", "requirements.txt")):
        (note,) = notes(**{key: value})
        assert note.startswith(f"environment.{key}: ") and "pip install uv" in note
    assert notes(python=sys.executable) == []
    (tmp_path / "uv").touch(mode=0o755)
    assert notes(project=".") == []


def test_a_script_that_is_not_executable_is_refused_and_named_after_it_has_failed(
    tmp_path: Path,
) -> None:
    file = job_file(tmp_path, "", command="./run.sh --lr 1")
    script = file.parent / "run.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    refused = f'{file}:1: command: "./run.sh" is not executable; chmod +x {script}, or start it as `sh ./run.sh`'
    assert refused in howdah("check", str(file), code=2).told
    assert refused in howdah("check", "--backend", "yarn", str(file), code=2).told
    assert refused in howdah("run", str(file), code=2).told
    assert refused in howdah("submit", str(file), code=2).told
    # What another program makes of it is not known before.
    run = howdah("run", str(file), "--set", "command=exec ./run.sh; true", code=1)
    assert "./run.sh is not executable: `chmod +x ./run.sh`" in run.text, run.text
    script.chmod(0o755)
    assert "executable" not in howdah("check", str(file)).text
    howdah("run", str(file))
    for command in ("sh ./run.sh", "cd . && ./run.sh", "./$NAME.sh"):
        script.chmod(0o644)
        assert "executable" not in howdah("check", str(file), "--set", f"command={command}").text


def test_init_writes_a_job_file_that_is_fine(tmp_path: Path) -> None:
    for framework in ("command", "tensorflow", "pytorch", "dask"):
        file = tmp_path / f"{framework}.toml"
        told = howdah("init", file.name, "--framework", framework, cwd=tmp_path)
        assert f"wrote {file.name}" in told.text
        (script,) = re.findall(r'^command = "python ([^\s"]+)', file.read_text(), re.MULTILINE)
        there = (tmp_path / script).exists()
        assert (f"Write {script}, which it runs" in told.text) != there
        (tmp_path / script).touch()
        assert "is fine" in howdah("check", file.name, cwd=tmp_path).text
    printed = howdah("init", "-", "--framework", "jax", cwd=tmp_path)
    assert 'framework = "jax"' in printed.text


def test_an_editor_finds_the_schema_that_a_new_job_file_names(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    howdah("init", "job.toml", "--framework", "pytorch", cwd=tmp_path)
    text = (tmp_path / "job.toml").read_text()
    named, hint = text.splitlines()[:2]
    assert named == "#:schema ./job-file.schema.json"  # Taplo reads no other line than the first
    assert hint.endswith("howdah schema > job-file.schema.json")
    tony = tmp_path / "tony.xml"
    tony.write_text("<configuration/>")
    assert howdah("init", "-", "--from-tony", str(tony)).text.startswith(named)
    schema = json.loads(howdah("schema").text)
    job = tomllib.loads(text)
    validator = jsonschema.validators.validator_for(schema)(schema)
    validator.validate(job)
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**job, "comand": "true"})


def test_doctor_examines_this_machine() -> None:
    found = json.loads(howdah("doctor", "--json").text)
    assert found["ok"] is True
    looked_at = {finding["what"] for finding in found["findings"]}
    assert {"Python", "machine", "job directories", "network", "ports"} <= looked_at
    assert all(set(f) == {"what", "health", "text", "hint"} for f in found["findings"])
    assert "Jobs can run here" in howdah("doctor").text


def test_doctor_says_once_that_no_hadoop_cluster_is_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME"):
        monkeypatch.delenv(name, raising=False)
    (said, end) = filter(None, howdah("doctor", "--backend", "yarn", code=3).out)
    assert said.count("HADOOP_CONF_DIR") == 2  # that it is not set, and to set it
    assert "1 problem" in end


KILLED = """
import os, signal, sys
from howdah.backends.local.submit import LocalSubmission
from howdah.cli.main import main

LocalSubmission.go = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main(["submit", sys.argv[1]])
"""


def test_a_job_whose_client_was_killed_while_it_submitted_is_lost_in_words(tmp_path: Path) -> None:
    client = [sys.executable, "-c", KILLED, str(job_file(tmp_path, WAITS))]
    killed = subprocess.run(client, capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    job_id = newest().job_id
    words = f"{job_id} was never handed over"
    until(lambda: "lost" in howdah("list").text, "it is lost")
    assert words in howdah("status", job_id).text
    assert words in howdah("logs", job_id, code=3).told
    assert words in howdah("stop", job_id, code=3).told
    assert howdah("status", job_id, "--json").documents()[0]["lost"]
    shutil.rmtree(newest().path)
