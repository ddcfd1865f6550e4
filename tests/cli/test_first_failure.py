"""Which of several failures the end of `howdah run` puts first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.cli.howdah import gone, job_file, newest
from tests.cli.inside import howdah

FIRST_ONCE_SECOND_ALWAYS = """
import sys

from howdah import task

me = task.context()
if me.index == 0:
    sys.exit(7 if me.attempt == 1 else 0)
sys.exit(9)
"""


def test_a_failure_that_the_job_got_over_is_not_put_first(tmp_path: Path) -> None:
    roles = {"worker": {"instances": 2}}
    file = job_file(tmp_path, FIRST_ONCE_SECOND_ALWAYS, mode="each", attempts=2, roles=roles)
    run = howdah("run", str(file), code=1)
    assert "Failed first  worker:1 exited with code 9" in run.text, run.text


def test_a_sidecar_is_not_what_failed_first(tmp_path: Path) -> None:
    ended = "os.path.join(os.environ['HOWDAH_SHARED_DIR'], 'ended')"
    crashes = [sys.executable, "-c", f"import os, sys; open({ended}, 'w'); sys.exit(3)"]
    roles = {"worker": {}, "board": {"tracking": "sidecar", "command": crashes}}
    script = (
        f"import os, sys, time\nwhile not os.path.exists({ended}): time.sleep(0.01)\nsys.exit(9)"
    )
    run = howdah("run", str(job_file(tmp_path, script, attempts=1, roles=roles)), code=1)
    assert "Failed first  worker:0 exited with code 9" in run.text, run.text


@pytest.mark.parametrize(
    ("script", "command", "fact"),
    [
        ("import no_such_module", None, "No module named 'no_such_module' (train.py, line 1)"),
        pytest.param(
            "x = (1,\n",
            None,
            "SyntaxError: '(' was never closed (train.py, line 1)",
            marks=pytest.mark.nightly,
        ),
        ("", ["sh", "-c", f"exec {sys.executable} gone.py"], "can't open file"),
        pytest.param(
            "",
            [sys.executable, "-m", "no_such_module"],
            "No module named no_such_module",
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["module", "syntax", "script", "main"],
)
def test_a_program_that_cannot_run_is_tried_once(
    tmp_path: Path, script: str, command: list[str] | None, fact: str
) -> None:
    fields = {"command": command} if command else {}
    run = howdah("run", str(job_file(tmp_path, script, **fields)), code=1)
    view = gone(newest())
    (failure,) = view.failures
    assert (failure.cause, view.restarts) == ("start-failed", 0)
    assert fact in failure.what
    assert "trying again would not help" in run.text
    assert (
        run.told.count("Traceback") + run.text.count("Traceback") <= 2
    )  # the log, and the summary


def test_the_same_defect_twice_ends_the_job_and_is_shown_at_the_users_own_path(
    tmp_path: Path,
) -> None:
    file = job_file(tmp_path, "import os\nos.no_such_name\n", attempts=5)
    run = howdah("run", str(file), code=1)
    view = gone(newest())
    assert [failure.cause for failure in view.failures] == ["user-code"] * 2
    assert "it failed in the same way twice, so trying again would not help" in view.reason
    assert f'File "{file.parent / "train.py"}", line 2' in run.text


def test_a_defect_that_comes_after_progress_is_tried_again(tmp_path: Path) -> None:
    script = """
import os, pathlib, time
import howdah.task
made = pathlib.Path("made")
made.mkdir(exist_ok=True)
attempt = int(os.environ["HOWDAH_ATTEMPT"])
(made / f"{attempt}").write_text("")
howdah.task.report(step=attempt)
while not list(pathlib.Path(os.environ["STORE"]).glob(f"*/{attempt:06}*")):
    time.sleep(0.01)
os.no_such_name
"""
    store = str(tmp_path / "store")
    table = {"folder": "made", "store": store, "settle": "1ms"}
    file = job_file(tmp_path, script, attempts=2, checkpoint=table, env={"STORE": store})
    howdah("run", str(file), code=1)
    assert len(gone(newest()).failures) == 2
