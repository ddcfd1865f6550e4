"""A job that succeeds although its store fails while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.howdah import gone, howdah, job_file, newest

SPOILS_ITS_STORE = """
import os
import pathlib
import shutil

store = pathlib.Path(os.environ["STORE"])
shutil.rmtree(store, ignore_errors=True)
store.symlink_to(store)  # too many levels of symbolic links: trying again would not help
pathlib.Path("made").mkdir(exist_ok=True)
pathlib.Path("made/model").write_text("1")
"""


@pytest.mark.parametrize(
    "table",
    [{"checkpoint": {"folder": "made"}}, {"outputs": {"folders": ["made"]}}],
    ids=["checkpoint", "outputs"],
)
def test_the_command_does_not_end_as_if_all_were_well(
    tmp_path: Path, table: dict[str, dict[str, object]]
) -> None:
    store = str(tmp_path / "store")
    tables = {name: {**values, "store": store} for name, values in table.items()}
    file = job_file(tmp_path, SPOILS_ITS_STORE, env={"STORE": store}, **tables)
    run = howdah("run", str(file), code=5)
    assert "succeeded after" in run.text
    assert "but not all of it was saved" in run.text
    assert "Not saved     worker:0: " in run.text
    view = gone(newest())
    assert (view.outcome, view.exit_code) == ("succeeded", 5)
    (line,) = view.unsaved
    assert line.startswith("worker:0: ")
    assert store in line
