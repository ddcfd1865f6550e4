"""A job that succeeds although its store fails while it runs."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

from tests.cli.howdah import gone, job_file, newest, start, until
from tests.cli.inside import howdah

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


@pytest.mark.parametrize("table", ["checkpoint", "outputs"])
def test_the_command_does_not_end_as_if_all_were_well(tmp_path: Path, table: str) -> None:
    store = str(tmp_path / "store")
    what = {"folder": "made"} if table == "checkpoint" else {"folders": ["made"]}
    fields = {table: {**what, "store": store}}
    file = job_file(tmp_path, SPOILS_ITS_STORE, env={"STORE": store}, **fields)
    run = howdah("run", str(file), code=5)
    assert "succeeded after" in run.text
    assert "but not all of it was saved" in run.text
    assert "Not saved     worker:0: " in run.text
    view = gone(newest())
    assert (view.outcome, view.exit_code) == ("succeeded", 5)
    (line,) = view.unsaved
    assert line.startswith("worker:0: ")
    assert store in line
    (kept,) = newest().path.glob("unsaved/worker-0/1/*")
    assert line.endswith(f"kept in {kept}")
    assert [path.read_text() for path in kept.rglob("model")] == ["1"]
    if "checkpoint" in table:
        other = [
            f"--set=checkpoint.store={tmp_path / 'other'}",
            f"--set=env.STORE={tmp_path / 'no'}",
        ]
        again = howdah("rerun", "--resume", view.job_id, *other)
        assert f"from checkpoint unsaved/worker-0/1/checkpoint of {view.job_id}" in again.told


@pytest.mark.nightly
def test_a_sweep_does_not_end_as_if_all_were_well(tmp_path: Path) -> None:
    program = f"import os\nif os.environ['spoils'] == 'yes':{indent(SPOILS_ITS_STORE, '    ')}"
    good, bad = str(tmp_path / "good"), str(tmp_path / "bad")
    file = job_file(tmp_path, program, outputs={"folders": ["made"]})
    stores = ("--set", f"STORE={good},{bad}", "--set", f"outputs.store={good},{bad}")
    run = howdah("sweep", str(file), "--zip", "--set", "spoils=no,yes", *stores, code=5)
    assert f"trial 2 of 2 (spoils=yes STORE={bad} outputs.store={bad}) not saved: " in run.told
    _, saved, unsaved = run.out
    assert " succeeded " in saved
    assert re.search(f" not saved .* worker:0: .*{re.escape(bad)}", unsaved)


STORE_GOES_AWAY = """
import os
import pathlib
import shutil
import time

store = pathlib.Path(os.environ["STORE"])
shutil.rmtree(store, ignore_errors=True)
store.write_text("as if it were not mounted")
pathlib.Path("made").mkdir(exist_ok=True)
pathlib.Path("made/model").write_text("1")
print("begun", flush=True)
time.sleep(600)
"""


@pytest.mark.nightly
def test_a_job_that_is_still_saving_is_not_shown_as_over(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    table = {"folder": "made", "store": store, "settle": "1ms"}
    run = start(
        "run", str(job_file(tmp_path, STORE_GOES_AWAY, env={"STORE": store}, checkpoint=table))
    )
    run.until_line("begun")
    job = newest().job_id
    assert "is being stopped" in howdah("stop", job, "--no-wait").text
    run.until_line("is saving its checkpoint")
    status = howdah("status", job).text
    assert f"{job} finishing for " in status
    assert f"howdah stop --now {job}" in status
    assert "howdah rerun" not in status
    assert job in howdah("list", "--state", "running").text
    assert howdah("stop", "--now", job).text == f"{job} stopped"
    assert run.end() == 130
    kept = newest().path / "unsaved/worker-0/1/checkpoint"
    assert (kept / "model").read_text() == "1"
    assert str(kept) in run.text


@pytest.mark.nightly
def test_a_restart_that_waits_for_a_store_says_for_which(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    table = {"folder": "made", "store": store, "settle": "1ms"}
    script = STORE_GOES_AWAY.replace("time.sleep(600)", "time.sleep(0.1)\nraise SystemExit(1)")
    run = start("run", str(job_file(tmp_path, script, env={"STORE": store}, checkpoint=table)))
    run.until_line("is not saved")
    run.until_line("is saving its checkpoint")
    job = newest().job_id
    waiting = re.compile(f"waiting until what was made is saved: worker:0: .*{re.escape(store)}")
    until(lambda: waiting.search(howdah("status", job).text), "the status names the store")
    assert howdah("stop", "--now", job).text == f"{job} stopped"
    assert run.end() == 130


def test_a_job_that_is_still_saving_is_not_shown_as_over_and_stop_waits_for_it(
    tmp_path: Path,
) -> None:
    store = str(tmp_path / "store")
    # A file that was written a moment before a kill is taken for incomplete, and not saved.
    table = {"folder": "made", "store": store, "settle": "1ms"}
    file = job_file(tmp_path, STORE_GOES_AWAY, env={"STORE": store}, checkpoint=table)
    run = start("run", str(file))
    run.until_line("begun")
    run.until_line("is not saved")
    job = newest().job_id
    waits = start("stop", job)
    waits.until_line("howdah | worker:0 is saving its checkpoint and outputs, up to ")
    assert "is being stopped" in howdah("stop", job, "--no-wait").text
    status = howdah("status", job).text
    assert f"{job} finishing for " in status
    assert f"howdah stop --now {job}" in status
    assert "howdah rerun" not in status
    assert job in howdah("list", "--state", "running").text
    assert howdah("stop", "--now", job).text == f"{job} stopped"
    assert waits.end() == 0 and waits.text.endswith(" stopped")
    assert run.end() == 130
    (line,) = gone(newest()).unsaved
    assert line.startswith("worker:0: made: ")
    assert "Not saved     worker:0: made: " in run.text


MAKES = """
import os
import pathlib

outside = pathlib.Path(os.environ["OUTSIDE"])
outside.mkdir()
(outside / "weights").write_text("1")
for name in os.environ["FOLDERS"].split():
    pathlib.Path(name).mkdir(exist_ok=True)
    pathlib.Path(name, "model").write_text("1")
    pathlib.Path(name, "last").symlink_to(outside)
"""
UNWRITTEN = "no program has written to the folder"


def test_what_is_in_no_folder_that_the_job_file_names_is_said(tmp_path: Path) -> None:
    """Folders that nothing was written to, and links that lead out of those that are saved."""
    tables = {"checkpoint": {"folder": "made"}, "outputs": {"folders": ["result"]}}
    for folders, at in (("other", "first"), ("made result", "second")):
        outside = tmp_path / at / "outside"
        outside.parent.mkdir()
        env = {"OUTSIDE": str(outside), "FOLDERS": folders}
        file = job_file(tmp_path / at, MAKES, env=env, **tables)
        (file.parent / "data").symlink_to(tmp_path)  # of the source: the job needs no copy of it
        told = howdah("run", str(file)).told
        if at == "first":
            assert f"no checkpoint was saved: {UNWRITTEN}" in told
            assert f"there are no outputs: {UNWRITTEN}s" in told
            continue
        assert UNWRITTEN not in told
        for what in ("checkpoint", "outputs"):
            (line,) = (each for each in told.splitlines() if f"its {what}: links in " in each)
            assert line.endswith(
                f"last -> {outside}; have the program write into the folder itself"
            )
            assert "data ->" not in line


def test_the_save_limit_counts_when_the_program_ends_by_itself(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    table = {"folder": "made", "store": store, "save-limit": "2s"}
    script = STORE_GOES_AWAY.replace("time.sleep(600)", "")
    file = job_file(tmp_path, script, env={"STORE": store}, checkpoint=table)
    run = howdah("run", str(file), code=5)
    assert re.search("worker:0 is saving its checkpoint and outputs, up to [12] s", run.told)
    (line,) = gone(newest()).unsaved
    assert line.startswith("worker:0: made: ")
