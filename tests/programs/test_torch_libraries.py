"""Libraries on top of PyTorch, each started as its documentation has it, on two tasks, on the digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

DATA = """
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
train_set, x_test, y_test = TensorDataset(x[:1400], y[:1400]), x[1400:], y[1400:]


def accuracy(model):
    with torch.no_grad():
        return (model(x_test).argmax(1) == y_test).float().mean().item()
"""

LIGHTNING = """
import lightning as L
import torch
from digits import accuracy, train_set
from torch.utils.data import DataLoader


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x)

    def training_step(self, batch, index):
        images, labels = batch
        return torch.nn.functional.cross_entropy(self(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


L.seed_everything(1)
trainer = L.Trainer(
    accelerator="cpu", strategy="ddp", devices=DEVICES, num_nodes=2, max_epochs=4,
    enable_progress_bar=False, logger=False, enable_checkpointing=False,
)
model = Digits()
trainer.fit(model, DataLoader(train_set, 50, shuffle=True))
print(f"rank {trainer.global_rank} of {trainer.world_size}: {accuracy(model):.3f}\\n", end="", flush=True)
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from digits import accuracy, train_set
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
model = torch.nn.Linear(64, 10)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(train_set, 50, shuffle=True)
)
for epoch in range(4):
    for images, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.cross_entropy(model(images), labels))
        optimizer.step()
rank, world = accelerator.process_index, accelerator.num_processes
print(f"rank {rank} of {world}: {accuracy(model):.3f}\\n", end="", flush=True)
accelerator.end_training()
"""

TRANSFORMERS = """
import torch
from digits import accuracy, train_set
from transformers import Trainer, TrainingArguments


class Digits(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)

    def forward(self, x, labels=None):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


torch.manual_seed(1)
arguments = TrainingArguments(
    output_dir="out", use_cpu=True, num_train_epochs=4, per_device_train_batch_size=50,
    learning_rate=0.02, save_strategy="no", report_to="none", disable_tqdm=True,
)
model = Digits()
trainer = Trainer(
    model=model,
    args=arguments,
    train_dataset=[{"x": image, "labels": label} for image, label in train_set],
)
trainer.train()
rank, world = arguments.process_index, arguments.world_size
print(f"rank {rank} of {world}: {accuracy(model.layer):.3f}\\n", end="", flush=True)
"""

DEEPSPEED = """
import os

import deepspeed
import torch
from digits import accuracy, train_set

# Sums through shared memory would be compiled now, for minutes; gloo is enough.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(1)
model = torch.nn.Linear(64, 10)
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    model_parameters=model.parameters(),
    optimizer=torch.optim.Adam(model.parameters(), lr=0.02),
    training_data=train_set,
    config={
        "train_micro_batch_size_per_gpu": 50,
        "zero_optimization": {"stage": 1},
        "zero_allow_untested_optimizer": True,
    },
)
for epoch in range(4):
    for images, labels in loader:
        engine.backward(torch.nn.functional.cross_entropy(engine(images), labels))
        engine.step()
rank, world = deepspeed.comm.get_rank(), deepspeed.comm.get_world_size()
print(f"rank {rank} of {world}: {accuracy(engine):.3f}\\n", end="", flush=True)
"""

LAUNCH = (
    "accelerate launch --cpu --num_machines 2 --num_processes 2 --machine_rank $NODE_RANK "
    "--main_process_ip $MASTER_ADDR --main_process_port $MASTER_PORT train.py"
)

PROGRAMS: dict[str, tuple[str, str]] = {
    "lightning": (LIGHTNING.replace("DEVICES", "1"), "python train.py"),
    "lightning under torchrun": (LIGHTNING.replace("DEVICES", "1"), "torchrun train.py"),
    "accelerate": (ACCELERATE, "python train.py"),
    "accelerate launch": (ACCELERATE, LAUNCH),
    "transformers": (TRANSFORMERS, "torchrun train.py"),
    "deepspeed": (DEEPSPEED, "python train.py"),
}


@pytest.mark.program(
    "Lightning",
    "lightning",
    "`python train.py`; `torchrun train.py`",
    "the same accuracy on both ranks, above 0.85",
)
@pytest.mark.program(
    "Accelerate",
    "accelerate",
    "`python train.py`; `accelerate launch`",
    "the same accuracy on both ranks, above 0.85",
)
@pytest.mark.program(
    "Transformers",
    "transformers",
    "`torchrun train.py`",
    "the same accuracy on both ranks, above 0.85",
)
@pytest.mark.program(
    "DeepSpeed", "deepspeed", "`python train.py`", "the same accuracy on both ranks, above 0.85"
)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", PROGRAMS)
def test_digits_are_learned_by_two_tasks(tmp_path: Path, name: str) -> None:
    program, command = PROGRAMS[name]
    run = succeeds(
        tmp_path / "job",
        {"digits.py": DATA, "train.py": program},
        framework="pytorch",
        command=command,
        roles={"worker": {"instances": 2}},
        env={"DS_ACCELERATOR": "cpu"} if name == "deepspeed" else {},
    )
    found = dict(re.findall(r"(rank \d of 2): ([\d.]+)", run.text))
    assert set(found) == {"rank 0 of 2", "rank 1 of 2"}, run.text
    assert len(set(found.values())) == 1, "both have the same weights"
    assert float(found["rank 0 of 2"]) > 0.85
