"""Other people's programs on a real cluster, one of each framework that has no example there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.hadoop.cluster import Cluster
from tests.programs.programs import succeeds
from tests.programs.test_boosting import LIGHTGBM, ON_DASK, XGBOOST, XGBOOST_ON_DASK
from tests.programs.test_dask import QUICK_START
from tests.programs.test_jax_keras import KERAS_JAX, KERAS_MODEL, ORBAX
from tests.programs.test_mpi import DIGITS, mpi
from tests.programs.test_torch_elastic import SHARDED
from tests.programs.test_torch_libraries import DATA, PROGRAMS

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("cluster"),
    pytest.mark.timeout(300, func_only=True),
]

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


@pytest.mark.on_yarn("Accelerate")
@pytest.mark.on_yarn("Lightning")
@pytest.mark.on_yarn("Transformers")
@pytest.mark.on_yarn("DeepSpeed")
@pytest.mark.on_yarn("Keras on JAX and PyTorch")
@pytest.mark.on_yarn("XGBoost")
@pytest.mark.on_yarn("LightGBM")
@pytest.mark.parametrize(
    ("framework", "script", "data"),
    [
        pytest.param("pytorch", PROGRAMS["accelerate"][0], DATA, id="Accelerate"),
        pytest.param("pytorch", PROGRAMS["lightning"][0], DATA, id="Lightning"),
        pytest.param("pytorch", PROGRAMS["transformers"][0], DATA, id="Transformers"),
        pytest.param("pytorch", PROGRAMS["deepspeed"][0], DATA, id="DeepSpeed"),
        pytest.param("jax", KERAS_JAX, KERAS_MODEL, id="Keras on JAX and PyTorch"),
        pytest.param("xgboost", XGBOOST, DATA, id="XGBoost"),
        pytest.param("lightgbm", LIGHTGBM, DATA, id="LightGBM"),
    ],
)
def test_two_ranks_learn_the_digits(tmp_path: Path, framework: str, script: str, data: str) -> None:
    text = run(
        tmp_path,
        script,
        data=data,
        framework=framework,
        roles={"worker": {"instances": 2, "memory": "3g"}},
        env={
            "DS_ACCELERATOR": "cpu",
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
        },
    )
    assert same(text, r"rank \d of 2: ([\d.]+)") > 0.8


@pytest.mark.on_yarn("JAX and Orbax")
def test_orbax_saves_from_a_container(tmp_path: Path) -> None:
    text = run(
        tmp_path,
        ORBAX,
        framework="jax",
        roles={"worker": {"processes": 2, "memory": "2g"}},
        env={"JAX_PLATFORMS": "cpu"},
        checkpoint={"folder": "checkpoints"},
    )
    assert len(re.findall(r"rank \d of 2 has 6", text)) == 2, text


@pytest.mark.on_yarn("PyTorch, FSDP and DCP")
def test_fsdp_saves_its_shards_from_a_container(tmp_path: Path) -> None:
    text = run(
        tmp_path,
        SHARDED,
        framework="pytorch",
        command="torchrun --nproc-per-node=2 train.py",
        roles={"worker": {"memory": "3g"}},
        checkpoint={"folder": "checkpoints"},
    )
    assert same(text, r"rank \d of 2 saved [\d.]+ accuracy ([\d.]+)") > 0.8


@pytest.mark.on_yarn("MPI")
def test_mpirun_spreads_its_ranks_over_containers(tmp_path: Path) -> None:
    job = mpi("mpich", "mpirun -np 4 python train.py", roles={"worker": TWO})
    text = run(tmp_path, DIGITS, **job)
    found = re.findall(r"rank (\d) of 4 in task (\d) in (\w+): ([\d.]+)", text)
    assert sorted(rank for rank, *_ in found) == ["0", "1", "2", "3"], text
    assert sorted(task for _, task, *_ in found) == ["0", "0", "1", "1"]
    assert min(float(accuracy) for *_, accuracy in found) > 0.85


@pytest.mark.on_yarn("Dask")
def test_a_dask_client_has_all_its_workers_and_restarts_them(tmp_path: Path) -> None:
    roles = {"client": SMALL, "scheduler": SMALL, "worker": TWO}
    text = run(tmp_path, QUICK_START, framework="dask", roles=roles)
    for said in ("workers 2", "sum 285", "again 2 10"):
        assert said in text


@pytest.mark.on_yarn("XGBoost on Dask")
def test_boosting_on_the_workers_of_dask(tmp_path: Path) -> None:
    roles = {"client": SMALL, "scheduler": SMALL, "worker": TWO}
    script = ON_DASK.replace("MODEL", XGBOOST_ON_DASK)
    text = run(tmp_path, script, framework="dask", roles=roles)
    assert float(re.findall(r"workers 2 accuracy ([\d.]+)", text)[0]) > 0.85


@pytest.mark.timeout(600, func_only=True)
@pytest.mark.on_yarn("Ray")
def test_a_ray_driver_has_all_its_nodes(tmp_path: Path) -> None:
    # The head's dashboard alone is a dozen processes.
    roles = {"driver": SMALL, "head": {"memory": "5g"}, "worker": {"memory": "3g"}}
    text = run(tmp_path, RAY, framework="ray", roles=roles, within_s=500)
    assert "squares 285" in text and "nodes 2" in text
