"""What has to be installed on executors, as docs/install.md has it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "install.md"
PROGRAM = """
import sys
before = set(sys.modules)
import howdah.agent.main
import howdah.backends.spark.container
import howdah.backends.spark.slot_task
import howdah.client.submission.function_script
import howdah.spark.context
import howdah.spark.feed.feed
import howdah.spark.feed.tasks.scorer
import howdah.spark.feed.trainer
import howdah.spark.scoring.worker
import cloudpickle
for name in set(sys.modules) - before:
    file = getattr(sys.modules[name], "__file__", None) or ""
    if "site-packages" in file:
        print(name.partition(".")[0])
"""


def test_what_runs_there_needs_no_more_than_the_page_says() -> None:
    command = re.search(r"^pip install (msgspec .*)$", PAGE.read_text(), re.M)
    assert command is not None
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    # numpy and pyarrow are compiled by Cython, and take this along where it is there.
    taken_along = {"typing_extensions", "cython_runtime"}
    found = set(ran.stdout.split()) - {"howdah"} - taken_along
    assert found == set(command[1].split())
