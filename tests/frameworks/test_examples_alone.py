"""Every example is an ordinary program: without Howdah it trains, saves, and goes on where it was."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

NEEDS = {
    "command": "numpy",
    "dask": "distributed",
    "horovod": "numpy",
    "jax": "jax",
    "lightgbm": "lightgbm",
    "mpi": "numpy",
    "mxnet": "numpy",
    "pytorch": "torch",
    "ray": "ray",
    "tensorflow": "tensorflow",
    "tensorflow-ps": "tensorflow",
    "xgboost": "xgboost",
}
QUIET = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "RAY_USAGE_STATS_ENABLED": "0",
}
RUN_ONCE = ("tensorflow", "ray")
"""Slow to start, and they resume elsewhere: in the tests of recovery, and as `mpi` does."""
FOREIGN = ("HOWDAH_RANK", "TF_CONFIG", "RANK", "WORLD_SIZE", "DMLC_ROLE", "HOROVOD_RANK")


def test_every_example_is_tested_here():
    folders = {path.name for path in EXAMPLES.iterdir() if (path / "job.toml").exists()}
    assert folders == set(NEEDS)


def run(folder: Path, *arguments: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    # Ray's sockets lie here, and their paths may have 107 bytes only.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as short:
        done = subprocess.run(
            [sys.executable, "train.py", *arguments],
            cwd=folder,
            env=env | QUIET | {"RAY_TMPDIR": short},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=170,
        )
    assert done.returncode == 0, done.stdout
    return done.stdout


def steps(output: str) -> list[int]:
    return [
        int(step) for step in re.findall(r"^step (\d+) loss \d+\.\d+ acc", output, re.MULTILINE)
    ]


@pytest.mark.nightly
@pytest.mark.timeout(360)
@pytest.mark.parametrize("name", NEEDS)
def test_an_example_runs_alone_and_resumes(name: str, tmp_path: Path):
    if find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder)

    first = run(folder, "--epochs", "2")
    assert steps(first) == [1, 2]
    assert "resumed" not in first
    saved = {
        hashlib.sha256(path.read_bytes()).hexdigest(): path.name
        for path in (folder / "checkpoints").iterdir()
    }

    if name in RUN_ONCE:
        assert saved and finished(first) == 1440
        return
    second = run(folder, "--epochs", "3")
    assert steps(second) == [3]
    (resumed,) = re.findall(r"^resumed from (\S+) step 2 checksum (\w+)$", second, re.MULTILINE)
    assert saved[resumed[1]] == resumed[0]
    assert not list((folder / "checkpoints").glob("*.tmp"))
    assert finished(second) == 1440
    assert list((folder / "tensorboard" / "local-0").glob("events.out.tfevents*"))


def finished(output: str) -> int:
    """How many samples the ranks say they saw in the last epoch, of a run that says all it should."""
    assert re.search(r"^final accuracy 0\.\d{4}$", output, re.MULTILINE)
    assert re.search(r"^checksum of the weights [0-9a-f]{12} ", output, re.MULTILINE)
    counts = re.findall(r"^rank \d of \d trained on (\d+) samples", output, re.MULTILINE)
    return sum(map(int, counts))


def shared_files() -> list[str]:
    return [path.name for path in sorted((EXAMPLES / "common").glob("*.py"))]


@pytest.mark.parametrize("file", shared_files())
def test_the_examples_copies_of_a_shared_file_are_the_same(file: str):
    original = (EXAMPLES / "common" / file).read_bytes()
    copies = [path for path in EXAMPLES.glob(f"*/{file}") if path.parent.name != "common"]
    assert copies
    for copy in copies:
        assert copy.read_bytes() == original, f"copy examples/common/{file} over {copy}"


def test_every_example_says_what_it_shows():
    for name in NEEDS:
        text = (EXAMPLES / name / "README.md").read_text()
        assert f"howdah run examples/{name}/job.toml" in text
