"""XGBoost and LightGBM as their guides have them: each with its own launch, and on a cluster of Dask."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

XGBOOST = """
import os

import xgboost as xgb
from sklearn.datasets import load_digits
from xgboost.collective import CommunicatorContext, get_rank, get_world_size

x, y = load_digits(return_X_y=True)
with CommunicatorContext(
    dmlc_communicator="rabit",
    dmlc_tracker_uri=os.environ["DMLC_TRACKER_URI"],
    dmlc_tracker_port=int(os.environ["DMLC_TRACKER_PORT"]),
    dmlc_task_id=os.environ["DMLC_TASK_ID"],
):
    rank, world = get_rank(), get_world_size()
    mine = xgb.DMatrix(x[rank:1400:world], y[rank:1400:world])
    parameters = {"objective": "multi:softmax", "num_class": 10, "nthread": 1}
    model = xgb.train(parameters, mine, num_boost_round=10)
    right = (model.predict(xgb.DMatrix(x[1400:])) == y[1400:]).mean()
    print(f"rank {rank} of {world}: {right:.3f}", flush=True)
"""

LIGHTGBM = """
import os

import lightgbm as lgb
from sklearn.datasets import load_digits

parameters = {"objective": "multiclass", "num_class": 10, "num_threads": 1, "verbose": -1}
parameters |= {
    "tree_learner": "data",
    "pre_partition": True,
    "machines": os.environ["LGBM_MACHINES"],
    "num_machines": int(os.environ["LGBM_NUM_MACHINES"]),
    "local_listen_port": int(os.environ["LGBM_LOCAL_LISTEN_PORT"]),
}
rank, world = int(os.environ["LGBM_RANK"]), parameters["num_machines"]
x, y = load_digits(return_X_y=True)
model = lgb.train(parameters, lgb.Dataset(x[rank:1400:world], y[rank:1400:world]), 20)
right = (model.predict(x[1400:]).argmax(1) == y[1400:]).mean()
print(f"rank {rank} of {world}: {right:.3f}", flush=True)
"""

ON_DASK = """
import dask.array as da
from distributed import Client
from sklearn.datasets import load_digits

MODEL

if __name__ == "__main__":
    client = Client()
    x, y = load_digits(return_X_y=True)
    images, labels = da.from_array(x[:1400], chunks=(700, 64)), da.from_array(y[:1400], chunks=700)
    right = (fit(client, images, labels, x[1400:]) == y[1400:]).mean()
    print("workers", len(client.scheduler_info()["workers"]), f"accuracy {right:.3f}", flush=True)
"""

XGBOOST_ON_DASK = """
import xgboost as xgb
from xgboost import dask as dxgb


def fit(client, images, labels, others):
    data = dxgb.DaskDMatrix(client, images, labels)
    parameters = {"objective": "multi:softmax", "num_class": 10}
    trained = dxgb.train(client, parameters, data, num_boost_round=10)
    return trained["booster"].predict(xgb.DMatrix(others))
"""

LIGHTGBM_ON_DASK = """
import lightgbm as lgb

def fit(client, images, labels, others):
    model = lgb.DaskLGBMClassifier(client=client, n_estimators=20, num_threads=1, verbose=-1)
    return model.fit(images, labels).to_local().predict(others)
"""

OWN = {"xgboost": XGBOOST, "lightgbm": LIGHTGBM}
DASK = {"xgboost": XGBOOST_ON_DASK, "lightgbm": LIGHTGBM_ON_DASK}


@pytest.mark.program(
    "XGBoost",
    "xgboost-cpu",
    "`python train.py`: `CommunicatorContext`, with the tracker that Howdah runs",
    "the same accuracy on both ranks, above 0.85",
)
@pytest.mark.program(
    "LightGBM",
    "lightgbm",
    "`python train.py`: `machines`, `num_machines`, `local_listen_port`",
    "the same accuracy on both ranks, above 0.85",
)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("framework", OWN)
def test_boosting_over_its_own_network(tmp_path: Path, framework: str) -> None:
    run = succeeds(
        tmp_path / "job",
        {"train.py": OWN[framework]},
        framework=framework,
        command="python train.py",
        roles={"worker": {"instances": 2}},
    )
    found = re.findall(r"rank \d of 2: ([\d.]+)", run.text)
    assert len(found) == 2 and len(set(found)) == 1, run.text
    assert float(found[0]) > 0.85


@pytest.mark.program(
    "XGBoost on Dask",
    "xgboost-cpu distributed",
    "`python train.py` in the role `client`: `xgboost.dask.train`",
    "accuracy above 0.85 with two workers",
)
@pytest.mark.program(
    "LightGBM on Dask",
    "lightgbm distributed",
    "`python train.py` in the role `client`: `DaskLGBMClassifier`",
    "accuracy above 0.85 with two workers",
)
@pytest.mark.timeout(180)
@pytest.mark.parametrize("library", DASK)
def test_boosting_on_the_workers_of_dask(tmp_path: Path, library: str) -> None:
    run = succeeds(
        tmp_path / "job",
        {"train.py": ON_DASK.replace("MODEL", DASK[library].strip())},
        framework="dask",
        command="python train.py",
        roles={"client": {}, "worker": {"instances": 2}},
    )
    found = re.search(r"workers 2 accuracy ([\d.]+)", run.text)
    assert found is not None and float(found[1]) > 0.85, run.text
