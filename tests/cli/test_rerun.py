"""Jobs that run again: as they were, changed, and from their checkpoints."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.finished import Finished
from tests.cli.howdah import gone, job_file, newest
from tests.cli.inside import howdah


def test_a_job_runs_again_as_it_was(tmp_path: Path) -> None:
    script = "import os, sys; print(os.environ['HOWDAH_JOB_ID'], sys.argv[1:], os.environ['WORD'])"
    command = [sys.executable, "train.py", "${job.id}", "$${env:HOME}"]
    env = {"WORD": "${env:LOGNAME:-ada}"}
    file = job_file(tmp_path, script, command=command, env=env)
    first = howdah("run", str(file))
    before = newest().job_id
    file.unlink()
    again = howdah("rerun", before)
    after = newest().job_id
    assert after != before
    assert newest().meta().rerun_of == before
    line = next(line for line in first.out if line.startswith("worker:0 |"))
    assert line.replace(before, after) in again.out
    assert f"['{after}', '${{env:HOME}}']" in again.text
    changed = howdah("rerun", before, "--set", "env.WORD=other", "--detach")
    assert changed.out == [newest().job_id]
    gone(newest())
    assert howdah("logs").text.endswith("other")


def test_a_job_without_a_job_file_runs_again_with_its_own_files_from_any_folder(
    tmp_path: Path,
) -> None:
    here, there = tmp_path / "here" / "job", tmp_path / "there" / "job"
    for folder in (here, there):
        folder.mkdir(parents=True)
        (folder.parent / "word.txt").write_text(f"from {folder.parent.name}\n")
    howdah("run", "--set", 'files=["../word.txt"]', "--", "cat word.txt", cwd=here)
    first = newest()
    assert "worker:0 | from here" in howdah("rerun", first.job_id, cwd=there).out
    # Jobs of older releases do not have their folder.
    old = first.path / "meta.json"
    meta = json.loads(old.read_text())
    del meta["folder"]
    old.write_text(json.dumps(meta))
    assert "worker:0 | from here" in howdah("rerun", first.job_id, cwd=there).out


COUNTS = """
import os, pathlib
folder = pathlib.Path("saved")
found = sorted(folder.glob("step-*"))
step = int(found[-1].name.partition("-")[2]) if found else 0
print("begins at", step, "restored", os.environ.get("HOWDAH_RESTORED"))
(folder / f"step-{step + 5}").write_text("weights")
"""


def test_a_job_is_resumed_from_its_last_checkpoint_that_is_whole(tmp_path: Path) -> None:
    store = tmp_path / "store"
    table = {"folder": "saved", "store": str(store)}
    roles = {"worker": {"instances": 2}}
    file = job_file(tmp_path, COUNTS, checkpoint=table, roles=roles)
    assert "worker:1 | begins at 0 restored None" in howdah("run", str(file)).out
    first = newest().job_id
    run = howdah("rerun", first, "--resume")
    for task in ("worker:0", "worker:1"):
        assert re.search(rf"{task} \| begins at 5 restored .+", run.text), run.text
        assert f"{task} restored checkpoint 000001 of {first} (checksum " in run.told
    assert f"howdah | from checkpoint 000001 of {first}" in run.told
    before = newest()
    place = Path(before.checkpoint_store(before.job().checkpoint))
    oldest, latest = sorted(each for each in place.iterdir() if each.name.isdigit())[-2:]

    def damage(version: Path) -> None:
        for each in version.glob("step-*"):
            each.write_text("w8ights")

    damage(latest)
    run = howdah("rerun", before.job_id, "--resume")
    assert f"howdah | checkpoint {latest.name} of {before.job_id} is damaged: " in run.told
    assert f"howdah | from checkpoint {oldest.name} of " in run.told
    damage(oldest)
    refused = howdah("rerun", before.job_id, "--resume", code=2).told
    assert "is damaged" in refused and "without --resume" in refused
    store.rename(tmp_path / "away")
    refused = howdah("rerun", first, "--resume", code=2).told
    assert str(store) in refused and "bring the store back" in refused
    store.write_text("as if it were not mounted")
    assert "bring their store back" in howdah("rerun", first, "--resume", code=2).told


@pytest.mark.nightly
def test_each_task_is_resumed_from_its_own_checkpoint_where_all_save(tmp_path: Path) -> None:
    table = {"folder": "saved", "source": "each"}
    file = job_file(tmp_path, COUNTS, checkpoint=table, roles={"worker": {"instances": 2}})
    howdah("run", str(file))
    before = newest().job_id
    run = howdah("rerun", before, "--resume")
    for task in ("worker:0", "worker:1"):
        assert re.search(rf"{task} \| begins at 5 restored .+", run.text), run.text
    assert f"howdah | from checkpoint worker-0: 000001 of {before}" in run.told


def test_a_job_without_checkpoints_or_source_cannot_run_again_so(
    finished: Finished, tmp_path: Path
) -> None:
    without = finished.copy("letters-20261121-143502-k3f9", failed=True).job_id
    assert "no [checkpoint] folder" in howdah("rerun", without, "--resume", code=2).told
    saved = finished.copy("digits-20261121-143502-k3f9")
    place = Path(saved.checkpoint_store(saved.job().checkpoint))
    for version in place.glob("0*"):
        version.rename(tmp_path / f"away-{version.name}")
    refused = howdah("rerun", saved.job_id, "--resume", code=2).told
    assert f"no complete checkpoint in {place}" in refused
    assert "to resume from: it ended before it saved one" in refused
    assert "without --resume" in refused and "bring the store" not in refused

    file = job_file(tmp_path, "import time; time.sleep(600)", checkpoint={})
    howdah("submit", str(file))
    assert "it has not saved one yet" in howdah("rerun", "@last", "--resume", code=2).told
    howdah("stop", "--now", "@last")
    gone(newest())
    assert "it was stopped before" in howdah("rerun", "@last", "--resume", code=2).told
    file.parent.rename(tmp_path / "moved")
    assert f"there is no folder {file.parent}" in howdah("rerun", "@last", code=2).told
