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


@pytest.mark.parametrize("writer", ["1", "2"])
def test_the_task_that_writes_is_saved_and_all_get_it_back(tmp_path: Path, writer: str) -> None:
    run, view, store = _run(tmp_path, writer)
    assert view.restarts == 1
    assert run.text.count(f"found ['of {writer} in 1']") == 3
    assert _saved(store) == [(f"worker:{writer}", 1), (f"worker:{writer}", 2)]
    assert "no checkpoint was saved" not in run.told


def test_of_several_that_write_the_chief_is_saved(tmp_path: Path) -> None:
    run, _, store = _run(tmp_path, "0 1 2")
    assert run.text.count("found ['of 0 in 1']") == 3
    assert {task for task, _ in _saved(store)} == {"worker:0"}


def test_of_several_others_that_write_the_lowest_rank_is_saved(tmp_path: Path) -> None:
    run, _, store = _run(tmp_path, "1 2")
    assert run.text.count("found ['of 1 in 1']") == 3
    assert {task for task, _ in _saved(store)} == {"worker:1"}


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
import os, pathlib, time
rank = os.environ["HOWDAH_RANK"]
folder = pathlib.Path(os.environ["HOWDAH_CHECKPOINT_DIR"])
assert os.environ["HOWDAH_GENERATION"] == "2" or not list(folder.iterdir())
time.sleep(float(os.environ["LATER"].split()[int(rank)]))
for name in os.environ["FILES"].split():
    (folder / name.replace("RANK", rank)).write_text("weights")
"""


def _shards(tmp_path: Path, files: str, code: int, later: str = "0 0", **checkpoint: object) -> Run:
    file = job_file(
        tmp_path,
        SHARDS,
        framework="pytorch",
        roles={"worker": {"instances": 2}},
        env={"FILES": files, "LATER": later},
        checkpoint={"settle": "20ms", **checkpoint},
    )
    return howdah("run", str(file), code=code)


@pytest.mark.parametrize("later", ["0 0", "1 0", "0 1"])
def test_shards_that_are_in_no_checkpoint_are_said_with_what_to_change(
    tmp_path: Path, later: str
) -> None:
    said = " ".join(_shards(tmp_path, "__RANK_0.distcp", 5, later).text.split())
    assert "but not all of it was saved" in said
    assert "worker:1: checkpoints: one of its files is in no checkpoint, __1_0.distcp" in said
    assert "HOWDAH_SHARED_DIR" in said and "Make the store writable" not in said


@pytest.mark.parametrize("later", ["0 0", "1 0", "0 1"])
def test_that_every_task_writes_the_same_files_is_no_loss(tmp_path: Path, later: str) -> None:
    run = _shards(tmp_path, "model.pt epoch-1.pt", 0, later)
    assert "no checkpoint" not in run.text + run.told


def test_a_ranks_random_numbers_are_no_loss(tmp_path: Path) -> None:
    files = "model.safetensors rng_state_RANK.pth random_states_RANK.pkl"
    run = _shards(tmp_path, files, 0)
    assert "no checkpoint" not in run.text + run.told


def test_what_a_job_ignores_is_no_loss(tmp_path: Path) -> None:
    run = _shards(tmp_path, "model.pt rng_RANK.pt", 0, ignore=["rng_*"])
    assert "no checkpoint" not in run.text + run.told
