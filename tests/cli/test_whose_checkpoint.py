"""Whose checkpoint folder is saved where one is the job's: the chief's, or that of the task that writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from howdah.wire.status import JobView
from tests.cli.howdah import Run, gone, job_file, newest
from tests.cli.inside import howdah

SAVES = """
import os, pathlib, sys, time
rank = int(os.environ["HOWDAH_RANK"])
folder = pathlib.Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
found = sorted(path.read_text() for path in folder.iterdir() if path.is_file())
print("found", found, flush=True)
first = os.environ["HOWDAH_GENERATION"] == "1"
writers = [int(each) for each in os.environ["WRITERS"].split()]
# Others write once the lowest has said that it saves: what they do when it is long in coming is another thing.
claim = f"*/.writer-{int(os.environ['HOWDAH_GENERATION']):06}-{writers[0]:06}"
while rank in writers[1:] and not list(pathlib.Path(os.environ["STORE"]).glob(claim)):
    time.sleep(0.01)
if rank in writers:
    (folder / "model.txt").write_text(f"of {rank} in {os.environ['HOWDAH_GENERATION']}")
while first and not list(pathlib.Path(os.environ["STORE"]).glob("*/0*/manifest.json")):
    time.sleep(0.01)
sys.exit(4 if first and rank == 0 else 0)
"""


def _run(tmp_path: Path, writers: str) -> tuple[Run, JobView, Path]:
    store = tmp_path / "store"
    file = job_file(
        tmp_path,
        SAVES,
        framework="pytorch",
        roles={"worker": {"instances": 3}},
        env={"WRITERS": writers, "STORE": str(store)},
        checkpoint={"settle": "20ms", "store": str(store)},
    )
    run = howdah("run", str(file))
    view = gone(newest())
    return run, view, store / view.job_id


def _saved(store: Path) -> list[tuple[str, int]]:
    """Task and generation of each version."""
    manifests = [json.loads(path.read_bytes()) for path in sorted(store.glob("0*/manifest.json"))]
    return [(f"{m['task'][0]}:{m['task'][1]}", m["generation"]) for m in manifests]


def test_of_several_others_that_write_the_lowest_rank_is_saved_and_all_get_it_back(
    tmp_path: Path,
) -> None:
    run, view, store = _run(tmp_path, "1 2")
    assert view.restarts == 1
    assert run.text.count("found ['of 1 in 1']") == 3
    assert _saved(store) == [("worker:1", 1), ("worker:1", 2)]
    assert "no checkpoint was saved" not in run.told


@pytest.mark.nightly
def test_of_several_that_write_the_chief_is_saved(tmp_path: Path) -> None:
    run, _, store = _run(tmp_path, "0 1 2")
    assert run.text.count("found ['of 0 in 1']") == 3
    assert {task for task, _ in _saved(store)} == {"worker:0"}


def test_hidden_files_are_part_of_a_checkpoint(tmp_path: Path) -> None:
    """PyTorch's distributed checkpoints have their index in one."""
    script = """
import os, pathlib, sys
folder = pathlib.Path(os.environ["HOWDAH_CHECKPOINT_DIR"], "step-1")
if os.environ["HOWDAH_GENERATION"] == "1":
    folder.mkdir()
    (folder / "__0_0.distcp").write_text("shard")
    (folder / ".metadata").write_text("index")
    sys.exit(4)
print("restored", sorted(path.name for path in folder.iterdir()))
"""
    run = howdah("run", str(job_file(tmp_path, script, checkpoint={"settle": "20ms"})))
    assert "restored ['.metadata', '__0_0.distcp']" in run.text


SHARDS = """
import os, pathlib
rank = os.environ["HOWDAH_RANK"]
folder = pathlib.Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
assert os.environ["HOWDAH_GENERATION"] == "2" or not list(folder.iterdir())
for name in os.environ["FILES"].split():
    (folder / name.replace("RANK", rank)).write_text("weights")
"""


def _shards(tmp_path: Path, files: str, code: int, **checkpoint: object) -> Run:
    file = job_file(
        tmp_path,
        SHARDS,
        framework="pytorch",
        roles={"worker": {"instances": 2}},
        env={"FILES": files},
        checkpoint={"settle": "20ms", **checkpoint},
    )
    return howdah("run", str(file), code=code)


def test_shards_that_are_in_no_checkpoint_are_said_with_what_to_change(tmp_path: Path) -> None:
    said = " ".join(_shards(tmp_path, "__RANK_0.distcp", 5).text.split())
    assert "but not all of it was saved" in said
    assert "worker:1: checkpoints: one of its files is in no checkpoint, __1_0.distcp" in said
    assert "HOWDAH_SHARED_DIR" in said and "Make the store writable" not in said


def test_the_same_files_of_each_task_random_numbers_and_what_is_ignored_are_no_loss(
    tmp_path: Path,
) -> None:
    files = "model.pt rng_state_RANK.pth random_states_RANK.pkl mine_RANK.pt"
    run = _shards(tmp_path, files, 0, ignore=["mine_*"])
    assert "no checkpoint" not in run.text + run.told
