"""``howdah run`` end to end: logs, summary, exit codes, JSON, and nothing lost over a take-over."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.howdah import HOWDAH, gone, howdah, job_file, newest, node_pid, start, until

HELLO = """
import os, sys
print("hello from rank", os.environ["HOWDAH_RANK"])
print("careful", file=sys.stderr)
print("WARNING: All log messages before absl::InitializeLog() is called are written to STDERR")
"""
"""The last line is one of TensorFlow's start."""

FAILS = """
import os, sys, time
print("training")
if os.environ["HOWDAH_INDEX"] == "1":
    print("ValueError: the batch is empty", file=sys.stderr)
    sys.exit(42)
time.sleep(600)
"""


def test_a_job_runs_to_its_end(tmp_path: Path) -> None:
    file = job_file(tmp_path, HELLO, roles={"worker": {"instances": 2}})
    run = howdah("run", str(file))
    for index in (0, 1):
        assert f"worker:{index} | hello from rank {index}" in run.out
        assert f"worker:{index} | careful" in run.out
    directory = newest()
    assert f"{directory.job_id} succeeded after" in run.text
    assert re.search(r"worker:1 +succeeded +1 +1 +0", run.text)
    assert f"howdah   | {directory.job_id} submitted" in run.err
    assert not any("howdah   |" in line for line in run.out)
    assert not any("absl" in line for line in run.out)
    assert sum("say of their start is left out" in line for line in run.err) == 1
    assert "absl" in howdah("logs", directory.job_id).text
    gone(directory)


def test_a_command_runs_without_a_job_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print('args', sys.argv[1:])")
    run = howdah(
        *("run", "--framework", "pytorch", "--role", "worker=2"),
        *("--", sys.executable, "train.py", "--lr", "0.1"),
        cwd=tmp_path,
    )
    assert "worker:1 | args ['--lr', '0.1']" in run.out
    assert newest().job_id.startswith("train-")
    assert newest().job().framework == "pytorch"


def test_a_failure_is_named_with_its_exit_code_and_last_lines(tmp_path: Path) -> None:
    file = job_file(tmp_path, FAILS, roles={"worker": {"instances": 2}}, restart="never")
    run = howdah("run", str(file), code=1)
    assert "Failed first  worker:1 exited with code 42" in run.text
    assert "Why           user-code, generation 1, attempt 1" in run.text
    assert "What to do    " in run.text
    assert "Last lines of worker:1\n" in run.text
    assert "    ValueError: the batch is empty\n" in run.text
    assert re.search(r"worker:1 +ended +.* 42 ", run.text)


def test_json_lines_tell_the_same(tmp_path: Path) -> None:
    file = job_file(tmp_path, FAILS, roles={"worker": {"instances": 2}}, restart="never")
    run = howdah("run", str(file), "--json", code=1)
    documents = run.documents()
    first, last = documents[0], documents[-1]
    assert first == {
        "type": "submitted",
        "job_id": newest().job_id,
        "directory": str(newest().path),
        "notes": [],
    }
    kinds = {d["type"] for d in documents} - {"page"}  # of so short a job it may never be served
    assert kinds == {"submitted", "event", "status", "log", "summary"}
    assert last["type"] == "summary"
    assert last["status"]["outcome"] == "failed"
    assert last["status"]["exit_code"] == 1
    failure = last["status"]["failures"][0]
    assert (failure["task"], failure["exit_code"]) == ("worker:1", 42)
    assert "ValueError: the batch is empty" in failure["tail"]
    logs = [d for d in documents if d["type"] == "log" and d["task"] == "worker:1"]
    assert [(d["offset"], d["text"]) for d in logs] == [
        (0, "training"),
        (9, "ValueError: the batch is empty"),
    ]
    numbers = [d["seq"] for d in documents if d["type"] == "event"]
    assert numbers == sorted(set(numbers))
    assert last["status"] == json.loads(newest().path.joinpath("final.json").read_bytes())


def test_a_job_over_its_total_time_ends_with_code_4(tmp_path: Path) -> None:
    file = job_file(tmp_path, "import time; time.sleep(600)", timeouts={"total": "500ms"})
    run = howdah("run", str(file), code=4)
    assert "timed out after" in run.text
    assert "total time-out" in run.text


def test_nothing_is_left_of_a_job_file_with_problems(tmp_path: Path, home: Path) -> None:
    file = job_file(tmp_path, HELLO, roles={"worker": {"instances": 0, "memroy": "1g"}})
    run = howdah("run", str(file), code=2)
    assert "memroy" in run.told and "memory" in run.told
    assert run.out == []
    assert not home.exists()


def test_what_this_machine_can_never_run_is_refused_with_code_3(tmp_path: Path, home: Path) -> None:
    file = job_file(tmp_path, HELLO, roles={"worker": {"gpus": 900}})
    run = howdah("run", str(file), code=3)
    assert "can never run" in run.told and "900" in run.told
    assert run.out == []
    assert not home.exists()


@pytest.mark.parametrize("resource", ["memory=900g", "gpus=900", "memory=500m"])
def test_ten_thousand_tasks_that_never_fit_are_refused_in_a_line(home: Path, resource: str) -> None:
    setting = f"roles.worker.{resource}"
    run = howdah("run", "--role", "worker=10000", "--set", setting, "--", "true", code=3)
    assert run.out == []
    title, reason = run.err
    assert "can never run" in title
    assert reason.startswith("  roles.worker.")
    assert not home.exists()


def test_logs_and_story_survive_the_coordinators_death(tmp_path: Path) -> None:
    script = """
import os, time
for number in range(400):
    print(f"line {number}", flush=True)
    while number == 200 and not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
        time.sleep(0.01)
print("pid", os.getpid())
"""
    file = job_file(tmp_path, script, roles={"worker": {"instances": 2}})
    run = start("run", str(file), "--json")
    run.until_line('"line 50"')
    directory = newest()
    first = directory.coordinator()
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: (now := directory.coordinator()) and now.incarnation == 2, "the next one")
    (directory.path / "shared" / "go").touch()
    assert run.end() == 0
    documents = run.documents()
    for task in ("worker:0", "worker:1"):
        lines = [d["text"] for d in documents if d["type"] == "log" and d["task"] == task]
        assert lines[:-1] == [f"line {number}" for number in range(400)]
    events = [d for d in documents if d["type"] == "event"]
    numbers = [d["seq"] for d in events]
    assert numbers == sorted(set(numbers))
    assert "coordinator-took-over" in [d["kind"] for d in events]
    summary = documents[-1]["status"]
    assert (summary["incarnation"], summary["generation"], summary["restarts"]) == (2, 1, 0)


def test_a_killed_client_leaves_the_job_running_and_attach_finds_it(tmp_path: Path) -> None:
    script = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
print("done")
"""
    run = start("run", str(job_file(tmp_path, script)))
    run.until_line("begun")
    run.signal(signal.SIGKILL)
    run.end()
    directory = newest()
    attached = start("attach", directory.job_id)
    attached.until_line("begun")
    (directory.shared / "go").touch()
    assert attached.end() == 0
    assert "worker:0 | done" in attached.out
    assert "succeeded after" in attached.text


def test_the_terminal_that_submitted_a_job_may_be_closed(tmp_path: Path) -> None:
    script = """
import os, time
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
"""
    file = job_file(tmp_path, script)
    # A session leader that ends takes its terminal away: everything left in it gets SIGHUP.
    submitted = start("submit", str(file), start_new_session=True)
    assert submitted.end() == 0
    directory = newest()
    assert submitted.out == [directory.job_id]
    pid = node_pid(directory)
    assert pid is not None and os.getsid(pid) != submitted.process.pid
    until(lambda: "running" in howdah("status", directory.job_id).text, "the job runs")
    (directory.shared / "go").touch()
    assert gone(directory).outcome == "succeeded"


@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_broken_pipe_is_quiet(command: str, tmp_path: Path) -> None:
    script = "import time\nfor n in range(100000):\n    print('line', n, flush=True)\n    time.sleep(0.001)\n"
    file = job_file(tmp_path, script)
    line = f"{' '.join(HOWDAH)} {command} {file} | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, timeout=60, check=True
    )
    first, code = result.stdout.splitlines()
    assert "Traceback" not in result.stderr
    assert "Error" not in result.stderr
    if command == "run":
        assert first == "worker:0 | line 0"
        assert code == "130"
        assert gone(newest()).outcome == "stopped"
    else:
        assert (first, code) == (newest().job_id, "0")
        read = f"{' '.join(HOWDAH)} logs -f | head -n 3; echo ${{PIPESTATUS[0]}}"
        result = subprocess.run(
            ["bash", "-c", read], capture_output=True, text=True, timeout=60, check=True
        )
        assert result.stdout.splitlines() == [*(f"worker:0 | line {n}" for n in range(3)), "0"]
        assert result.stderr == ""
        assert newest().final() is None, "reading logs ties nothing to the job"
        howdah("stop", "--now", newest().job_id)


def test_a_dry_run_shows_what_a_real_one_gets(tmp_path: Path, home: Path) -> None:
    script = "import json, os, sys; print(json.dumps([os.getcwd(), sys.argv, dict(os.environ)]))"
    file = job_file(
        tmp_path,
        script,
        framework="pytorch",
        env={"GREETING": "say \"hi\" & $HOME 'x'"},
        checkpoint={"folder": "saved"},
        roles={"worker": {"instances": 2}},
    )
    promised = howdah("run", str(file), "--dry-run", "--json").documents()[0]
    assert not home.exists(), "a dry run writes nothing"
    assert howdah("run", str(file), "--dry-run").text.count("train.py") == 2
    run = howdah("run", str(file), "--json")
    for task in promised["tasks"]:
        printed = next(
            json.loads(d["text"])
            for d in run.documents()
            if d["type"] == "log" and d["task"] == task["task"]
        )
        folder, arguments, environment = printed
        program = task["programs"][0]
        replace = _example(promised["job_id"], newest().job_id)
        assert (
            replace(task["working_folder"].rpartition("/containers/")[0])
            == folder.rpartition("/containers/")[0]
        )
        assert arguments == program["argv"][1:]
        expected = program["environment"]
        odd = {"LC_CTYPE", "_", "HOWDAH_RESTORED", "COLUMNS", "LINES"}
        assert set(expected) - set(environment) <= odd, "what Howdah sets is there"
        assert set(environment) - set(expected) <= odd | set(os.environ), "the rest is the shell's"
        for name in set(expected) & set(environment) - BY_CHANCE:
            assert replace(expected[name]) == replace(environment[name]), name


BY_CHANCE = {"AM_PORT", "HOWDAH_TASK_SOCKET", "_", "COLUMNS", "LINES"}


def _example(example: str, real: str):
    """Makes values of the dry run and the real one comparable: ids, ports and containers."""

    def replace(text: str) -> str:
        text = text.replace(example, real)
        return re.sub(r"\b2\d{4}\b", "PORT", re.sub(r"/c[-\w]*\d+\b", "/CONTAINER", text))

    return replace


def test_a_submission_that_waits_ends_as_the_job_does(tmp_path: Path) -> None:
    file = job_file(tmp_path, FAILS, roles={"worker": {"instances": 2}}, restart="never")
    documents = howdah("submit", str(file), "--wait", "--json", code=1).documents()
    assert documents[0]["job_id"] == newest().job_id
    assert documents[-1]["status"]["outcome"] == "failed"
    assert "log" not in {document["type"] for document in documents}


def test_a_submission_that_waits_is_interrupted_and_the_job_goes_on(tmp_path: Path) -> None:
    file = job_file(tmp_path, "import time; print('up', flush=True); time.sleep(600)")
    run = start("submit", str(file), "--wait")
    run.until_line("has started")
    run.signal(signal.SIGTERM)
    assert run.end() == 130
    directory = newest()
    assert directory.final() is None
    howdah("stop", directory.job_id)
    gone(directory)
