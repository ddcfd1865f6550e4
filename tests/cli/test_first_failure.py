"""Which of several failures the end of `howdah run` puts first."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cli.howdah import howdah, job_file

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
    crashes = [sys.executable, "-c", "import sys; sys.exit(3)"]
    roles = {"worker": {}, "board": {"tracking": "sidecar", "command": crashes}}
    script = "import sys, time; time.sleep(2); sys.exit(9)"
    run = howdah("run", str(job_file(tmp_path, script, attempts=1, roles=roles)), code=1)
    assert "Failed first  worker:0 exited with code 9" in run.text, run.text
