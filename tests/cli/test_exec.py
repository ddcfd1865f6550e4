"""``howdah exec``: commands beside the programs of one running job."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from howdah.storage.jobdir import JobDirectory
from tests.changing_folders import contents
from tests.cli.howdah import HOWDAH, ended_at_last, gone, job_file, newest, start, until
from tests.cli.inside import howdah

pytestmark = pytest.mark.timeout(180)

WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobDirectory]:
    """Two workers that wait, and a task that has ended."""
    folder = tmp_path_factory.mktemp("exec")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOWDAH_HOME", str(folder / "home"))
        patch.setenv("HOWDAH_SITE", "")
        with ended_at_last():
            roles = {
                "worker": {"instances": 2, "memory": "200m"},
                "early": {"command": ["true"]},
            }
            env = {"PASSWORD": "hush-hush"}
            howdah("submit", str(job_file(folder, WAITS, roles=roles, env=env, name="beside")))
            until(lambda: howdah("logs").text.count("begun") == 2, "both begin")
            until(lambda: "succeeded" in howdah("status").text, "the third task's end")
            yield newest()


@pytest.fixture(autouse=True)
def home(job: JobDirectory) -> JobDirectory:
    """In the place of a home for each test."""
    return job


def beside(*command: str, task: str = "worker:0", **popen: Any) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*HOWDAH, "exec", "beside", task, "--", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **popen,
    )


def shell(text: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return beside("sh", "-c", text, **more)


def test_a_command_has_the_programs_variables_and_folder_and_its_own_streams(
    job: JobDirectory,
) -> None:
    ran = shell(
        'cat; echo "$PASSWORD $HOWDAH_ROLE $HOWDAH_INDEX"; ls; echo wrong >&2; exit 7',
        task="worker:1",
        input="first\n",
    )
    assert (ran.returncode, ran.stderr) == (7, "wrong\n")
    assert ran.stdout.splitlines()[:2] == ["first", "hush-hush worker 1"]
    assert "train.py" in ran.stdout
    assert beside("sh", input="exit 4\n").returncode == 4
    bare = [*HOWDAH, "exec", "beside", "worker:0"]
    assert (
        subprocess.run(bare, input="exit 5\n", text=True, timeout=60, check=False).returncode == 5
    )


def test_exit_codes_are_those_of_a_shell(job: JobDirectory) -> None:
    assert beside("true").returncode == 0
    assert shell("kill -9 $$").returncode == 137
    missing = beside("no-such-program")
    assert missing.returncode == 127
    assert "no program 'no-such-program' on the PATH of worker:0's program" in missing.stderr
    no_utf8 = beside("sh", "-c", 'printf %s "$1" | od -An -tx1', "sh", "\udce9")
    assert (no_utf8.returncode, no_utf8.stdout) == (0, " e9\n")
    forbidden = beside("./train.py")
    assert forbidden.returncode == 126 and "permission denied" in forbidden.stderr


def test_what_cannot_be_done_is_refused_in_words(job: JobDirectory) -> None:
    unknown = howdah("exec", "beside", "worker:9", "--", "true", code=2)
    assert "has no task 'worker:9'; it has worker:0, worker:1, early:0" in unknown.told
    ended = howdah("exec", "beside", "early:0", "--", "true", code=3)
    assert "early:0 does not run any more: it is succeeded" in ended.told
    dashes = howdah("exec", "beside", "worker:0", "true", code=2)
    assert "howdah exec beside worker:0 -- true" in dashes.told
    assert (
        "needs standard input to be a terminal"
        in howdah("exec", "-t", "beside", "worker:0", "--", "top", code=2).told
    )


def test_without_an_id_the_newest_job_is_meant(job: JobDirectory) -> None:
    for which in ((), ("@last",), (job.job_id,)):
        ran = howdah(
            "exec", *which, "worker:1", "--", "sh", "-c", "echo $HOWDAH_INDEX of $HOWDAH_JOB_ID"
        )
        assert ran.text == f"1 of {job.job_id}"
    assert "no task 'worker:9'" in howdah("exec", "worker:9", "--", "true", code=2).told
    dashes = howdah("exec", "worker:0", "ls", code=2)
    assert "howdah exec worker:0 -- ls" in dashes.told
    for one in ((), ("beside",), ("--store", str(job.path.parent))):
        assert "TASK is missing" in howdah("exec", *one, "--", "true", code=2).told


def test_what_it_leaves_running_is_ended_and_its_output_is_whole(job: JobDirectory) -> None:
    begun = "(setsid sleep 1000 >/dev/null 2>&1 & echo $!); sleep 1000 & echo $!"
    ran = shell(f"{begun}; head -c 300000 /dev/zero | tr '\\0' x")
    first, second, rest = ran.stdout.split("\n")
    assert not any(psutil.pid_exists(int(pid)) for pid in (first, second))
    assert rest == "x" * 300000


def test_closed_streams_are_as_empty_ones(job: JobDirectory) -> None:
    command = shlex.join([*HOWDAH, "exec", "worker:0", "--", "sh", "-c", "cat; echo out; exit 4"])
    for closed in ("<&- >&- 2>&-", "<&-", ">&-"):
        assert (
            subprocess.run(f"{command} {closed}", shell=True, timeout=60, check=False).returncode
            == 4
        )
    status = subprocess.run(f"{shlex.join(HOWDAH)} status >&-", shell=True, timeout=60, check=False)
    assert status.returncode == 0


def test_ctrl_c_without_a_terminal_is_the_commands(job: JobDirectory) -> None:
    trap = "trap 'echo caught; exit 9' INT; echo ready; while :; do sleep 0.05; done"
    run = start("exec", "beside", "worker:0", "--", "sh", "-c", trap)
    run.until_line("ready")
    run.signal(signal.SIGINT)
    assert run.end() == 9 and run.out == ["ready", "caught"]


def test_it_ends_with_its_client(job: JobDirectory) -> None:
    run = start("exec", "beside", "worker:0", "--", "sh", "-c", "echo $$; sleep 1000")
    pid = int(run.until_line(""))
    run.process.kill()
    run.end()
    until(lambda: not psutil.pid_exists(pid), "the command's end")
    piped = subprocess.Popen(
        [*HOWDAH, "exec", "beside", "worker:0", "--", "yes"], stdout=subprocess.PIPE
    )
    assert piped.stdout is not None and piped.stdout.readline() == b"y\n"
    piped.stdout.close()
    assert piped.wait(60) == 128 + signal.SIGPIPE


def test_a_hangup_that_is_ignored_is_ignored(job: JobDirectory) -> None:
    echo = [*HOWDAH, "exec", "beside", "worker:0", "--", "sh", "-c", "echo up; cat"]
    run = subprocess.Popen(
        ["nohup", *echo], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run.stdout is not None and run.stdout.readline() == b"up\n"
    run.send_signal(signal.SIGHUP)
    assert run.communicate(b"on\n", timeout=60) == (b"on\n", None)
    assert run.returncode == 0


def test_output_that_cannot_be_written_is_named_and_one_that_is_not_blocking_waited_for(
    job: JobDirectory,
) -> None:
    zeros = [*HOWDAH, "exec", "beside", "worker:0", "--", "head", "-c", "200000", "/dev/zero"]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(zeros, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert ran.returncode == 3 and b"can't be written" in ran.stderr and b"No space" in ran.stderr
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writing, False)
    run = subprocess.Popen(zeros, stdout=writing)
    os.close(writing)
    with open(reading, "rb") as read:
        assert len(read.read()) == 200000
    assert run.wait(60) == 0


def test_a_late_reader_loses_nothing(job: JobDirectory) -> None:
    count = 3_000_000
    script = f"head -c {count} /dev/zero; touch $HOWDAH_SHARED_DIR/written"
    run = subprocess.Popen(
        [*HOWDAH, "exec", "beside", "worker:0", "--", "sh", "-c", script], stdout=subprocess.PIPE
    )
    assert run.stdout is not None
    first = run.stdout.read(1)
    assert shell("true").returncode == 0  # others go on
    assert not (job.shared / "written").exists(), "it waits for its reader"
    assert len(first + run.stdout.read()) == count
    assert run.wait(60) == 0
    run.stdout.close()


def test_a_command_over_the_memory_limit_is_ended_and_the_task_goes_on(job: JobDirectory) -> None:
    code = "x = b'x' * 600_000_000; print(len(x)); import time; time.sleep(1000)"
    ran = beside(sys.executable, "-c", code)
    assert ran.returncode == 137
    assert re.search(r"ended for its memory: with it worker:0 used \d+ MB of 200 MB", ran.stderr)
    left = shell(f"(setsid {sys.executable} -c {shlex.quote(code)} &); sleep 1000")
    assert left.returncode == 137 and "ended for its memory" in left.stderr
    assert shell("true").returncode == 0
    assert {task["attempt"] for task in howdah("status", "--json").documents()[0]["tasks"]} == {1}


class Terminal:
    """A terminal with ``howdah exec`` in it."""

    def __init__(self, *arguments: str) -> None:
        self.master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, (33, 101))
        self.before = termios.tcgetattr(self.slave)
        self.seen = b""
        self.process = subprocess.Popen(
            [*HOWDAH, "exec", *arguments],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, "TERM": "vt100", "PS1": "$ ", "COLUMNS": "7"},
            start_new_session=True,
        )
        os.set_blocking(self.master, False)

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def until(self, text: str) -> None:
        def shown() -> bool:
            with contextlib.suppress(BlockingIOError):
                self.seen += os.read(self.master, 65536)
            return text.encode() in self.seen

        until(shown, f"{text!r} on the terminal")
        self.seen = self.seen.partition(text.encode())[2]

    def end(self) -> int:
        """Its exit code; the terminal is as it was then."""
        code = self.process.wait(60)
        assert termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return code


def test_a_shell_has_a_terminal(job: JobDirectory) -> None:
    terminal = Terminal("beside", "worker:1")
    terminal.type("tty; stty size; echo $TERM-$HOWDAH_INDEX\n")
    terminal.until("/dev/pts/")
    terminal.until("33 101\r\n")
    terminal.until("vt100-1\r\n")
    termios.tcsetwinsize(terminal.slave, (44, 102))
    terminal.process.send_signal(signal.SIGWINCH)  # it has no controlling terminal to get it from
    terminal.type("until [ \"$(stty size)\" = '44 102' ]; do sleep 0.05; done; echo re''sized\n")
    terminal.until("resized\r\n")
    # Who says it is in the foreground already: the key ends it, and not what is not there yet.
    terminal.type("PS1='rea''dy> '; sh -c 'echo be\"\"gun; exec sleep 1000'\n")
    terminal.until("begun\r\n")
    terminal.type("\x03")
    terminal.until("ready> ")
    terminal.type("echo co''de $?\n")
    terminal.until("code 130\r\n")
    terminal.type("exit 6\n")
    assert terminal.end() == 6


def test_a_shell_is_left_by_an_escape_and_by_a_signal(job: JobDirectory) -> None:
    terminal = Terminal("-t", "beside", "worker:1", "--", "sh", "-c", "echo pid-$$; sleep 1000")
    terminal.until("pid-")
    terminal.type("\r~.")
    assert terminal.end() == 128 + signal.SIGHUP
    terminal = Terminal("beside", "worker:1")
    terminal.type("echo u''p\n")
    terminal.until("up\r\n")
    terminal.process.terminate()
    assert terminal.end() == 128 + signal.SIGTERM


def test_commands_are_in_the_event_log_and_their_environment_is_nowhere(job: JobDirectory) -> None:
    shell(f":\n: {'long' * 100}")

    def noted() -> tuple[list[Any], list[Any]] | None:
        events = howdah("events", "beside", "--json").documents()
        started, ended = (
            [e for e in events if e["kind"] == f"exec-{what}"] for what in ("started", "ended")
        )
        return (started, ended) if len(started) == len(ended) > 0 else None

    started, ended = until(noted, "its end is in the event log")
    assert (started[-1]["task"], ended[-1]["task"]) == ("worker:0", "worker:0")
    assert r"runs beside worker:0: sh -c ':\n: long" in started[-1]["text"]
    assert len(started[-1]["text"]) < 260
    assert re.search(r"worker:0 ended with code 0 after \d+\.\d s$", ended[-1]["text"])
    for path, content in contents(job.path):
        own = path.is_relative_to(job.containers) or path.is_relative_to(job.secrets)
        if not own and path.name != "job.json":
            assert b"hush-hush" not in content, path


def test_it_ends_with_its_task(job: JobDirectory) -> None:
    """The last one: the job ends."""
    late = subprocess.Popen(
        [*HOWDAH, "exec", "beside", "worker:1", "--", "yes"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert late.stdout is not None and late.stdout.readline() == b"y\n"
    assert shell('rm -r "$PWD"', task="worker:1").returncode == 0
    homeless = beside("true", task="worker:1")
    assert homeless.returncode == 126 and "working folder" in homeless.stderr
    run = start(
        "exec", "beside", "worker:0", "--", "sh", "-c", "trap '' TERM HUP; echo up; sleep 1000"
    )
    run.until_line("up")
    (job.shared / "go").touch()
    assert run.end() == 137
    assert "worker:0 has ended, and the command with it" in run.told
    assert gone(job).outcome == "succeeded"
    assert b"worker:1 has ended, and the command with it" in late.communicate(timeout=60)[1]
    assert late.returncode == 137
    events = [event["kind"] for event in howdah("events", "beside", "--json").documents()]
    assert events.count("exec-started") == events.count("exec-ended")
    assert "has ended" in howdah("exec", "beside", "worker:0", "--", "true", code=2).told
