"""Ray programs as its quick starts have them: tasks, the State API, Ray Train and Ray Tune."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

LIBRARIES = """
import os

import ray
import ray.train
import torch
from ray import tune
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader, prepare_model
from ray.util.state import list_nodes
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

STORAGE = os.path.abspath("storage")


@ray.remote
def square(x):
    return x * x


def train(config):
    torch.manual_seed(1)
    x, y = load_digits(return_X_y=True)
    x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    loader = prepare_data_loader(DataLoader(TensorDataset(x[:1400], y[:1400]), 50, shuffle=True))
    model = prepare_model(torch.nn.Linear(64, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for epoch in range(config["epochs"]):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
    accuracy = (model(x[1400:]).argmax(1) == y[1400:]).float().mean().item()
    context = ray.train.get_context()
    print(f"trained {accuracy:.3f} with {context.get_world_size()}", flush=True)
    ray.train.report({"accuracy": accuracy})


def objective(config):
    return {"score": (config["x"] - 3) ** 2}


ray.init()
print("squares", sum(ray.get([square.remote(i) for i in range(10)])), flush=True)
nodes = list_nodes()
print("nodes", *[node.state for node in nodes], flush=True)
trainer = TorchTrainer(
    train,
    train_loop_config={"epochs": 6},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=STORAGE, name="train"),
)
trainer.fit()
tuner = tune.Tuner(
    objective,
    param_space={"x": tune.grid_search([1, 3])},
    run_config=tune.RunConfig(storage_path=STORAGE, name="tune"),
)
best = tuner.fit().get_best_result(metric="score", mode="min")
print("best", best.config["x"], flush=True)
"""


@pytest.mark.program(
    "Ray",
    "ray",
    "`python train.py` in the role `driver`",
    "the sum, `list_nodes()`, Ray Train with two workers above 0.8, the best of Ray Tune",
)
@pytest.mark.timeout(460)
def test_rays_libraries_and_its_state_work_on_a_jobs_nodes(tmp_path: Path) -> None:
    roles = {"driver": {}, "worker": {"instances": 1, "cores": 3}}
    run = succeeds(
        tmp_path / "job",
        {"train.py": LIBRARIES},
        framework="ray",
        command="python train.py",
        roles=roles,
        env={"RAY_TRAIN_V2_ENABLED": "1"},
        within_s=440,
    )
    said = run.text
    assert "squares 285" in said and "nodes ALIVE ALIVE" in said
    found = re.search(r"trained ([\d.]+) with 2", said)
    assert found is not None and float(found[1]) > 0.8, said
    assert "best 3" in said
    assert "Failed to query Ray Train Controller" not in said
