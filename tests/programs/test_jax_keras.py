"""JAX with Orbax, and Keras 3 on the JAX and PyTorch backends, in several processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.howdah import start
from tests.programs.programs import succeeds

pytestmark = pytest.mark.nightly

ORBAX = """
import os
from pathlib import Path

import jax

jax.distributed.initialize()
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

rank, world = jax.process_index(), jax.process_count()
mesh = jax.make_mesh((world,), ("ranks",))
sharding = NamedSharding(mesh, PartitionSpec("ranks"))
values = jax.make_array_from_callback((world,), sharding, lambda at: jnp.arange(world)[at] + 1.0)
folder = Path(os.environ["HOWDAH_CHECKPOINT_DIR"]).absolute() / "state"
checkpointer = ocp.StandardCheckpointer()
if folder.exists():
    values = checkpointer.restore(folder, {"values": values})["values"]
values = jax.jit(lambda v: v * 2)(values)
checkpointer.save(folder, {"values": values}, force=True)
checkpointer.wait_until_finished()
total = jax.jit(jnp.sum, out_shardings=NamedSharding(mesh, PartitionSpec()))(values)
print(f"rank {rank} of {world} has {float(total.addressable_data(0)):g}", flush=True)
"""

KERAS_MODEL = """
import keras
import numpy as np
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")


def made():
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])


def accuracy(model):
    return (np.asarray(keras.ops.convert_to_numpy(model(x[1400:]))).argmax(1) == y[1400:]).mean()
"""

KERAS_JAX = """
import jax

jax.distributed.initialize()
import keras
from digits import made, x, y

rank, world = jax.process_index(), jax.process_count()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
model = made()
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer=keras.optimizers.Adam(0.02), loss=loss)
model.fit(x[rank:1400:world], y[rank:1400:world], batch_size=50, epochs=5, verbose=0)
kernel, bias = (each.value.addressable_data(0) for each in model.layers[0].variables)
right = ((x[1400:] @ kernel + bias).argmax(1) == y[1400:]).mean()
print(f"rank {rank} of {world}: {right:.3f}", flush=True)
"""

KERAS_TORCH = """
import torch
import torch.distributed as dist
from digits import accuracy, made, x, y
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = made()
ddp = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
mine = torch.tensor(x[rank:1400:world]), torch.tensor(y[rank:1400:world])
for step in range(100):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(ddp(mine[0]), mine[1]).backward()
    optimizer.step()
print(f"rank {rank} of {world}: {accuracy(model):.3f}", flush=True)
dist.destroy_process_group()
"""


@pytest.mark.program(
    "JAX and Orbax",
    "jax orbax-checkpoint",
    "`python train.py`, then `howdah rerun --resume`",
    "the values go on from what was saved",
)
@pytest.mark.timeout(300)
def test_orbax_saves_what_all_processes_hold_and_restores_it(tmp_path: Path) -> None:
    run = succeeds(
        tmp_path / "job",
        {"train.py": ORBAX},
        framework="jax",
        command="python train.py",
        roles={"worker": {"processes": 2}},
        env={"JAX_PLATFORMS": "cpu"},
        checkpoint={"folder": "checkpoints"},
    )
    assert sorted(re.findall(r"rank \d of 2 has \d+", run.text)) == [
        "rank 0 of 2 has 6",
        "rank 1 of 2 has 6",
    ]
    job_id = re.findall(r"^howdah +\| (\S+) submitted", run.told, re.M)[0]
    again = start("rerun", job_id, "--resume")
    assert again.end(within_s=140) == 0, again.text + again.told
    assert len(re.findall(r"rank \d of 2 has 12", again.text)) == 2, again.text


@pytest.mark.program(
    "Keras on JAX and PyTorch",
    "keras jax torch",
    "`python train.py`",
    "the same accuracy on both ranks, above 0.8",
)
@pytest.mark.timeout(240)
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_learns_on_two_tasks(tmp_path: Path, backend: str) -> None:
    run = succeeds(
        tmp_path / "job",
        {"digits.py": KERAS_MODEL, "train.py": KERAS_JAX if backend == "jax" else KERAS_TORCH},
        framework="jax" if backend == "jax" else "pytorch",
        command="python train.py",
        roles={"worker": {"instances": 2}},
        env={"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""},
        within_s=220,
    )
    found = re.findall(r"rank \d of 2: ([\d.]+)", run.text)
    assert len(found) == 2 and len(set(found)) == 1, run.text
    assert float(found[0]) > 0.8
