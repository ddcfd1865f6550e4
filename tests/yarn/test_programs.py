"""Other people's programs on a real cluster, one of each framework that has no example there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import Cluster
from tests.programs.programs import succeeds
from tests.programs.test_boosting import LIGHTGBM, XGBOOST
from tests.programs.test_dask import QUICK_START
from tests.programs.test_mpi import DIGITS, mpi
from tests.programs.test_torch_libraries import ACCELERATE, DATA

RAY = """
import ray

ray.init()


@ray.remote
def square(x):
    return x * x


print("squares", sum(ray.get([square.remote(i) for i in range(10)])), flush=True)
print("nodes", sum(node["Alive"] for node in ray.nodes()), flush=True)
"""

SMALL = {"memory": "1g"}
TWO = {"instances": 2, **SMALL}


@pytest.fixture
def cluster(hadoop: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in hadoop.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOWDAH_HOME", str(tmp_path / "home"))


def run(folder: Path, script: str, *, data: str = "", within_s: float = 220, **job: Any) -> str:
    """What the job's programs say; the nodes' Python is this one, so that nothing is packed."""
    job = {"command": "python train.py", "master": {"memory": "256m"}, **job}
    files = {"train.py": script, "digits.py": data}
    return succeeds(folder / "job", files, "--backend", "yarn", within_s=within_s, **job).text


def same(text: str, pattern: str) -> float:
    """What both ranks say."""
    found = re.findall(pattern, text)
    assert len(found) == 2 and len(set(found)) == 1, text
    return float(found[0])


@pytest.mark.usefixtures("cluster")
@pytest.mark.xdist_group("trainings-on-yarn")
@pytest.mark.timeout(300, func_only=True)
@pytest.mark.parametrize(
    ("framework", "script"),
    [
        pytest.param(
            "pytorch", ACCELERATE, marks=pytest.mark.on_yarn("Accelerate"), id="accelerate"
        ),
        pytest.param("xgboost", XGBOOST, marks=pytest.mark.on_yarn("XGBoost"), id="xgboost"),
        pytest.param("lightgbm", LIGHTGBM, marks=pytest.mark.on_yarn("LightGBM"), id="lightgbm"),
    ],
)
def test_two_ranks_learn_the_digits(tmp_path: Path, framework: str, script: str) -> None:
    text = run(tmp_path, script, data=DATA, framework=framework, roles={"worker": TWO})
    assert same(text, r"rank \d of 2: ([\d.]+)") > 0.85


@pytest.mark.usefixtures("cluster")
@pytest.mark.xdist_group("trainings-on-yarn")
@pytest.mark.timeout(300, func_only=True)
@pytest.mark.on_yarn("MPI")
def test_mpirun_spreads_its_ranks_over_containers(tmp_path: Path) -> None:
    job = mpi("mpich", "mpirun -np 4 python train.py", roles={"worker": TWO})
    text = run(tmp_path, DIGITS, **job)
    found = re.findall(r"rank (\d) of 4 in task (\d) in (\w+): ([\d.]+)", text)
    assert sorted(rank for rank, *_ in found) == ["0", "1", "2", "3"], text
    assert sorted(task for _, task, *_ in found) == ["0", "0", "1", "1"]
    assert min(float(accuracy) for *_, accuracy in found) > 0.85


@pytest.mark.usefixtures("cluster")
@pytest.mark.xdist_group("trainings-on-yarn")
@pytest.mark.timeout(300, func_only=True)
@pytest.mark.on_yarn("Dask")
def test_a_dask_client_has_all_its_workers_and_restarts_them(tmp_path: Path) -> None:
    roles = {"client": SMALL, "scheduler": SMALL, "worker": TWO}
    text = run(tmp_path, QUICK_START, framework="dask", roles=roles)
    for said in ("workers 2", "sum 285", "again 2 10"):
        assert said in text


@pytest.mark.usefixtures("cluster")
@pytest.mark.xdist_group("trainings-on-yarn")
@pytest.mark.timeout(600, func_only=True)
@pytest.mark.on_yarn("Ray")
def test_a_ray_driver_has_all_its_nodes(tmp_path: Path) -> None:
    # The head's dashboard alone is a dozen processes.
    roles = {"driver": SMALL, "head": {"memory": "5g"}, "worker": {"memory": "3g"}}
    text = run(tmp_path, RAY, framework="ray", roles=roles, within_s=500)
    assert "squares 285" in text and "nodes 2" in text
