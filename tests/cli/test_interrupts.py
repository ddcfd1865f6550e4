"""Ctrl-C and its kin, with real processes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from howdah.cli.commands import run as run_commands
from howdah.cli.main import main
from howdah.client.lookup import listing
from howdah.client.sync import JobHandle
from howdah.storage.jobdir import StorageError, base_folder, list_jobs
from tests.cli.howdah import gone, job_file, newest, node_pid, start, until
from tests.cli.inside import howdah

SAVES = """
import signal, sys, time
def save(number, frame):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begun", flush=True)
while True:
    time.sleep(0.05)
"""

WAITS = """
import os, time
print("begun", flush=True)
while not os.path.exists(os.path.join(os.environ["HOWDAH_SHARED_DIR"], "go")):
    time.sleep(0.01)
print("done")
"""

STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, lambda *_: print("not yet", flush=True))
print("begun", flush=True)
while True:
    time.sleep(0.05)
"""


def test_one_signal_stops_the_job_cleanly(tmp_path: Path) -> None:
    run = start("run", str(job_file(tmp_path, SAVES)))
    run.until_line("begun")
    run.signal(signal.SIGTERM)
    assert run.end() == 130
    line = run.until_line("stopping the job cleanly")
    waits = r": waits until \d\d:\d\d:\d\d for programs that have not ended, then kills them; press Ctrl-C again"
    assert re.search(waits, line)
    assert "worker:0 | saved" in run.out
    assert "stopped after" in run.text
    view = gone(newest())
    assert (view.outcome, view.exit_code) == ("stopped", 130)
    assert "SIGTERM" in view.reason


def test_two_signals_end_the_job_at_once(tmp_path: Path) -> None:
    file = job_file(tmp_path, STUBBORN, timeouts={"stop-grace": "10m"})
    run = start("run", str(file))
    run.until_line("begun")
    run.signal(signal.SIGINT)
    run.until_line("worker:0 | not yet")
    run.signal(signal.SIGINT)
    assert run.end() == 130
    assert "ending the job at once" in run.told
    assert gone(newest()).outcome == "stopped"


def test_a_signal_during_submission_leaves_nothing_running(tmp_path: Path, home: Path) -> None:
    run = start("run", str(job_file(tmp_path, SAVES)))
    until(lambda: list(home.glob("jobs/*/*/meta.json")), "the job directory")
    run.signal(signal.SIGINT)
    assert run.end() == 130
    # Before it was handed over, nothing of it is left at all.
    directory = listing.newest(base_folder())
    assert directory is None or gone(directory).outcome == "stopped"


def test_closing_the_terminal_stops_the_job(tmp_path: Path) -> None:
    run = start("run", str(job_file(tmp_path, SAVES)), start_new_session=True)
    run.until_line("begun")
    run.signal(signal.SIGHUP)
    assert run.end() == 130
    assert gone(newest()).outcome == "stopped"


def test_nohup_keeps_the_job(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        run = start("run", str(job_file(tmp_path, WAITS)))
    finally:
        signal.signal(signal.SIGHUP, before)
    run.until_line("begun")
    run.signal(signal.SIGHUP)
    (newest().shared / "go").touch()
    assert run.end() == 0
    assert "worker:0 | done" in run.out


def test_leaving_an_attached_view_changes_nothing(tmp_path: Path) -> None:
    howdah("submit", str(job_file(tmp_path, SAVES)))
    attached = start("attach", newest().job_id, "--tail", "all")
    attached.until_line("begun")
    attached.signal(signal.SIGINT)
    assert attached.end() == 0
    assert f"left {newest().job_id} behind" in attached.told
    assert newest().final() is None
    stopped = howdah("stop", newest().job_id)
    assert stopped.text == f"{newest().job_id} stopped"
    assert "saved" in howdah("logs", "--no-prefix").out


def test_a_submission_that_is_terminated_is_all_or_nothing(tmp_path: Path, home: Path) -> None:
    run = start("submit", str(job_file(tmp_path, SAVES)))
    until(lambda: list(home.glob("jobs/*/*/meta.json")), "the job directory")
    run.signal(signal.SIGTERM)
    code = run.end()
    left = list_jobs(base_folder())
    if code == 130:
        assert left == []
    else:
        assert code in (0, -signal.SIGTERM), run.told  # it came after the job was handed over
        assert node_pid(left[0]) is not None
        howdah("stop", "--now", left[0].job_id)


@pytest.mark.parametrize("command", ["submit", pytest.param("notebook", marks=pytest.mark.nightly)])
def test_a_job_whose_id_was_never_printed_does_not_go_on(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run_commands, "_say_submitted", interrupted)
    file = str(job_file(tmp_path, SAVES))
    source = ("--detach", "--source", str(tmp_path)) if command == "notebook" else (file,)
    assert main([command, *source]) == 130
    assert gone(newest()).outcome == "stopped"


def test_a_job_whose_directory_cannot_be_read_to_stop_it_is_said_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def unreadable(*_: object) -> None:
        raise StorageError("its directory cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(run_commands, "_say_submitted", interrupted)
        patched.setattr(JobHandle, "stop", unreadable)
        assert main(["submit", str(job_file(tmp_path, SAVES))]) == 130
    assert f"{newest().job_id} goes on" in capsys.readouterr().err
    howdah("stop", "--now", newest().job_id)


def test_howdah_stop_says_until_when_programs_are_waited_for(tmp_path: Path) -> None:
    file = job_file(tmp_path, STUBBORN, timeouts={"stop-grace": "2s"})
    run = start("run", str(file))
    run.until_line("begun")
    stop = howdah("stop", newest().job_id)
    assert re.search(
        r"^howdah \| stopping: waits until \d\d:\d\d:\d\d for programs that have not ended, then kills them$",
        stop.told,
        re.MULTILINE,
    )
    run.end()
